"""The posterior of weights and noise, and its predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from bayesdrop.linear.algebra import DualFactor, Factor, Precision, PrimalFactor
from bayesdrop.linear.evidence import log_evidence
from bayesdrop.linear.rows import Array, Mask, Rows

__all__ = ["LowRankCovariance", "Posterior", "PosteriorDraws", "Predictive", "factorised"]

Predictive = Literal["scaled", "dropped", "undropped"]


class PosteriorDraws(NamedTuple):
    """Draws of a posterior, T of them; the function of a draw is intercept + x' ((1 - f) weights)."""

    weights: Array  #: w, (T, P) or (T, P, M)
    intercept: Array  #: (T,) or (T, M)
    noise_variance: Array  #: sigma^2, (T,) or (T, M)


def factorised(precision: Precision) -> Factor:
    """The smaller of the two factorisations that exist."""
    rows, columns = precision.rows.shape
    dual = columns > rows and bool(np.all(precision.diagonal > 0))
    return DualFactor(precision) if dual else PrimalFactor(precision)


@dataclass(eq=False)
class Posterior:
    """w | sigma^2 ~ N(mu, sigma^2 Lambda^-1), sigma^2 ~ inverse gamma(shape, scale), one for each target.

    Lambda is factorised when that is first needed.
    """

    precision: Precision
    mean: Array  #: mu, (P, M), of the columns that are `active`
    residual: Array  #: R, (M,)
    count: float  #: n, the sum of the weights of the rows
    centre: Array  #: the means that were subtracted from the targets, (M,); zeros without an intercept
    intercept: bool
    active: Mask  #: (all columns,) which of them have a weight that may differ from 0
    a0: float = 0.0
    b0: float = 0.0
    known_factor: Factor | None = field(default=None, repr=False)

    @cached_property
    def factor(self) -> Factor:
        """Lambda, factorised."""
        return factorised(self.precision) if self.known_factor is None else self.known_factor

    @property
    def shape(self) -> float:
        """Shape of the inverse gamma posterior of sigma^2: a0 + n/2, or a0 + (n - 1)/2 with an intercept."""
        return self.a0 + 0.5 * (self.count - self.intercept)

    @property
    def scale(self) -> Array:
        """Scale of the inverse gamma posterior of sigma^2: b0 + R/2, (M,)."""
        return self.b0 + 0.5 * self.residual

    @property
    def noise_variance(self) -> Array:
        """E sigma^2 = scale / (shape - 1), (M,); infinite for a shape of at most 1."""
        return self.scale / (self.shape - 1) if self.shape > 1 else np.full_like(self.scale, np.inf)

    def log_evidence(self, *, penalty_in_prior: bool = False) -> float:
        """log Z (see `evidence.log_evidence`), with the dropout penalty in the likelihood or in the prior.

        A weight with a flat prior (lambda0 = 0) counts with density 1.
        """
        diagonal = self.precision.diagonal
        prior = np.log(diagonal[diagonal > 0]).sum() if penalty_in_prior else 0.0
        if not penalty_in_prior and self.precision.lambda0 > 0:
            prior = len(diagonal) * np.log(self.precision.lambda0)
        return log_evidence(
            self.residual,
            self.factor.log_det,
            float(prior),
            count=self.count,
            intercept=self.intercept,
            a0=self.a0,
            b0=self.b0,
        )

    def spread(self, rows: Rows, predictive: Predictive) -> tuple[Array, Array]:
        """The variance of targets at new rows: Var[y | sigma^2] = sigma^2 c + extra.

        Returns: c (N,), and extra (N, M), the variance of dropped inputs, which is 0 except for
        predictive="dropped": f (1 - f) sum_d x_d^2 (mu_d^2 + E[sigma^2] (Lambda^-1)_dd).
        """
        keep = self.precision.keep
        ones = np.ones_like(keep)
        c = 1 + self.factor.leverage(rows, ones if predictive == "undropped" else keep)
        if self.intercept:
            c = c + 1 / self.count
        extra = np.zeros((len(c), len(self.centre)))
        if predictive == "dropped":
            inverse = self.factor.inverse_diagonal()
            for target, variance in enumerate(self.noise_variance):
                second = self.mean[:, target] ** 2 + variance * inverse
                extra[:, target] = rows.squared.times((1 - keep) * keep * second)
        return c, extra

    def covariance(self, kind: str, *, one_target: bool) -> Array | LowRankCovariance:
        """E[sigma^2] Lambda^-1 of all columns: "full", "diagonal" or "low-rank"; with targets on axis 0."""
        variance = self.noise_variance[0] if one_target else self.noise_variance
        active = self.active
        if kind == "low-rank":
            factor = self.factor if isinstance(self.factor, DualFactor) else DualFactor(self.precision)
            return LowRankCovariance(np.asarray(variance), factor, active)
        if kind == "diagonal":
            variances = np.zeros(len(active))
            variances[active] = self.factor.inverse_diagonal()
            return np.multiply.outer(variance, variances)
        full = self.factor.inverse()
        if not active.all():
            inverse, full = full, np.zeros((len(active), len(active)))
            full[np.ix_(active, active)] = inverse
        if one_target:
            full *= variance
            return full
        return np.multiply.outer(variance, full)

    def sample(self, num_draws: int, generator: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draws of weights (T, P, M), sigma^2 (T, M) and the noise-free centre (T, M)."""
        targets = len(self.centre)
        sigma2 = self.scale / generator.standard_gamma(self.shape, size=(num_draws, targets))
        noise = self.factor.sample(num_draws * targets, generator).reshape(-1, num_draws, targets)
        weights = np.zeros((num_draws, len(self.active), targets))
        weights[:, self.active] = self.mean + np.sqrt(sigma2)[:, None] * noise.transpose(1, 0, 2)
        centre = np.broadcast_to(self.centre, sigma2.shape)
        if self.intercept:
            centre = centre + np.sqrt(sigma2 / self.count) * generator.standard_normal(sigma2.shape)
        return weights, sigma2, np.array(centre)


@dataclass(frozen=True, eq=False)
class LowRankCovariance:
    """Covariance of many weights from few rows: variance * (diag(1/D) - U U'), never formed as a matrix.

    `variance` is E sigma^2, () or (M,); weights that are certainly 0 have zeros.
    """

    variance: Array
    factor_: DualFactor = field(repr=False)
    active: Mask = field(repr=False)

    @property
    def rank(self) -> int:
        """Columns of U: the number of rows in training."""
        return int(self.factor_.lower.shape[0])

    @property
    def diagonal(self) -> Array:
        """1 / D, (P,)."""
        full = np.zeros(len(self.active))
        full[self.active] = 1 / self.factor_.precision.diagonal
        return full

    def factor(self) -> Array:
        """U as a dense matrix, (P, rank)."""
        full = np.zeros((len(self.active), self.rank))
        full[self.active] = self.factor_.low_rank_factor(0, int(self.active.sum()))
        return full

    def times(self, w: Array) -> Array:
        """(1/D - U U') w, for (P,) or (P, K): the covariance over `variance`, times w."""
        full = np.zeros_like(w, dtype=float)
        full[self.active] = self.factor_.solve(w[self.active])
        return full
