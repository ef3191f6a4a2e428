"""What a model is called with: a tensor, a tuple (positional) or a mapping (keywords) of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import must

__all__ = [
    "Inputs",
    "arguments",
    "batch_rows",
    "call",
    "each_part",
    "is_batch",
    "iterate_rows",
    "num_rows",
    "take_rows",
    "to_device",
]

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


def is_batch(x: Any) -> bool:
    """True for one batch of inputs, false for an iterable of batches."""
    if isinstance(x, Tensor | np.ndarray | Mapping):
        return True
    return isinstance(x, tuple) and len(x) > 0 and all(isinstance(part, Tensor | np.ndarray) for part in x)


def arguments(x: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a model is called with, by the type of `x`: positional and keyword arguments."""
    if isinstance(x, Mapping):
        return (), dict(x)
    return (tuple(x) if isinstance(x, tuple | list) else (x,)), {}


def call(model: nn.Module, x: Inputs) -> Any:
    """`model(x)`, `model(*x)` or `model(**x)`, by the type of `x`."""
    args, kwargs = arguments(x)
    return model(*args, **kwargs)


def _tensors(x: Inputs) -> Iterator[Tensor]:
    parts = (x,) if isinstance(x, Tensor) else x.values() if isinstance(x, Mapping) else x
    return (part for part in parts if isinstance(part, Tensor))


def num_rows(x: Inputs, owner: str = "predict") -> int:
    """The length of axis 0, which all tensors of `x` must share."""
    sizes = {tensor.shape[0] for tensor in _tensors(x) if tensor.dim() > 0}
    if len(sizes) != 1:
        raise ValueError(must(owner, "x", "tensors with one common number of rows", sorted(sizes)))
    return sizes.pop()


def take_rows(x: Inputs, rows: slice | Tensor) -> Inputs:
    """The given rows of every tensor in `x`; scalars and other objects are passed on."""

    def take(part: Any) -> Any:
        return part[rows] if isinstance(part, Tensor) and part.dim() > 0 else part

    return each_part(take, x) if isinstance(x, Mapping | tuple | list) else x[rows]


def each_part(function: Callable[[Any], Any], x: Inputs) -> Inputs:
    """A function of the tensor, or of every part of the tuple or mapping that a model is called with."""
    if isinstance(x, Mapping):
        return {name: function(part) for name, part in x.items()}
    if isinstance(x, tuple | list):
        return tuple(function(part) for part in x)
    value: Tensor = function(x)
    return value


def iterate_rows(x: Inputs, batch_size: int | None) -> Iterator[Inputs]:
    """Consecutive batches of at most `batch_size` rows; one batch if that is None."""
    if batch_size is None:
        yield x
        return
    for start in range(0, num_rows(x), batch_size):
        yield take_rows(x, slice(start, start + batch_size))


def to_device(x: Inputs, device: torch.device) -> Inputs:
    """Every tensor of `x` on `device`."""

    def move(part: Any) -> Any:
        return part.to(device) if isinstance(part, Tensor) else part

    return each_part(move, x) if isinstance(x, Mapping | tuple | list) else x.to(device)


def batch_rows(arguments: Any) -> int | None:
    """Rows of the batch that a model is called with; None if its tensors do not agree."""
    sizes = {tensor.shape[0] for tensor in _nested(arguments) if tensor.dim() > 0}
    return sizes.pop() if len(sizes) == 1 else None


def _nested(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _nested(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _nested(part)
