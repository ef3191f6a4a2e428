"""Blocks of rows of one size: the numbers of a row do not depend, to the last bit, on its neighbours.

A product of matrices adds up in an order that depends on the shapes, so that the same row can come out with
another last bit in a batch of another size. Where every product has the same shape that cannot be: rows are
taken `BLOCK_ROWS` at a time, and the last block is filled with copies of rows, which are dropped again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BLOCK_ROWS", "filled", "with_aligned_rows"]

#: rows of a block: 2^6 * 3 * 5, a multiple of the rows that kernels of matrix products take at a time, so
#: that no row is at an end which is computed in another way
BLOCK_ROWS = 960
#: numbers that a kernel may take at a time from wherever a row begins in memory
_ALIGNED = 4


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


def with_aligned_rows(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both with columns of zeros up to a multiple of four, so that rows begin at such places in memory.

    On processors that Intel has not made, MKL adds up the terms of a narrow product in an order that depends
    on where a row begins.

    Args:
        x: (..., N, K), rows.
        weight: (..., J, K), what they are multiplied by.
    """
    lacking = -x.shape[-1] % _ALIGNED
    return (F.pad(x, (0, lacking)), F.pad(weight, (0, lacking))) if lacking else (x, weight)
