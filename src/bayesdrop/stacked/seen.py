"""Seen: the range of values that a network has learned from, and how far beyond it one may go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import must

__all__ = ["Seen"]

Array = NDArray[np.float64]

#: the share of a column's values that is cut off at each end before its width is measured
_TAIL = 0.01
#: the widest numbers that still leave room for sums
_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Seen:
    """Least and largest value of every column, and a margin beyond them.

    The margin is the distance between the column's 1 % and 99 % quantiles (its whole range where these are
    equal), so that one stray value does not widen it. A value is *outside* when it lies beyond the margin.
    On held-out rows of tables that we have tried this happens to 0 to 2 rows in 1,000.

    Beyond the margin nothing was learned, and the output of a network only grows. `bounded` puts such
    values at the margin's end; all others stay as they are.

    Attributes:
        low: (D,) the least values.
        high: (D,) the largest values.
        margin: (D,) how far beyond them a value may lie.
    """

    low: Array
    high: Array
    margin: Array

    @staticmethod
    def of(x: Array) -> Seen:
        """The range of a table.

        Args:
            x: (N, D) finite numbers, N at least 1.
        """
        low, high = x.min(0), x.max(0)
        margin = np.empty(x.shape[1])
        # Column by column: quantiles sort a copy of what they are given.
        for column in range(x.shape[1]):
            # Halves, since the ends of a column may lie farther apart than the largest number.
            first, last = np.quantile(0.5 * x[:, column], [_TAIL, 1 - _TAIL])
            width = last - first if last > first else 0.5 * high[column] - 0.5 * low[column]
            margin[column] = 2 * min(width, _LARGEST)
        return Seen(low, high, margin)

    @property
    def least(self) -> Array:
        """(D,) the least value that is not outside."""
        return np.maximum(self.low - self.margin, np.minimum(self.low, -_LARGEST))

    @property
    def most(self) -> Array:
        """(D,) the largest value that is not outside."""
        return np.minimum(self.high + self.margin, np.maximum(self.high, _LARGEST))

    def outside(self, x: Array) -> NDArray[np.bool_]:
        """(N, D) which values lie beyond the margin; NaN does too."""
        if x.ndim != 2 or x.shape[1] != len(self.low):
            raise ValueError(must("Seen", "x", f"of shape (N, {len(self.low)})", x.shape))
        inside: NDArray[np.bool_] = (x >= self.least) & (x <= self.most)
        return ~inside

    def bounded(self, x: Array) -> Array:
        """(N, D) with values that are outside put at the margin's end."""
        value: Array = np.clip(x, self.least, self.most)
        return value

    def joined(self, other: Seen) -> Seen:
        """The range of two tables together, with the larger margin."""
        return Seen(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.maximum(self.margin, other.margin),
        )
