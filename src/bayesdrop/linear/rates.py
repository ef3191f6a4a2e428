"""Checks of the arguments that all estimators of this package have."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal, cast, get_args

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from bayesdrop.errors import is_one_of, must, real_number, real_numbers, told_by, whole_number
from bayesdrop.linear.rows import Array
from bayesdrop.scale import check_scale

__all__ = [
    "Criterion",
    "Solver",
    "check_iteration",
    "chosen_solver",
    "criterion_of",
    "drop_rates",
    "prior_precision",
    "row_weights",
]

Criterion = Literal["evidence", "marginal", "cv"]
Solver = Literal["auto", "primal", "dual", "cg"]
_DENSE_LIMIT = 5000  # the smaller side of a dense design up to which a factorisation is faster
_SPARSE_LIMIT = 500  # the same for a sparse design, whose products cost little


def drop_rates(f: Any, width: int, owner: str) -> Array:
    """f as one rate for each feature, (P,)."""
    hint = "f is the chance of dropping a feature."
    if isinstance(f, str | bytes | bool):
        raise ValueError(must(owner, "f", "in [0, 1), or 'evidence', 'marginal' or 'cv'", f, hint))
    rates = real_numbers(owner, "f", f, "a number or one number per feature").numpy()
    if rates.ndim > 1 or (rates.ndim == 1 and rates.shape[0] != width):
        got = f"shape {rates.shape} for {width} features"
        raise ValueError(must(owner, "f", "a number or one number per feature", got))
    if not np.all((rates >= 0) & (rates < 1)):
        bad = rates if rates.ndim == 0 else rates[~((rates >= 0) & (rates < 1))][0]
        raise ValueError(must(owner, "f", "in [0, 1)", float(bad), hint))
    return np.broadcast_to(rates, (width,)).astype(float)


def prior_precision(lambda0: Any, owner: str) -> float:
    """lambda0 as a number of at least 0."""
    hint = "Weights have the prior N(0, sigma^2 / lambda0)."
    if isinstance(lambda0, str | bool):
        requirement = "a number of at least 0, or 'evidence', 'marginal' or 'cv'"
        raise ValueError(must(owner, "lambda0", requirement, lambda0, hint))
    if not isinstance(lambda0, Real):
        raise TypeError(must(owner, "lambda0", "a number", lambda0, hint))
    value = float(lambda0)
    if not 0 <= value < np.inf:
        raise ValueError(must(owner, "lambda0", "a finite number of at least 0", lambda0, hint))
    return value


def row_weights(owner: str, sample_weight: Any, X: Any) -> Array | None:
    """The rows' weights, finite and at least 0; None for ones."""
    if sample_weight is None:
        return None
    with told_by(owner, "sample_weight"):
        weights: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not np.isfinite(weights).all():
            raise ValueError("Weights must be finite.")
    check_scale(owner, "sample_weight", weights[:, None])
    return weights


def check_iteration(owner: str, tol: Any, max_iter: Any) -> None:
    """Raise unless `tol` and `max_iter` are valid."""
    real_number(owner, "tol", tol, "a positive number", above=0)
    if max_iter is not None:
        whole_number(owner, "max_iter", max_iter, at_least=1, hint="None leaves it to the solver.")


def criterion_of(f: Any, lambda0: Any, owner: str) -> Criterion | None:
    """The criterion by which f or lambda0 is chosen; None if both are numbers."""
    named = {value for value in (f, lambda0) if isinstance(value, str)}
    unknown = named - set(get_args(Criterion))
    if unknown:
        requirement = "numbers, or 'evidence', 'marginal' or 'cv'"
        raise ValueError(must(owner, "f and lambda0", requirement, sorted(unknown)[0]))
    if len(named) > 1:
        raise ValueError(must(owner, "f and lambda0", "chosen by one criterion", sorted(named)))
    return cast(Criterion, named.pop()) if named else None


def chosen_solver(solver: Any, shape: tuple[int, int], sparse: bool, penalised: bool, owner: str) -> str:
    """How a mean is found: "primal", "dual" or "cg".

    `auto` factorises the smaller of the two systems, and iterates where that one is large: above 500 rows
    and features for sparse designs, whose products cost little, above 5,000 for dense ones.

    Args:
        solver: the user's argument.
        shape: rows and columns.
        sparse: whether the design is sparse.
        penalised: whether D > 0 for all features, which the dual form needs.
        owner: the name in errors.
    """
    if not is_one_of(solver, get_args(Solver)):
        raise ValueError(must(owner, "solver", f"one of {', '.join(get_args(Solver))}", solver))
    if solver != "auto":
        return str(solver)
    rows, columns = shape
    if min(rows, columns) > (_SPARSE_LIMIT if sparse else _DENSE_LIMIT):
        return "cg"
    return "dual" if columns > rows and penalised else "primal"
