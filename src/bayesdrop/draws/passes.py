"""One pass of a model leaves nothing behind: inputs, buffers and kept tensors are as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "ESCAPES",
    "INPLACE_ARGUMENT",
    "PassState",
    "map_tensors",
    "may_keep_tensors",
    "structure_of",
    "tensors_in",
    "writes_in_place",
    "written_by",
]


class PassState:
    """What a pass of `model` may change, put back by `finish`.

    A tensor that exists before the pass (a parameter, a buffer, an input) is copied when a function is
    about to write into it. Attributes are put back in every module that keeps tensors from one pass to the
    next, as a hidden state or a cache; otherwise a draw would depend on the draws before it.

    Args:
        model: any module.
        inputs: what it is called with.
        shared: further tensors that must not change; a private copy of a model shares them with the model.
    """

    def __init__(self, model: nn.Module, inputs: Any, shared: Sequence[Tensor] = ()) -> None:
        self._model = model
        self._inputs = inputs
        self._shared = shared
        self._owners: dict[int, list[Tensor]] | None = None
        self._saved: dict[int, tuple[Tensor, Tensor]] = {}
        self._attributes = [
            (module, _simple(vars(module)), dict(module._buffers), dict(module._parameters))
            for module in model.modules()
            if may_keep_tensors(module)
        ]

    def before_write(self, target: Tensor) -> bool:
        """A function is about to change `target` in place. Whether that will be put back."""
        if self._owners is None:
            self._owners = {}
            known = [
                *self._model.parameters(),
                *self._model.buffers(),
                *tensors_in(self._inputs),
                *self._shared,
            ]
            known += [tensor for _, simple, _, _ in self._attributes for tensor in tensors_in(simple)]
            for tensor in known:
                self._owners.setdefault(memory_of(tensor), []).append(tensor)
        owners = self._owners.get(memory_of(target), ())
        for tensor in owners:
            if id(tensor) not in self._saved:
                self._saved[id(tensor)] = (tensor, tensor.detach().clone())
        return bool(owners)

    def finish(self, output: Any) -> Any:
        """Put everything back; the output, copied where it shares memory with what is put back."""
        if self._saved:
            # Out of sight of the mode that watches the model; the copy of the output is a step of the pass.
            with torch._C.DisableTorchFunction():
                touched = {memory_of(tensor) for tensor, _ in self._saved.values()}
                shared = {id(tensor) for tensor in tensors_in(output) if memory_of(tensor) in touched}
            if shared:
                output = map_tensors(output, lambda t: t.clone() if id(t) in shared else t)
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for tensor, copy in self._saved.values():
                    tensor.copy_(copy)
        for module, simple, buffers, parameters in self._attributes:
            _put_back(module._buffers, buffers)
            _put_back(module._parameters, parameters)
            _put_attributes_back(module, simple)
        return output


def may_keep_tensors(module: nn.Module) -> bool:
    """Whether its code is not torch's own: that keeps nothing in eval mode."""
    own = type(module).__module__.startswith("torch.nn.")
    return not own and not isinstance(module, torch.jit.ScriptModule)


_INTERNAL = frozenset(vars(nn.Module())) - {"training"}


def _simple(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a pass may use to remember something; lists and dictionaries are copied."""
    kept: dict[str, Any] = {}
    for name, value in attributes.items():
        if name == "training" or name in _INTERNAL:
            continue
        if type(value) in (list, dict):
            kept[name] = (value, value.copy())
        elif value is None or isinstance(value, Tensor | tuple | int | float | str):
            kept[name] = (value, value)
    return kept


def _put_attributes_back(module: nn.Module, before: dict[str, tuple[Any, Any]]) -> None:
    now = vars(module)
    fresh = [name for name in now if name not in before and name not in _INTERNAL and name != "training"]
    fresh = [name for name in fresh if _holds_tensor(now[name])]
    changed = [
        name
        for name, (value, copy) in before.items()
        if now.get(name) is not value or (type(value) in (list, dict) and not _same_items(value, copy))
    ]
    # A counter alone is nobody's state; next to a tensor it says what the tensor is.
    if not fresh and not any(
        _holds_tensor(now.get(name)) or _holds_tensor(before[name][1]) for name in changed
    ):
        return
    for name in fresh:
        del now[name]
    for name in changed:
        value, copy = before[name]
        if isinstance(value, list):
            value[:] = copy
        elif isinstance(value, dict):
            _put_back(value, copy)
        now[name] = value


def _put_back(mapping: dict[Any, Any], copy: dict[Any, Any]) -> None:
    if not _same_items(mapping, copy):
        mapping.clear()
        mapping.update(copy)


def _same_items(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return list(first) == list(second) and _same_items(list(first.values()), list(second.values()))
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | list | tuple | dict) and next(tensors_in(value), None) is not None


def memory_of(tensor: Tensor) -> int:
    """Where the elements of a tensor are: the same for all views of one memory."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return id(tensor)  # sparse tensors have no storage of their own


def writes_in_place(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function of this name changes its first argument."""
    if name.endswith("_"):
        return not name.endswith("__") or name == "__setitem__" or name in _AUGMENTED
    at = INPLACE_ARGUMENT.get(name)
    return at is not None and bool(kwargs.get("inplace", args[at] if len(args) > at else False))


def written_by(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """Tensors that a call of a function of this name may change."""
    if "out" in kwargs:
        yield from tensors_in(kwargs["out"])
    if writes_in_place(name, args, kwargs) or name in ESCAPES:
        yield from tensors_in(args[:1])
    elif name in _WRITERS:
        at, key = _WRITERS[name]
        if args[at] if len(args) > at else kwargs.get(key):
            yield from tensors_in((args, kwargs))


#: what hands the memory of a tensor to somebody else
ESCAPES = frozenset({"numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "data_ptr"})
# Functions that write if they are told to: running statistics; rows that are longer than max_norm.
_WRITERS = {
    "batch_norm": (5, "training"),
    "instance_norm": (5, "use_input_stats"),
    "embedding": (3, "max_norm"),
    "embedding_bag": (3, "max_norm"),
}
_AUGMENTED = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")
)
#: place of the argument `inplace` of functions in torch.nn.functional
INPLACE_ARGUMENT = {
    "relu": 1, "relu6": 1, "selu": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "elu": 2,
    "celu": 2, "leaky_relu": 2, "hardtanh": 3, "threshold": 3, "rrelu": 4,
}  # fmt: skip


def structure_of(value: Any) -> Any:
    """What kind of inputs these are, whatever the number of rows: types, names, dtypes, shapes of a row."""
    if isinstance(value, Tensor):
        return (value.dtype, tuple(value.shape[1:]))
    if isinstance(value, tuple | list):
        return (type(value), *(structure_of(part) for part in value))
    if isinstance(value, Mapping):
        return (type(value), *((name, structure_of(part)) for name, part in value.items()))
    return value if isinstance(value, bool | int | float | str) or value is None else type(value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples, mappings and slices."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, slice):
        yield from tensors_in((value.start, value.stop, value.step))


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same lists, tuples and mappings with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        parts = [map_tensors(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [map_tensors(part, change) for part in value]
    if isinstance(value, dict):
        changed = {name: map_tensors(part, change) for name, part in value.items()}
        return changed if type(value) is dict else type(value)(**changed)
    return value
