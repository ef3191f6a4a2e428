"""Mean ranks over tables, with what resampling the tables says about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MeanRank", "mean_ranks", "ranks"]

_RESAMPLES = 10_000


@dataclass(frozen=True)
class MeanRank:
    """A contender's mean rank over tables.

    Attributes:
        mean: 1 is best.
        low: 2.5 % quantile over resampled tables.
        high: 97.5 % quantile.
        first: share of resamplings in which no other has a lower mean rank.
        tables: how many.
    """

    mean: float
    low: float
    high: float
    first: float
    tables: int


def ranks(values: Sequence[float | None], better: int) -> NDArray[np.float64]:
    """Ranks of values, from 1 for the best; equal values share the mean of their ranks.

    >>> ranks([0.5, None, 0.7, 0.5], 1).tolist()
    [2.5, 4.0, 1.0, 2.5]

    Args:
        values: None is behind all others.
        better: 1 if higher values are better, -1 if lower ones are.
    """
    score = np.array([-math.inf if value is None else better * value for value in values])
    above = (score[:, None] < score).sum(1)
    equal = (score[:, None] == score).sum(1)
    shared: NDArray[np.float64] = above + 0.5 * (equal + 1)
    return shared


def mean_ranks(table: Mapping[str, Sequence[float | None]], better: int) -> dict[str, MeanRank]:
    """Mean ranks by contender.

    Args:
        table: values by contender, one for each table, in one order; None where the contender failed.
        better: 1 if higher values are better, -1 if lower ones are.
    """
    names = list(table)
    rows = list(zip(*table.values(), strict=True))
    if not rows:
        return {}
    each = np.array([ranks(row, better) for row in rows])
    chosen = np.random.default_rng(0).integers(len(rows), size=(_RESAMPLES, len(rows)))
    means = each[chosen].mean(1)
    first = (means <= means.min(1, keepdims=True) + 1e-12).mean(0)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {
        name: MeanRank(
            float(each[:, place].mean()),
            float(low[place]),
            float(high[place]),
            float(first[place]),
            len(rows),
        )
        for place, name in enumerate(names)
    }
