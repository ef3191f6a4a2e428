"""What a model is called with, batch by batch: a tensor, a tuple (positional) or a mapping (keywords)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must
from bayesdrop.randomness import OwnNumbers

__all__ = [
    "InputBatches",
    "Inputs",
    "Items",
    "NotFinite",
    "arguments",
    "as_tensors",
    "batch_rows",
    "call",
    "each_part",
    "is_batch",
    "iterate_rows",
    "mapped",
    "num_rows",
    "structure_of",
    "take_rows",
    "tensors_in",
    "to_device",
]

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


def is_batch(x: Any) -> bool:
    """True for one batch of inputs, false for an iterable of batches."""
    if isinstance(x, Tensor | np.ndarray | Mapping):
        return True
    return isinstance(x, tuple) and len(x) > 0 and all(isinstance(part, Tensor | np.ndarray) for part in x)


def arguments(x: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments that a model is called with, by the type of `x`."""
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
    """`function` applied to the tensor, or to every part of a tuple or mapping."""
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
    sizes = {tensor.shape[0] for tensor in tensors_in(arguments) if tensor.dim() > 0}
    return sizes.pop() if len(sizes) == 1 else None


# Nested lists, tuples, mappings and slices. torch.utils._pytree does not look into slices, and into mappings
# of other classes only where these are registered.


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in a nested value."""
    found: list[Tensor] = []
    _collect(value, found)
    return found


_ATOMS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size})
# A tuple of classes: a union would be made anew for every value.
_SEQUENCES = (tuple, list)


def _collect(value: Any, found: list[Tensor]) -> None:
    if type(value) in _ATOMS:
        return
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, _SEQUENCES):
        for part in value:
            if type(part) not in _ATOMS:
                _collect(part, found)
    elif isinstance(value, Mapping):
        for part in value.values():
            _collect(part, found)
    elif isinstance(value, slice):
        _collect((value.start, value.stop, value.step), found)


def mapped(value: Any, kind: Any, change: Callable[[Any], Any]) -> Any:
    """The same lists, tuples and dictionaries with every part of class `kind` replaced by `change(part)`."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        parts = [mapped(part, kind, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [mapped(part, kind, change) for part in value]
    if isinstance(value, dict):
        parts_of = {name: mapped(part, kind, change) for name, part in value.items()}
        return parts_of if type(value) is dict else type(value)(**parts_of)
    return value


def structure_of(value: Any) -> Any:
    """What two inputs of one kind have in common, whatever their rows: types, names, dtypes, row shapes."""
    if isinstance(value, Tensor):
        return (value.dtype, tuple(value.shape[1:]))
    if isinstance(value, tuple | list):
        return (type(value), *(structure_of(part) for part in value))
    if isinstance(value, Mapping):
        return (type(value), *((name, structure_of(part)) for name, part in value.items()))
    return value if isinstance(value, bool | int | float | str) or value is None else type(value)


#: what the batches of a loader are: (x, y) pairs, or inputs of the model alone
Items = Literal["pairs", "inputs"]


class NotFinite(UserWarning):
    """An input or an output holds NaN or infinity."""


class InputBatch(NamedTuple):
    """Some rows, on the model's device, and their targets if there are any."""

    inputs: Inputs
    rows: int
    targets: Tensor | None


