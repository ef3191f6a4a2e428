"""Bayesian dropout regression in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy.stats
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesdrop.errors import is_one_of, must, must_be_flag, real_number, told_by, whole_number, whole_seed
from bayesdrop.linear.estimator import LinearDropout
from bayesdrop.linear.posterior import LowRankCovariance, Posterior, PosteriorDraws, Predictive
from bayesdrop.linear.problem import LinearProblem
from bayesdrop.linear.rates import check_iteration, criterion_of, drop_rates, prior_precision, row_weights
from bayesdrop.linear.rows import Array, Rows
from bayesdrop.linear.select import choose
from bayesdrop.scale import check_scale

__all__ = ["BayesianDropoutRegression"]

_OWNER = "BayesianDropoutRegression"


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianDropoutRegression(MultiOutputMixin, RegressorMixin, LinearDropout):
    """Linear regression with weights that are fitted while features are dropped, in closed form.

        y_i ~ N(b + x_i' w~_i, sigma^2),  w~_id = 0 with chance f_d, else w_d,  w ~ N(0, sigma^2 / lambda0)

    The chance of dropping is not inferred from the data: the posterior is the prior times exp of the
    *expected* log-likelihood. Everything stays conjugate:

        w | sigma^2 ~ N(mu, sigma^2 Lambda^-1),   sigma^2 ~ inverse gamma,   w ~ multivariate Student t
        Lambda = lambda0 I + f (1 - f) diag(X'X) + (1 - f)^2 X'X,   mu = (1 - f) Lambda^-1 X'y

    Shrinkage is in proportion to a feature's size, so that features need not have the same scale. If all
    columns have the same norm it is ridge regression, up to the factor 1 / (1 - f).

    In the fit, inputs are on average (1 - f) times themselves, so that `predict` multiplies by 1 - f: `coef_`
    is (1 - f) mu. With an intercept, X is centred: a dropped feature is replaced by its mean.

    Args:
        f: chance of dropping a feature, in [0, 1): one number, one per feature, or "evidence", "marginal" or
            "cv" to choose one.
        lambda0: prior precision of the weights, in units of the noise precision; at least 0, or "evidence",
            "marginal" or "cv" to choose it. With 0, a feature that does not vary gets the weight 0.
        fit_intercept: whether to fit an intercept, with a flat prior and never dropped.
        solver: "primal" (Cholesky, P x P), "dual" (Cholesky, N x N), "cg" (conjugate gradients for the
            mean, and a factorisation only when it is needed), or "auto", by shape and sparsity.
        tol: relative residual at which "cg" stops.
        max_iter: most iterations of "cg"; ten times the smaller side if None.
        a0: shape of the inverse gamma prior of sigma^2; 0 with b0 = 0 is Jeffreys' prior.
        b0: its scale.

    "evidence" is the generalised evidence, in which the penalty of dropout belongs to the likelihood and has
    no normaliser: if lambda0 is chosen too, it never prefers f > 0. "marginal" includes the penalty in the
    prior, which gives an ordinary marginal likelihood. "cv" is the leave-one-out error, with the penalty of
    all rows.

    Attributes: `weights_` (mu), `coef_` ((1 - f) mu), `intercept_`, `f_`, `lambda0_`, `solver_`, `n_iter_`,
    `sigma2_shape_`, `sigma2_scale_`, `log_evidence_`, `log_marginal_`, `n_features_in_`.
    Reference: Herlau, Morup & Schmidt (2022), "Bayesian Dropout", Eqs 11 to 14.

    >>> X = np.array([[1.0, 100.0], [2.0, -300.0], [3.0, 200.0], [4.0, 0.0]])
    >>> model = BayesianDropoutRegression(f=0.1).fit(X, [1.0, 2.1, 2.9, 4.2])
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, std.shape
    ((4,), (4,))
    """

    a0: float = 0.0
    b0: float = 0.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the posterior.

        Args:
            X: (N, P), dense or sparse.
            y: (N,) or (N, M); each target has its own noise.
            sample_weight: (N,), at least 0: a row of weight 2 counts as two rows.
        """
        with told_by(_OWNER, "X", "y"):
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, y_numeric=True
            )
        weights = row_weights(_OWNER, sample_weight, X)
        self._check_numbers()
        criterion = criterion_of(self.f, self.lambda0, _OWNER)
        f = None if isinstance(self.f, str) else drop_rates(self.f, X.shape[1], _OWNER)
        lambda0 = None if isinstance(self.lambda0, str) else prior_precision(self.lambda0, _OWNER)
        y = y.astype(np.float64, copy=False)
        check_scale(_OWNER, "X", X)
        check_scale(_OWNER, "y", y.reshape(len(y), -1))
        problem = LinearProblem(
            X,
            y[:, None] if y.ndim == 1 else y,
            weights,
            intercept=bool(self.fit_intercept),
            a0=self.a0,
            b0=self.b0,
            owner=_OWNER,
        )
        if criterion is not None:
            f, lambda0, _ = choose(problem, f, lambda0, criterion)
        assert f is not None
        assert lambda0 is not None
        self.solver_ = problem.solver(self.solver, f, lambda0)
        self.posterior_, iterated = problem.fit(
            f, lambda0, self.solver_, tol=self.tol, max_iter=self.max_iter
        )
        self.n_iter_ = 1 if iterated is None else max(1, iterated.iterations)
        self.f_ = float(f[0]) if np.all(f == f[0]) else f
        self.lambda0_ = lambda0
        self._one = y.ndim == 1
        self._mean = problem.mean
        self._set_weights(f)
        return self

    def _check_numbers(self) -> None:
        must_be_flag(_OWNER, fit_intercept=self.fit_intercept)
        check_iteration(_OWNER, self.tol, self.max_iter)
        for name, value in (("a0", self.a0), ("b0", self.b0)):
            real_number(_OWNER, name, value, "a number of at least 0", at_least=0)

    def _set_weights(self, f: Array) -> None:
        posterior = self.posterior_
        weights = np.zeros((len(f), posterior.mean.shape[1]))
        weights[posterior.active] = posterior.mean
        coef = (1 - f)[:, None] * weights
        intercept = posterior.centre - (0.0 if self._mean is None else self._mean @ coef)
        self.weights_ = weights[:, 0] if self._one else weights.T
        self.coef_ = coef[:, 0] if self._one else coef.T
        self.intercept_ = float(intercept[0]) if self._one else intercept
        self.sigma2_shape_ = posterior.shape
        self.sigma2_scale_ = float(posterior.scale[0]) if self._one else posterior.scale

    # the posterior

    @property
    def log_evidence_(self) -> float:
        """Generalised log evidence, summed over targets; computed when it is read, by a factorisation."""
        check_is_fitted(self)
        posterior: Posterior = self.posterior_
        return posterior.log_evidence()

    @property
    def log_marginal_(self) -> float:
        """Log marginal likelihood with the dropout penalty as a part of the prior, summed over targets."""
        check_is_fitted(self)
        posterior: Posterior = self.posterior_
        return posterior.log_evidence(penalty_in_prior=True)

    def noise_posterior(self) -> Any:
        """The posterior of sigma^2, a frozen `scipy.stats.invgamma`; with several targets, of arrays (M,)."""
        check_is_fitted(self)
        return scipy.stats.invgamma(self.sigma2_shape_, scale=self.sigma2_scale_)

    def covariance(self, kind: Literal["full", "diagonal", "low-rank"] = "full") -> Array | LowRankCovariance:
        """Posterior covariance of the weights: E[sigma^2] Lambda^-1.

        Args:
            kind: "full" (P, P); "diagonal" (P,), the variances; "low-rank", an object that multiplies by it
                without ever forming it, for many more features than rows. With several targets there is a
                first axis M.
        """
        check_is_fitted(self)
        if not is_one_of(kind, ("full", "diagonal", "low-rank")):
            raise ValueError(must(f"{_OWNER}.covariance", "kind", "'full', 'diagonal' or 'low-rank'", kind))
        posterior: Posterior = self.posterior_
        return posterior.covariance(kind, one_target=self._one)

    def sample_posterior(
        self, num_draws: int = 100, *, seed: int | np.random.Generator = 0
    ) -> PosteriorDraws:
        """Independent draws of weights, intercept and noise variance from their joint posterior."""
        check_is_fitted(self)
        owner = f"{_OWNER}.sample_posterior"
        num_draws = whole_number(owner, "num_draws", num_draws, at_least=1)
        if not isinstance(seed, np.random.Generator):
            seed = whole_seed(owner, seed)
        posterior: Posterior = self.posterior_
        weights, sigma2, intercept = posterior.sample(num_draws, np.random.default_rng(seed))
        if self._mean is not None:
            keep = 1 - np.broadcast_to(self.f_, len(self._mean))
            intercept -= np.einsum("p,tpm->tm", self._mean * keep, weights)
        if self._one:
            return PosteriorDraws(weights[..., 0], intercept[..., 0], sigma2[..., 0])
        return PosteriorDraws(weights, intercept, sigma2)

    # predictions

    def predict(self, X: Any, return_std: bool = False, *, predictive: Predictive = "scaled") -> Any:
        """Predictive mean, and with `return_std` the standard deviation.

            scaled      y* ~ Student t, mean b + (1 - f) x'mu: for complete new rows
            dropped     new rows are dropped too: same mean, f (1 - f) sum_d x_d^2 E[w_d^2] more variance
            undropped   y* ~ Student t, mean b + x'mu, without the factor 1 - f

        With n degrees of freedom (n - 1 with an intercept) and squared scale
        (R/n) (1 + a' Lambda^-1 a), a = (1 - f) x or x. The variance of a t with 2 or less is infinite.

        Args:
            X: (N, P).
            return_std: whether to return (mean, std).
            predictive: which of the three.

        Returns: (N,) or (N, M).
        """
        must_be_flag(_OWNER, return_std=return_std)
        X = self._checked(X, predictive)
        mean = self._location(X, predictive)
        if not return_std:
            return mean
        c, extra = self._spread(X, predictive)
        with np.errstate(invalid="ignore"):
            variance = np.multiply.outer(c, self.posterior_.noise_variance) + extra
        std = np.sqrt(variance)
        return mean, (std[:, 0] if self._one else std)

    def predict_interval(
        self, X: Any, level: float = 0.9, *, predictive: Predictive = "scaled"
    ) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval that contains a new target with probability `level`.

        Exact Student t quantiles for "scaled" and "undropped". A "dropped" prediction is a mixture over all
        masks; its interval is that of a t with the same degrees of freedom and the mixture's variance.

        Returns: two arrays, (N,) or (N, M).
        """
        level = real_number(f"{_OWNER}.predict_interval", "level", level, "in (0, 1)", above=0, below=1)
        mean, scale, freedom = self.predict_student(X, predictive=predictive)
        half = scipy.stats.t.ppf(0.5 + 0.5 * level, freedom) * scale
        return mean - half, mean + half

    def predict_student(self, X: Any, *, predictive: Predictive = "scaled") -> tuple[Array, Array, float]:
        """The predictive Student t: location and scale, (N,) or (N, M), and degrees of freedom.

        Exact for "scaled" and "undropped"; for "dropped" the t with the variance of the mixture.
        """
        X = self._checked(X, predictive)
        posterior: Posterior = self.posterior_
        freedom = 2 * posterior.shape
        c, extra = self._spread(X, predictive)
        squared = np.multiply.outer(c, posterior.scale / posterior.shape)
        if predictive == "dropped":
            if freedom <= 2:
                got = f"{freedom:g} degrees of freedom"
                raise ValueError(must(_OWNER, "rows", "enough for a finite variance", got))
            squared = squared + extra * (freedom - 2) / freedom
        scale = np.sqrt(squared)
        return self._location(X, predictive), scale[:, 0] if self._one else scale, freedom

    def _checked(self, X: Any, predictive: str) -> Any:
        check_is_fitted(self)
        if not is_one_of(predictive, ("scaled", "dropped", "undropped")):
            requirement = "'scaled', 'dropped' or 'undropped'"
            raise ValueError(must(f"{_OWNER}.predict", "predictive", requirement, predictive))
        with told_by(_OWNER, "X"):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        check_scale(_OWNER, "X", X, smallest=False)
        return X

    def _location(self, X: Any, predictive: str) -> Array:
        coef, intercept = self.coef_, self.intercept_
        if predictive == "undropped":
            coef = self.weights_
            if self._mean is not None:
                intercept = self.posterior_.centre - coef @ self._mean
                intercept = intercept[0] if self._one else intercept
        return np.asarray(X @ coef.T + intercept)

    def _spread(self, X: Any, predictive: Predictive) -> tuple[Array, Array]:
        posterior: Posterior = self.posterior_
        rows = Rows(X, mean=self._mean)
        if not posterior.active.all():
            rows = rows.take(posterior.active)
        return posterior.spread(rows, predictive)
