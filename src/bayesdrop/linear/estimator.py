"""The base of regression and classification in closed form: common options, and sparse input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator

from bayesdrop.linear.rates import Criterion, Solver
from bayesdrop.linear.rows import Array

__all__ = ["LinearDropout"]


@dataclass(kw_only=True, eq=False, repr=False)
class LinearDropout(BaseEstimator):
    """See `BayesianDropoutRegression` and `BayesianDropoutClassifier`."""

    # The arguments of the constructor; scikit-learn reads them from its signature.
    f: float | Array | Criterion = 0.1
    lambda0: float | Criterion = 1e-3
    fit_intercept: bool = True
    solver: Solver = "auto"
    tol: float = 1e-6
    max_iter: int | None = None

    def __sklearn_tags__(self) -> Any:
        """Say that sparse input is accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
