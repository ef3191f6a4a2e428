"""Fits for all pairs of drop rates and priors, which reuse each other's matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_X_y

from bayesdrop.errors import must, must_be_flag, told_by
from bayesdrop.linear.problem import LinearProblem
from bayesdrop.linear.rates import Solver, check_iteration, drop_rates, prior_precision, row_weights
from bayesdrop.linear.rows import Array
from bayesdrop.scale import check_scale

__all__ = ["DropoutPath", "dropout_path"]


@dataclass(frozen=True, eq=False)
class DropoutPath:
    """Fits for every f and lambda0 of two lists, of length F and L."""

    f: Array  #: (F,), or (F, P) for rates per feature
    lambda0: Array  #: (L,)
    weights: Array  #: mu, (F, L, P), with several targets (F, L, P, M)
    coef: Array  #: (1 - f) mu, the coefficients of predictions, of the same shape
    intercept: Array  #: (F, L) or (F, L, M)
    log_evidence: Array | None  #: (F, L); None for a path of means
    log_marginal: Array | None  #: (F, L), with the penalty in the prior
    leave_one_out_error: Array | None  #: (F, L), mean square

    def predict(self, X: Any) -> Array:
        """Predictions at new rows, (F, L, N) or (F, L, N, M)."""
        flat = self.coef.reshape(-1, *self.coef.shape[2:])
        predicted = np.stack([np.asarray(X @ coef) for coef in flat])
        predicted = predicted.reshape(*self.coef.shape[:2], *predicted.shape[1:])
        return np.asarray(predicted + np.expand_dims(self.intercept, 2))


def dropout_path(
    X: Any,
    y: Any,
    *,
    f: Sequence[Any] | Array,
    lambda0: Sequence[float] | Array,
    fit_intercept: bool = True,
    sample_weight: Any = None,
    solver: Solver = "auto",
    scores: bool = True,
    tol: float = 1e-6,
    max_iter: int | None = None,
) -> DropoutPath:
    """Posterior means for all pairs of drop rates and priors on the same data.

    X'X is made once; A D^-1 A' once for all f at lambda0 = 0 and once for all lambda0 at f = 0; conjugate
    gradients start from the neighbour's solution.

    Args:
        X: (N, P), dense or sparse.
        y: (N,) or (N, M).
        f: drop rates, F numbers, or F rows of one rate per feature.
        lambda0: L priors.
        fit_intercept: as for `BayesianDropoutRegression`.
        sample_weight: (N,).
        solver: as for `BayesianDropoutRegression`.
        scores: whether to compute evidences and leave-one-out errors, which need a factorisation: it is then
            used instead of conjugate gradients.
        tol: of conjugate gradients.
        max_iter: of conjugate gradients.

    >>> X, y = np.array([[1.0, 2.0], [2.0, -1.0], [3.0, 0.5]]), np.array([1.0, 2.0, 3.0])
    >>> path = dropout_path(X, y, f=[0.0, 0.5], lambda0=[0.1, 1.0, 10.0])
    >>> path.weights.shape
    (2, 3, 2)
    """
    owner = "dropout_path"
    must_be_flag(owner, fit_intercept=fit_intercept, scores=scores)
    check_iteration(owner, tol, max_iter)
    with told_by(owner, "X", "y"):
        X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, y_numeric=True)
    weights = row_weights(owner, sample_weight, X)
    check_scale(owner, "X", X)
    check_scale(owner, "y", y.reshape(len(y), -1))
    for name, given in (("f", f), ("lambda0", lambda0)):
        several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes)
        if not several or np.ndim(given) < 1 or not len(given):
            raise TypeError(must(owner, name, "a list of one or more numbers", given))
    one = y.ndim == 1
    problem = LinearProblem(X, y[:, None] if one else y, weights, intercept=fit_intercept, owner=owner)
    width = X.shape[1]
    rates = [drop_rates(rate, width, owner) for rate in f]
    priors = [prior_precision(prior, owner) for prior in lambda0]
    shape = (len(rates), len(priors))
    found = np.zeros((*shape, width, problem.targets.shape[1]))
    tables = np.zeros((3, *shape))
    for i, rate in enumerate(rates):
        start = None
        for j, prior in enumerate(priors):
            how = problem.solver(solver, rate, prior)
            if scores and how == "cg":
                rows, columns = problem.rows.shape
                how = "dual" if columns > rows and (prior > 0 or bool(np.all(rate > 0))) else "primal"
            posterior, fit = problem.fit(rate, prior, how, tol=tol, max_iter=max_iter, start=start)
            start = None if fit is None else fit.state
            found[i, j, posterior.active] = posterior.mean
            if scores:
                tables[:, i, j] = (
                    posterior.log_evidence(),
                    posterior.log_evidence(penalty_in_prior=True),
                    problem.leave_one_out_error(posterior),
                )
    coef = found * (1 - np.stack(rates))[:, None, :, None]
    intercept = np.broadcast_to(problem.centre, (*shape, found.shape[-1]))
    if problem.mean is not None:
        intercept = intercept - np.einsum("p,flpm->flm", problem.mean, coef)
    pick: Any = (..., 0) if one else ...
    return DropoutPath(
        f=np.asarray(f, dtype=float),
        lambda0=np.array(priors),
        weights=found[pick],
        coef=coef[pick],
        intercept=intercept[pick],
        log_evidence=tables[0] if scores else None,
        log_marginal=tables[1] if scores else None,
        leave_one_out_error=tables[2] if scores else None,
    )
