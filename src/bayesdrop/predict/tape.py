"""A pass of a model as a list of the operations that depend on its noise.

The recorder watches one pass. What does not depend on noise is run once and becomes a constant; the rest
is written down and can be run again for other draws, without the model and without repeating the prefix.
A pass that cannot be replayed safely says why, and the model itself is run for every draw.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.draws import FunctionDraw, RowDraw, Sampler
from bayesdrop.draws.held import HeldNoise
from bayesdrop.draws.intercept import InterceptMode

__all__ = ["Leaf", "Op", "Recording", "Ref", "Tape", "recording"]


@dataclass(frozen=True)
class Ref:
    """A value of the tape, by its number."""

    index: int


@dataclass(frozen=True)
class Leaf:
    """A noise that the tape starts from."""

    index: int
    key: str
    shape: tuple[int, ...]
    sample: Sampler
    dtype: torch.dtype
    device: torch.device


@dataclass
class Op:
    """One call: `values[outputs] = func(*args, **kwargs)` with every `Ref` filled in."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int, ...]
    #: the shape of every output, of one draw
    shapes: tuple[tuple[int, ...], ...]
    refs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        direct = [value.index for value in self.args if type(value) is Ref]
        nested = [value for value in self.args if isinstance(value, tuple | list | dict)]
        if self.kwargs:
            nested.append(self.kwargs)
        deep = [ref.index for ref in _refs(nested)] if nested else []
        self.refs = (*direct, *deep)
        self._flat = not self.kwargs and not deep

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.func, "__name__", str(self.func))

    def run(self, values: list[Any]) -> None:
        """Fill in the values it needs, call, and store what comes back."""
        if self._flat:
            args: Any = [values[a.index] if type(a) is Ref else a for a in self.args]
            result = self.func(*args)
        else:
            result = self.func(*_filled(self.args, values), **_filled(self.kwargs, values))
        if len(self.outputs) == 1 and isinstance(result, Tensor):
            values[self.outputs[0]] = result
            return
        for index, tensor in zip(self.outputs, _tensors(result), strict=True):
            values[index] = tensor


@dataclass
class Tape:
    """The part of a pass that depends on noise, as a function of its leaves."""

    ops: list[Op]
    leaves: list[Leaf]
    output: int
    size: int
    mutates: bool
    _release: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.mutates:
            self.ops = _needed(self.ops, self.output)
        used = {index for op in self.ops for index in op.refs} | {self.output}
        self.leaves = [leaf for leaf in self.leaves if leaf.index in used]
        self.schedule()

    def schedule(self) -> None:
        """Note after which operation every value is used no more."""
        last: dict[int, int] = {}
        for step, op in enumerate(self.ops):
            for index in (*op.refs, *op.outputs):
                last[index] = step
        last.pop(self.output, None)
        release: list[list[int]] = [[] for _ in self.ops]
        for index, step in last.items():
            release[step].append(index)
        self._release = [tuple(indices) for indices in release]

    def run(self, *noise: Tensor) -> Tensor:
        """The output for one value of every leaf. Also serves `torch.vmap` over draws."""
        values: list[Any] = [None] * self.size
        for leaf, value in zip(self.leaves, noise, strict=True):
            values[leaf.index] = value
        for op, dead in zip(self.ops, self._release, strict=True):
            op.run(values)
            for index in dead:
                values[index] = None
        output: Tensor = values[self.output]
        return output


