"""Blocks of rows of one size: the numbers of a row do not depend, to the last bit, on its neighbours.

A product of matrices adds up in an order that depends on the shapes, so that the same row can come out with
another last bit in a batch of another size. Where every product has the same shape that cannot be: rows are
taken `BLOCK_ROWS` at a time, and the last block is filled with copies of rows, which are dropped again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK_ROWS", "filled"]

#: rows of a block: 2^6 * 3 * 5, a multiple of the rows that kernels of matrix products take at a time, so
#: that no row is at an end which is computed in another way
BLOCK_ROWS = 960


def filled(x: NDArray[Any]) -> NDArray[Any]:
    """The rows, and copies of them up to a multiple of `BLOCK_ROWS`; zeros where there is no row at all.

    Args:
        x: (N, ...).

    >>> filled(np.arange(3)).shape
    (960,)
    """
    lacking = -len(x) % BLOCK_ROWS if len(x) else BLOCK_ROWS
    if not lacking:
        return x
    if not len(x):
        return np.zeros((BLOCK_ROWS, *x.shape[1:]), dtype=x.dtype)
    return np.concatenate([x, x[np.arange(lacking) % len(x)]])
