"""Splits of choices by time: the last of all choices, or the last of each user."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["later_of_all", "later_of_each"]


def later_of_all(times: NDArray[np.float64], validation: float, test: float) -> NDArray[np.int64]:
    """(n,) 0 for choices to train on, 1 to validate and 2 to test: cut at two moments for everybody.

    Args:
        times: (n,).
        validation: share of choices.
        test: share of choices.
    """
    order = np.sort(times)
    # Choices at the very moment of a cut count as after it.
    cuts = [order[int(len(order) * share)] for share in (1 - validation - test, 1 - test)]
    return np.searchsorted(cuts, times, side="right")


def later_of_each(
    times: NDArray[np.float64], sizes: NDArray[np.int64], validation: float, test: float
) -> NDArray[np.int64]:
    """(n,) 0 for choices to train on, 1 to validate and 2 to test: the last ones of every user.

    Args:
        times: (n,) of the choices, ordered by user.
        sizes: (U,) how many each user has.
        validation: share of a user's choices, rounded down, but at least one.
        test: likewise.
    """
    rows = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.repeat(np.cumsum(sizes), sizes)
    # For each choice, how many choices of the same user come after it.
    after = np.empty(len(rows), dtype=np.int64)
    after[np.lexsort((times, rows))] = ends - 1 - np.arange(len(rows))
    tested, validated = (np.maximum(1, (share * sizes).astype(np.int64)) for share in (test, validation))
    return (after < tested[rows]).astype(np.int64) + (after < (tested + validated)[rows])