class Recording:
    """What a recorder found: a tape, or the reason why there is none."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.leaves: list[Leaf] = []
        self.size = 0
        self.mutates = False
        self.broken: str | None = None
        self._values: dict[int, int] = {}
        self._known: dict[int, Any] = {}
        self._constants: dict[int, tuple[Tensor, int]] = {}
        self._written: set[int] = set()

    def tape(self, output: Tensor) -> Tape | None:
        """The tape that ends in `output`; None if the pass cannot be replayed."""
        if self.broken is None and any(t._version != version for t, version in self._constants.values()):
            self.broken = "a tensor is changed in place after it was used"
        if self.broken is not None:
            return None
        index = self._values.get(id(output))
        if index is None:
            self.broken = "the output does not depend on any noise"
            return None
        return Tape(self.ops, self.leaves, index, self.size, self.mutates)

    # what the mode reports

    def leaf(self, tensor: Tensor, key: str, sample: Sampler) -> None:
        """A noise was handed to the model."""
        if id(tensor) in self._values:
            return
        self.leaves.append(Leaf(self.size, key, tuple(tensor.shape), sample, tensor.dtype, tensor.device))
        self._register(tensor, self.size)
        self.size += 1

    def constant(self, tensor: Tensor) -> None:
        """A tensor that is there before the pass: a parameter, a buffer, an input."""
        self._known[id(tensor)] = tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one function of the model, and write it down if it depends on noise."""
        if self.broken is not None:
            return func(*args, **kwargs)
        tensors = _tensors((args, kwargs))
        depends = False
        for tensor in tensors:
            if id(tensor) in self._values:
                depends = True
            elif id(tensor) not in self._known:
                self._stop("a tensor appears that no function was seen to make")
            elif self._written and tensor.untyped_storage().data_ptr() in self._written:
                self._stop("noise is written into a tensor that has other views")
        if not depends or self.broken is not None:
            result = func(*args, **kwargs)
            for tensor in _tensors(result):
                self._register(tensor)
            return result
        return self._write(func, args, kwargs, tensors)

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        name = getattr(func, "__name__", "")
        if name in _VALUE_READERS or "out" in kwargs:
            self._stop(f"{name} reads or stores values of noise")
            return func(*args, **kwargs)
        target = args[0] if args and isinstance(args[0], Tensor) else None
        if target is not None and id(target) not in self._values and _in_place(name, kwargs):
            args = (self._copied(target), *args[1:]) if not target._is_view() else args
        templates = self._template(args), self._template(kwargs)
        plain_args = tuple(target if isinstance(a, Ref) else a for a in args)
        versions = [tensor._version for tensor in tensors]
        result = func(*plain_args, **kwargs)
        for tensor, version in zip(tensors, versions, strict=True):
            if tensor._version != version:
                self.mutates = True
                if id(tensor) not in self._values:
                    self._stop(f"{name} writes noise into a view or an input")
        outputs = _tensors(result)
        if not outputs:
            if name not in _SHAPE_READERS and not name.startswith("__get__") and result is not None:
                self._stop(f"{name} turns noise into a Python value")
            if result is None and self.mutates and target is not None:
                self._append(func, templates, [target])
            return result
        self._append(func, templates, outputs)
        return result

    def _append(self, func: Any, templates: tuple[Any, Any], outputs: list[Tensor]) -> None:
        indices = tuple(range(self.size, self.size + len(outputs)))
        self.size += len(outputs)
        shapes = tuple(tuple(tensor.shape) for tensor in outputs)
        if getattr(func, "__name__", "") == "__setitem__":
            func = _set_item
        self.ops.append(Op(func, templates[0], templates[1], indices, shapes))
        for tensor, index in zip(outputs, indices, strict=True):
            self._register(tensor, index)

    def _copied(self, target: Tensor) -> Ref:
        """A constant is about to be changed in place: every draw changes a copy of its own."""
        index = self.size
        self._written.add(target.untyped_storage().data_ptr())
        self.ops.append(Op(torch.clone, (target.clone(),), {}, (index,), (tuple(target.shape),)))
        self.size += 1
        self._register(target, index)
        return Ref(index)

    def _register(self, tensor: Tensor, index: int | None = None) -> None:
        key = id(tensor)
        if index is not None:
            self._values[key] = index
        if key not in self._known:
            self._known[key] = weakref.ref(tensor, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._known.pop(key, None)
        self._values.pop(key, None)

    def _template(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            index = self._values.get(id(value))
            if index is not None:
                return Ref(index)
            self._constants[id(value)] = (value, value._version)
            return value
        if isinstance(value, tuple):
            parts = [self._template(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, list):
            return [self._template(part) for part in value]
        if isinstance(value, dict):
            return {name: self._template(part) for name, part in value.items()}
        return value

    def _stop(self, reason: str) -> None:
        self.broken = self.broken or reason


class _RecordMode(InterceptMode):
    def __init__(self, draw: HeldNoise, record: Recording) -> None:
        super().__init__(draw)
        self.record = record

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.record.call(func, args, kwargs)


class _RecordingDraw(FunctionDraw):
    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__(model, **options)
        self.record = Recording()

    def held(self, key: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        with torch._C.DisableTorchFunction():
            noise = super().held(key, shape, like, sample)
            self.record.leaf(noise, key, sample)
        return noise

    def saw_foreign_randomness(self, name: str) -> None:
        super().saw_foreign_randomness(name)
        self.record.broken = self.record.broken or f"the model calls {name}, which no draw can hold"

    def _mode(self) -> InterceptMode:
        return _RecordMode(self, self.record)


class _RecordingRows(RowDraw, _RecordingDraw):
    """The same with noise for every row."""


def recording(model: nn.Module, inputs: Any, *, per_row: bool, **options: Any) -> _RecordingDraw:
    """A draw that records the pass made inside it."""
    draw = _RecordingRows(model, **options) if per_row else _RecordingDraw(model, **options)
    record = draw.record
    for tensor in _tensors(inputs):
        record.constant(tensor)
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            record.broken = "a part of the model is a script"
        for name, value in vars(module).items():
            if name != "_modules" and not name.endswith("_hooks"):
                for tensor in _tensors(value):
                    record.constant(tensor)
    return draw


def _set_item(target: Tensor, *rest: Any) -> Tensor:
    target.__setitem__(*rest)
    return target


_VALUE_READERS = frozenset(
    {
        "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__",
        "__complex__", "equal", "allclose", "is_nonzero", "nonzero", "argwhere", "masked_select", "unique",
        "unique_consecutive", "masked_scatter", "masked_scatter_", "data_ptr", "untyped_storage", "storage",
        "__contains__", "__iter__", "register_hook", "backward",
    }
)  # fmt: skip
_SHAPE_READERS = frozenset(
    {
        "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "is_floating_point",
        "is_complex", "is_signed", "element_size", "get_device", "storage_offset", "__len__", "__hash__",
        "type", "_is_view", "is_same_size", "__repr__", "has_names", "is_inference", "is_conj", "is_neg",
    }
)  # fmt: skip


def _in_place(name: str, kwargs: Mapping[str, Any]) -> bool:
    return (
        (name.endswith("_") and not name.endswith("__"))
        or name == "__setitem__"
        or bool(kwargs.get("inplace"))
    )


# Checked first: most of what a call is made with is none of a tensor's business.
_ATOMS = frozenset(
    {int, float, bool, str, type(None), torch.Size, torch.dtype, torch.device, torch.memory_format}
)


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Tensor]) -> None:
    if type(value) in _ATOMS:
        return
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, tuple | list):
        for part in value:
            _collect(part, found)
    elif isinstance(value, Mapping):
        for part in value.values():
            _collect(part, found)


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _refs(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _refs(part)


def _filled(value: Any, values: list[Any]) -> Any:
    if isinstance(value, Ref):
        return values[value.index]
    if isinstance(value, tuple):
        parts = [_filled(part, values) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    if isinstance(value, dict):
        return {name: _filled(part, values) for name, part in value.items()}
    return value


def _needed(ops: list[Op], output: int) -> list[Op]:
    """The operations that the output depends on."""
    wanted = {output}
    kept = []
    for op in reversed(ops):
        if wanted.intersection(op.outputs):
            kept.append(op)
            wanted.update(op.refs)
    return kept[::-1]
