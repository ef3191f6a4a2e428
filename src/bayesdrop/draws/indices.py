"""Which functions of a sequence a draw holds, and the groups of rows that go through several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from bayesdrop.draws.passes import tensors_in
from bayesdrop.errors import must, whole_number
from bayesdrop.inputs import batch_rows

__all__ = ["cannot_group", "check_batch", "draw_indices", "rows_in_group"]


def draw_indices(owner: str, index: Any, *, several: bool) -> int | tuple[int, ...]:
    """Which functions: a whole number, or some of them.

    Args:
        owner: who asks.
        index: what was given.
        several: whether more than one are allowed.
    """
    if several and isinstance(index, Sequence | np.ndarray | Tensor) and not isinstance(index, str | bytes):
        parts = index.tolist() if isinstance(index, np.ndarray | Tensor) else list(index)
        if not isinstance(parts, list) or not parts:
            want = "an int of at least 0, or a sequence of at least one of them"
            raise ValueError(must(owner, "index", want, index))
        return tuple(whole_number(owner, "index", part, at_least=0) for part in parts)
    return whole_number(owner, "index", index, at_least=0)


def cannot_group(owner: str, count: int, why: str) -> ValueError:
    """An error: several functions cannot be held at once."""
    return ValueError(
        f"{owner}: {count} functions cannot be held at once: {why}. Open one draw for each of them instead."
    )


def rows_in_group(owner: str, rows: int | None, count: int) -> int:
    """How many rows go through each of `count` functions."""
    if rows is None:
        raise cannot_group(owner, count, "the model's inputs do not agree on a number of rows")
    if rows % count or rows == 0:
        want = f"a multiple of {count}, the number of functions"
        hint = "The batch is one group of rows after another, as torch.cat([x] * K) or x.repeat(K, 1)."
        raise ValueError(must(owner, "rows of the batch", want, rows, hint))
    return rows // count


def check_batch(owner: str, inputs: Any, count: int) -> None:
    """Raise unless a model is called with a batch that falls into `count` groups."""
    rows_in_group(owner, batch_rows(inputs), count)
    tensors = [tensor for tensor in tensors_in(inputs) if tensor.dim() > 0]
    if all(tensor.dim() == 1 and tensor.is_floating_point() for tensor in tensors):
        raise cannot_group(owner, count, "its input has one axis, which cannot be told from a single row")
