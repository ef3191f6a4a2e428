"""Which choices come later: the last of all, and the last of each user."""

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
    # What was chosen at the moment of a cut is after it, all of it.
    cuts = [order[int(len(order) * share)] for share in (1 - validation - test, 1 - test)]
    return np.searchsorted(cuts, times, side="right")


def later_of_each(
    times: NDArray[np.float64], sizes: NDArray[np.int64], validation: float, test: float
) -> NDArray[np.int64]:
    """(n,) 0 for choices to train on, 1 to validate and 2 to test: the last ones of every user.

    Args:
        times: (n,) of the choices of one user after those of another.
        sizes: (U,) how many each user has.
        validation: share of a user's choices, rounded down, but one at the least.
        test: likewise.
    """
    rows = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.repeat(np.cumsum(sizes), sizes)
    # How many of a user's choices come after each.
    after = np.empty(len(rows), dtype=np.int64)
    after[np.lexsort((times, rows))] = ends - 1 - np.arange(len(rows))
    tested, validated = (np.maximum(1, (share * sizes).astype(np.int64)) for share in (test, validation))
    return (after < tested[rows]).astype(np.int64) + (after < (tested + validated)[rows])
