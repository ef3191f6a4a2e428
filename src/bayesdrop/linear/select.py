"""Choosing f and lambda0: a grid on which the problem reuses its matrices, then a local search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit

from bayesdrop.linear.problem import LinearProblem
from bayesdrop.linear.rates import Criterion
from bayesdrop.linear.rows import Array

__all__ = ["Choice", "choose"]

RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DECADES = np.arange(-6.0, 4.0)  # of lambda0 over the mean square norm of a column
_REFINEMENTS = 40


class Choice(NamedTuple):
    """The pair that a criterion chose."""

    f: Array  #: (P,)
    lambda0: float
    score: float  #: higher is better


def choose(problem: LinearProblem, f: Array | None, lambda0: float | None, criterion: Criterion) -> Choice:
    """The best f (one for all features) or lambda0, or both, by a criterion.

    Args:
        problem: the data.
        f: drop rates (P,); None to choose one.
        lambda0: None to choose it.
        criterion: see `LinearProblem.score`.
    """
    width = problem.rows.shape[1]
    rows, columns = problem.rows.shape
    how = "dual" if columns > rows else "primal"
    tried: dict[tuple[float, float], float] = {}

    def score(rate: float, prior: float) -> float:
        key = (rate, prior)
        if key not in tried:
            rates = np.full(width, rate) if f is None else f
            singular = prior == 0 and bool(np.any(rates == 0))
            posterior, _ = problem.fit(rates, prior, "primal" if singular else how)
            tried[key] = problem.score(posterior, criterion)
        return tried[key]

    scale = float(np.mean(problem.squares)) or 1.0
    for rate, prior in _grid(scale, f is None, lambda0):
        score(rate, prior)
    best = max(tried, key=lambda key: tried[key])
    best = _refined(best, score, f is None and best[0] > 0, lambda0 is None, tried)
    rates = np.full(width, best[0]) if f is None else f
    return Choice(rates, best[1], tried[best])


def _grid(scale: float, free_f: bool, lambda0: float | None) -> Iterator[tuple[float, float]]:
    """Pairs (f, lambda0), in an order in which the next one can reuse matrices of the last one."""
    if free_f and lambda0 is not None:
        if lambda0 > 0:
            yield 0.0, lambda0
        yield from ((rate, lambda0) for rate in RATES)
        return
    yield from ((0.0, scale * 10.0**decade) for decade in DECADES)
    if not free_f:
        return
    for decade in DECADES:
        # The same lambda0 / (f (1 - f)) for all f: one kernel.
        yield from ((rate, rate * (1 - rate) * scale * 10.0**decade) for rate in RATES)


def _refined(
    best: tuple[float, float],
    score: Callable[[float, float], float],
    free_f: bool,
    free_lambda0: bool,
    tried: dict[tuple[float, float], float],
) -> tuple[float, float]:
    """A local search around the best pair of the grid, with rates as logits and priors as logarithms."""
    names = [name for name, free in (("f", free_f), ("lambda0", free_lambda0)) if free]
    start = np.array([float(logit(best[0])) if name == "f" else float(np.log(best[1])) for name in names])

    def loss(point: Array) -> float:
        values = dict(zip(names, np.atleast_1d(point), strict=True))
        rate = min(float(expit(values["f"])), 1 - 1e-9) if "f" in values else best[0]
        prior = float(np.exp(values["lambda0"])) if "lambda0" in values else best[1]
        return -score(rate, prior)

    if len(names) == 1:
        # A decade to either side: the neighbours on the grid.
        bounds = (start[0] - np.log(10), start[0] + np.log(10))
        minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    elif names:
        simplex = np.vstack([start, *(start + 0.7 * np.eye(2))])
        options = {"maxfev": _REFINEMENTS, "initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-9}
        minimize(loss, start, method="Nelder-Mead", options=options)
    return max(tried, key=lambda key: tried[key])
