"""Held-out rows for `inject`, as batches with their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_finite
from bayesdrop.inputs import InputBatch, InputBatches, Items, as_tensors, is_batch, num_rows

__all__ = ["held_out_batches"]


def held_out_batches(
    model: nn.Module, data: Any, target: str, batch_size: int, items: Items | None
) -> list[InputBatch]:
    """The held-out rows, with their targets where these are needed.

    Args:
        model: that is called with them.
        data: see `inject`.
        target: see `inject`; "information" needs no targets.
        batch_size: rows of a batch, where `data` are no batches already.
        items: see `inject`.
    """
    if target == "information":
        size = batch_size if is_batch(data) else None
        found = InputBatches(
            model, data, batch_size=size, targets=None, items=items, scored=False, owner="inject"
        )
        batches = list(found)
    else:
        pair = isinstance(data, tuple | list) and len(data) == 2 and is_batch(data[0])
        if pair and isinstance(data[1], Tensor | np.ndarray):
            y = torch.as_tensor(np.array(data[1]) if isinstance(data[1], np.ndarray) else data[1])
            rows = num_rows(as_tensors(data[0], None, "inject"), "inject")
            if rows != len(y):
                want = f"a pair (x, y) with as many targets as rows, {rows}"
                raise ValueError(must("inject", "data", want, len(y)))
            found = InputBatches(
                model, data[0], batch_size=batch_size, targets=y, items=None, scored=True, owner="inject"
            )
        elif is_batch(data):
            want = "a pair (x, y) of held-out rows, or batches of them"
            hint = "Without targets there is target='information'."
            raise TypeError(must("inject", "data", want, type(data), hint))
        else:
            found = InputBatches(
                model, data, batch_size=None, targets=None, items="pairs", scored=True, owner="inject"
            )
        batches = list(found)
        for batch in batches:
            if batch.targets is None:
                raise TypeError(must("inject", "data", "pairs (x, y)", "a batch without y"))
            must_be_finite("inject", "data", batch.targets)
    if not batches:
        raise ValueError(must("inject", "data", "at least one batch", "none"))
    return batches
