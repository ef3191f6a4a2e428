"""Permutation importance: how much worse a model predicts rows when a column is shuffled among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import Array
from bayesdrop.tables.functions import Functions

__all__ = ["Importance", "importances", "row_losses"]

#: shuffles of a column, and rows that are shuffled, at most
_REPEATS, _MOST_ROWS = 5, 400
#: columns that are measured; if there are more, one shuffle of a few rows chooses them
_MOST_COLUMNS, _FEW_ROWS = 40, 20


@dataclass(frozen=True)
class Importance:
    """What shuffling a column costs.

    Attributes:
        place: of the column among those given.
        value: by how much R squared falls, or for classes, the log-loss rises, in nats a row.
        error: its standard error over rows.
    """

    place: int
    value: float
    error: float


def row_losses(mean: Array, y: NDArray[Any]) -> Array:
    """(N,) squared errors divided by the variance of the targets, or minus log-probabilities of labels.

    Args:
        mean: (N, 1) numbers, or (N, classes) probabilities.
        y: (N,) numbers, or places of labels.
    """
    if y.dtype.kind in "iu":
        given: Array = np.maximum(mean[np.arange(len(y)), y], 1e-15)
        return -np.log(given)
    scale = float(np.std(y)) or 1.0
    return ((y - mean[:, 0]) / scale) ** 2


def importances(
    functions: Functions,
    x: Array,
    y: NDArray[Any],
    columns: Sequence[slice],
    *,
    most_rows: int,
    seed: int = 0,
) -> list[Importance]:
    """Permutation importance of columns, the most important first.

        (1/N) sum_n [loss(y_n, x_n with the column of another row) - loss(y_n, x_n)]

    averaged over shuffles. A column that another one repeats may be used much and cost little.

    Args:
        functions: of the model: the draws are the same for all shuffles.
        x: (N, K) inputs, N at least 2; of more than 400 rows, 400 at random are taken.
        y: (N,) numbers, or places of labels.
        columns: which of the K inputs are those of every column.
        most_rows: how many rows may be predicted in all.
        seed: of the shuffles.

    Returns: one item a column; of more than 40 columns, the 40 that a first look found most important.
    """
    source = np.random.default_rng((seed, 2))
    if len(x) > _MOST_ROWS:
        taken = source.permutation(len(x))[:_MOST_ROWS]
        x, y = x[taken], y[taken]
    places = list(range(len(columns)))
    if len(columns) > _MOST_COLUMNS:
        few = min(len(x), max(2, min(_FEW_ROWS, most_rows // len(columns))))
        first = _shuffled(functions, x[:few], y[:few], columns, places, 1, source)
        places = [one.place for one in _ordered(first)[:_MOST_COLUMNS]]
    rows = max(2, min(len(x), most_rows // len(places)))
    repeats = max(1, min(_REPEATS, most_rows // (len(places) * rows)))
    return _ordered(_shuffled(functions, x[:rows], y[:rows], columns, places, repeats, source))


def _ordered(found: list[Importance]) -> list[Importance]:
    return sorted(found, key=lambda one: -one.value)


def _shuffled(
    functions: Functions,
    x: Array,
    y: NDArray[Any],
    columns: Sequence[slice],
    places: Sequence[int],
    repeats: int,
    source: np.random.Generator,
) -> list[Importance]:
    """What shuffling each of some columns costs, in the order of `places`."""
    base = row_losses(functions.parts(x).mean, y)
    found = []
    for place in places:
        changed = np.tile(x, (repeats, 1))
        for start in range(0, len(changed), len(x)):
            order = source.permutation(len(x))
            changed[start : start + len(x), columns[place]] = x[order][:, columns[place]]
        losses = row_losses(functions.parts(changed).mean, np.tile(y, repeats)).reshape(repeats, len(x))
        cost = losses.mean(0) - base
        found.append(Importance(place, float(cost.mean()), float(cost.std(ddof=1)) / math.sqrt(len(x))))
    return found