class InputBatches:
    """The batches that a model is called with, each on the model's device.

    Args:
        model: the model that is called.
        x: a batch, or an iterable of batches.
        batch_size: rows to take at a time, where `x` is one batch.
        targets: y of all rows.
        items: what the batches of an iterable are. None: found from their types; an error where a batch may
            be either.
        scored: whether the targets of pairs are wanted.
        owner: the function that errors name.

    Attributes:
        count: how many batches there are; None for an iterable without a length.
        device: the model's.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        *,
        batch_size: int | None,
        targets: Tensor | None,
        items: Items | None,
        scored: bool,
        owner: str = "predict",
    ) -> None:
        self._owner = owner
        if not is_one_of(items, (None, "pairs", "inputs")):
            raise ValueError(must(self._owner, "items", "'pairs', 'inputs' or None", items))
        self._model, self._items, self._scored = model, items, scored
        self.device, self._dtype = _device_of(model), _dtype_of(model)
        self._targets = targets
        self._warned = False
        self._x = x if not is_batch(x) else as_tensors(x, self._dtype, owner)
        self.count: int | None
        if is_batch(x):
            rows = num_rows(self._x, owner)
            if rows < 1:
                raise ValueError(must(self._owner, "x", "at least one row", 0))
            self.count = 1 if batch_size is None else -(-rows // batch_size)
        elif not isinstance(x, Iterable) or isinstance(x, str | bytes) or hasattr(x, "to_numpy"):
            hint = "Pass its `to_numpy()`." if hasattr(x, "to_numpy") else ""
            got = type(x) if hint else x
            want = "a tensor, an array, a tuple or mapping of such, or batches of these"
            raise TypeError(must(self._owner, "x", want, got, hint))
        elif batch_size is not None:
            hint = "Set the batch size of the loader instead."
            raise ValueError(
                must(self._owner, "batch_size", "None for an iterable of batches", batch_size, hint)
            )
        else:
            self.count = len(x) if isinstance(x, Sized) else None
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[InputBatch]:
        seen = 0
        for inputs, own in self._raw():
            rows, y = num_rows(inputs, self._owner), own
            self._look_at(inputs, seen)
            if self._targets is not None:
                y = self._targets[seen : seen + rows]
                if y.shape[0] != rows:
                    raise ValueError(
                        must(self._owner, "targets", "as many rows as `x`", tuple(self._targets.shape))
                    )
            if y is not None and (y.dim() < 1 or y.shape[0] != rows):
                raise ValueError(
                    must(self._owner, "x", f"pairs with {rows} rows of y, as of x", tuple(y.shape))
                )
            yield InputBatch(to_device(inputs, self.device), rows, None if y is None else y.to(self.device))
            seen += rows

    def _raw(self) -> Iterator[tuple[Inputs, Tensor | None]]:
        if is_batch(self._x):
            for part in iterate_rows(self._x, self._batch_size):
                yield part, None
            return
        for item in _fetched(self._x):
            inputs, y = self._split(item)
            yield as_tensors(inputs, self._dtype, self._owner), y if self._scored else None

    def _split(self, item: Any) -> tuple[Any, Tensor | None]:
        """The inputs and the targets of what a loader gave."""
        parts = item if isinstance(item, tuple | list) else (item,)
        if not parts or not all(_is_input(part) for part in parts):
            want = "batches of tensors, arrays, or tuples or mappings of such"
            got = [type(part).__name__ for part in parts] if isinstance(item, tuple | list) else type(item)
            raise TypeError(must(self._owner, "x", want, got))
        if len(parts) == 1:
            return parts[0], None
        is_pair = len(parts) == 2 and isinstance(parts[1], Tensor | np.ndarray)
        if self._items == "inputs":
            return tuple(parts), None
        if self._items == "pairs" and not is_pair:
            raise TypeError(must(self._owner, "x", "batches that are pairs (x, y)", f"{len(parts)} parts"))
        if not is_pair or (self._items is None and not self._must_be_pair(parts[0])):
            name = type(self._model).__name__
            raise TypeError(
                f"{self._owner}: a batch of `x` has {len(parts)} parts, and {name}.forward takes more than "
                "one input: are they inputs, or are the last ones targets? Say items='inputs' to call the "
                "model with all of them, or items='pairs' for (x, y)."
            )
        if self._targets is not None:
            raise ValueError(
                must(self._owner, "targets", "None where batches of `x` bring their own", "a tensor")
            )
        return parts[0], torch.as_tensor(parts[1])

    def _must_be_pair(self, first: Any) -> bool:
        """Whether two parts can only be (x, y): x is many inputs already, or the model takes one."""
        if not isinstance(first, Tensor | np.ndarray):
            return True
        try:
            parameters = inspect.signature(self._model.forward).parameters.values()
        except (TypeError, ValueError):
            return False
        kinds = [parameter.kind for parameter in parameters]
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(kind in by_place for kind in kinds) == 1 and inspect.Parameter.VAR_POSITIONAL not in kinds

    def _look_at(self, inputs: Inputs, first: int) -> None:
        """Warn once of inputs that are not finite: few models want them (as a mask of -inf)."""
        if self._warned:
            return
        for name, tensor in _named(inputs):
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                self._warned = True
                bad = ~torch.isfinite(tensor)
                row = first + int(bad.reshape(bad.shape[0], -1).any(1).nonzero()[0]) if bad.dim() else first
                warnings.warn(
                    f"{self._owner}: {int(bad.sum())} of {tensor.numel()} values of {name} are NaN or "
                    f"infinite, the first in row {row}. What the model makes of them is not checked.",
                    NotFinite,
                    stacklevel=4,
                )


def as_tensors(x: Any, dtype: torch.dtype | None, owner: str = "predict") -> Any:
    """The same inputs with arrays turned into tensors; floating-point ones get the model's precision."""
    if isinstance(x, Mapping):
        return {name: as_tensors(part, dtype, owner) for name, part in x.items()}
    if isinstance(x, tuple | list):
        return tuple(as_tensors(part, dtype, owner) for part in x)
    if not isinstance(x, np.ndarray):
        return x
    if x.dtype.kind not in "fiub":
        raise TypeError(must(owner, "x", "arrays of numbers", f"one of {x.dtype}"))
    tensor = torch.from_numpy(np.array(x, dtype=x.dtype.newbyteorder("=")))
    return tensor.to(dtype) if tensor.is_floating_point() and dtype is not None else tensor


def _is_input(part: Any) -> bool:
    if isinstance(part, tuple | list):
        return bool(part) and all(isinstance(value, Tensor | np.ndarray) for value in part)
    return isinstance(part, Tensor | np.ndarray | Mapping)


def _fetched(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader; if it draws random numbers, the global generators stay as they were."""
    numbers = OwnNumbers()
    with numbers.drawing():
        batches = iter(loader)
    while True:
        with numbers.drawing():
            try:
                batch = next(batches)
            except StopIteration:
                return
        yield batch


def _named(inputs: Inputs) -> list[tuple[str, Tensor]]:
    if isinstance(inputs, Tensor):
        return [("`x`", inputs)]
    items = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return [(f"`x[{name!r}]`", part) for name, part in items if isinstance(part, Tensor)]


def _device_of(model: nn.Module) -> torch.device:
    """Where the first parameter is, or else the first buffer."""
    # Read from the dictionaries: `parameters()` takes ten times as long to find the first.
    for module in model.modules():
        for parameter in vars(module).get("_parameters", {}).values():
            if parameter is not None:
                device: torch.device = parameter.device
                return device
    tensors = (*model.parameters(), *model.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def _dtype_of(model: nn.Module) -> torch.dtype | None:
    """The precision of the first floating parameter."""
    for module in model.modules():
        for parameter in vars(module).get("_parameters", {}).values():
            if parameter is not None and parameter.is_floating_point():
                dtype: torch.dtype = parameter.dtype
                return dtype
    return None
