"""Rows and targets prepared once, with the matrices that all pairs (f, lambda0) have in common."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bayesdrop.errors import must
from bayesdrop.linear.algebra import DualFactor, Factor, Precision, PrimalFactor, precision_of
from bayesdrop.linear.conjugate import MeanFit, fit_by_conjugate_gradients
from bayesdrop.linear.evidence import leave_one_out_errors
from bayesdrop.linear.posterior import Posterior
from bayesdrop.linear.rates import Criterion, chosen_solver
from bayesdrop.linear.rows import Array, Mask, Rows

__all__ = ["LinearProblem"]


class LinearProblem:
    """Weighted rows and targets, centred if there is an intercept.

    With an intercept, a dropped feature is replaced by its mean: the model does not depend on where a
    feature's zero is. The intercept is not dropped and has a flat prior, so that centring integrates it out,
    at the cost of one degree of freedom.

    X'X is reused for all pairs; A D^-1 A' for all pairs with the same lambda0 / (f (1 - f)): all f at
    lambda0 = 0, and all lambda0 at f = 0.

    Args:
        X: (N, P), dense or sparse, finite, float64.
        y: (N, M).
        weights: (N,), ones if None.
        intercept: whether to fit one.
        a0: shape of the prior of sigma^2.
        b0: its scale.
        owner: the name in errors.
    """

    def __init__(
        self,
        X: Any,
        y: Array,
        weights: Array | None,
        *,
        intercept: bool,
        a0: float = 0.0,
        b0: float = 0.0,
        owner: str = "BayesianDropoutRegression",
    ) -> None:
        self.weights: Array = np.ones(X.shape[0]) if weights is None else weights
        self.count = float(self.weights.sum())
        if not self.count > intercept:
            least = "above 1 with an intercept" if intercept else "above 0"
            got = f"{self.count:g} from n_samples = {X.shape[0]}"
            raise ValueError(must(owner, "sum of the rows' weights", least, got))
        self.intercept, self.a0, self.b0, self.owner = intercept, a0, b0, owner
        share = self.weights / self.count
        self.mean: Array | None = np.asarray(X.T @ share) if intercept else None
        self.centre: Array = share @ y if intercept else np.zeros(y.shape[1])
        self.rows = Rows(X, mean=self.mean, weights=weights)
        self.targets: Array = (y - self.centre) * self.rows.root[:, None]
        self._kernels: tuple[float, Array] | None = None

    @cached_property
    def squares(self) -> Array:
        """diag(X'X)."""
        return self.rows.squares()

    @cached_property
    def gram(self) -> Array:
        """X'X."""
        return self.rows.gram()

    def active(self, lambda0: float) -> Mask:
        """Columns whose weight may differ from 0: all, or with lambda0 = 0 those that are not constant."""
        return (self.squares > 0) | (lambda0 > 0)

    def precision(self, f: Array, lambda0: float) -> Precision:
        """Lambda, of the active columns."""
        active = self.active(lambda0)
        if not active.any():
            hint = "Every feature is constant or empty, and lambda0 = 0 leaves their weights without a value."
            raise ValueError(must(self.owner, "X", "of some feature that varies", "none", hint))
        if active.all():
            return precision_of(self.rows, f, lambda0, self.squares, self.owner)
        rows = self.rows.take(active)
        return precision_of(rows, f[active], lambda0, self.squares[active], self.owner)

    def factor(self, precision: Precision, how: str) -> Factor:
        """Lambda factorised, with matrices reused from an earlier pair."""
        whole = precision.rows is self.rows
        if how == "primal":
            # Taking columns of a large X'X is no cheaper than making it.
            return PrimalFactor(precision, self.gram if whole else None)
        keep, diagonal = precision.keep, precision.diagonal
        if not np.all(keep == keep[0]) or not np.all(diagonal > 0):
            return DualFactor(precision)
        q, f, lambda0 = keep[0], 1 - keep[0], precision.lambda0
        # D = f q (c + S), or lambda0 for f = 0.
        c = lambda0 / (f * q) if f > 0 else np.inf
        if self._kernels is None or self._kernels[0] != c:
            inverse = np.ones_like(self.squares)
            if f > 0:
                bottom = c + self.squares
                # Columns that are not active are zeros: any number may replace their 1 / 0.
                np.divide(1.0, bottom, out=inverse, where=bottom > 0)
            self._kernels = (c, self.rows.products(inverse))
        return DualFactor(precision, self._kernels[1] * (q / f if f > 0 else q * q / lambda0))

    def solver(self, solver: Any, f: Array, lambda0: float) -> str:
        """The solver for one pair: "primal", "dual" or "cg"."""
        penalised = lambda0 > 0 or bool(np.all(f > 0))
        return chosen_solver(solver, self.rows.shape, self.rows.sparse, penalised, self.owner)

    def fit(
        self,
        f: Array,
        lambda0: float,
        how: str,
        *,
        tol: float = 1e-6,
        max_iter: int | None = None,
        start: Array | None = None,
    ) -> tuple[Posterior, MeanFit | None]:
        """The posterior for one pair: by a factorisation ("primal", "dual"), or the mean alone ("cg").

        Returns: the posterior, and the result of the iteration if there was one.
        """
        precision = self.precision(f, lambda0)
        found: MeanFit | None = None
        factor: Factor | None = None
        if how == "cg":
            found = fit_by_conjugate_gradients(
                precision, self.targets, tol=tol, max_iter=max_iter, start=start
            )
            mean, residual = found.mean, found.residual
        else:
            factor = self.factor(precision, how)
            mean, residual = factor.fit(self.targets)
        posterior = Posterior(
            precision=precision,
            mean=mean,
            residual=np.maximum(residual, 0.0),
            count=self.count,
            centre=self.centre,
            intercept=self.intercept,
            active=self.active(lambda0),
            a0=self.a0,
            b0=self.b0,
            known_factor=factor,
        )
        return posterior, found

    def score(self, posterior: Posterior, criterion: Criterion) -> float:
        """The score of a pair by a criterion: higher is better.

        "evidence": generalised log evidence; "marginal": with the penalty in the prior; "cv": minus the mean
        squared leave-one-out error.
        """
        if criterion != "cv":
            return posterior.log_evidence(penalty_in_prior=criterion == "marginal")
        return -self.leave_one_out_error(posterior)

    def leave_one_out_error(self, posterior: Posterior) -> float:
        """Mean squared leave-one-out error, over rows by their weights, summed over targets."""
        used = self.weights > 0
        root = np.where(used, self.rows.root, 1.0)[:, None]
        error = (self.targets - posterior.precision.design_times(posterior.mean)) / root
        errors = leave_one_out_errors(error, posterior.factor.hat(), self.weights, intercept=self.intercept)
        return float(np.sum(self.weights[used, None] * errors[used] ** 2) / self.count)
