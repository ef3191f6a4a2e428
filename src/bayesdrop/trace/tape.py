"""A recorder and its tape: the operations of one pass that depend on noise, to be run again.

What does not depend on noise is run once and becomes a constant; the rest can be run again for other draws,
without the model and without repeating what comes before the first noise. If a pass cannot be run again
safely, the recorder says why.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesdrop.inputs import mapped, tensors_in
from bayesdrop.noise import Sampler
from bayesdrop.operations import TABLE, keeps_rows, names, writes_in_place

__all__ = ["DoesNotFit", "Leaf", "Op", "Recorder", "Ref", "Tape", "memory_of"]


class DoesNotFit(RuntimeError):
    """In some draw an operation gives another shape than in the recorded pass."""


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
    """One call: `values[outputs] = func(*args, **kwargs)` with every `Ref` replaced by its value."""

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
        deep: list[int] = []
        mapped(nested, Ref, lambda ref: deep.append(ref.index))
        self.refs = (*direct, *deep)
        self._flat = not self.kwargs and not deep

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.func, "__name__", str(self.func))

    @staticmethod
    def filled(value: Any, values: list[Any]) -> Any:
        """The same arguments with every `Ref` replaced by its value."""
        return mapped(value, Ref, lambda ref: values[ref.index])

    def run(self, values: list[Any]) -> None:
        """Call the function with the values it needs, and store its outputs among the values."""
        if self._flat:
            args: Any = [values[a.index] if type(a) is Ref else a for a in self.args]
            result = self.func(*args)
        else:
            result = self.func(*self.filled(self.args, values), **self.filled(self.kwargs, values))
        if len(self.outputs) == 1 and isinstance(result, Tensor):
            # The model may have read a shape that depends on noise, as that of h[h > 0].
            if result.shape != self.shapes[0]:
                raise DoesNotFit(f"{self.name} gives {tuple(result.shape)}, not {self.shapes[0]}")
            values[self.outputs[0]] = result
            return
        tensors = tensors_in(result)
        if len(tensors) != len(self.outputs) or any(
            tensor.shape != shape for tensor, shape in zip(tensors, self.shapes, strict=True)
        ):
            raise DoesNotFit(f"{self.name} gives other shapes")
        for index, tensor in zip(self.outputs, tensors, strict=True):
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
        """Find the last operation that uses each value, after which its memory is released."""
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


def _needed(ops: list[Op], output: int) -> list[Op]:
    """The operations that the output depends on."""
    wanted = {output}
    kept = []
    for op in reversed(ops):
        if wanted.intersection(op.outputs):
            kept.append(op)
            wanted.update(op.refs)
    return kept[::-1]


class Recorder:
    """Records what a pass does with its noise.

    Attributes:
        broken: why the pass cannot be run again; None if it can.
        is_random: whether the output given to `tape` depends on any noise.
        put_back: memory that was written to in the pass and put back since.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.leaves: list[Leaf] = []
        self.size = 0
        self.mutates = False
        self.broken: str | None = None
        self.is_random = True
        self.put_back: set[int] = set()
        self._values: dict[int, int] = {}
        self._known: dict[int, Any] = {}
        self._constants: dict[int, tuple[Tensor, int]] = {}
        # When each tensor became known, and when each memory was last written to without a step on the tape.
        self._stamps: dict[int, int] = {}
        self._written: dict[int, int] = {}
        # Memory that code outside torch may write to unseen.
        self._escaped: set[int] = set()
        self._clock = 0
        self._precision = _precision()
        # Tensors that have the rows of the batch on axis 0.
        self._in_rows: set[int] = set()

    def tape(self, output: Tensor) -> Tape | None:
        """The tape that ends in `output`; None if the pass cannot be run again."""
        for tensor, version in self._constants.values():
            if _version(tensor) != version or (self.put_back and memory_of(tensor) in self.put_back):
                self.stop("a tensor is changed in place after it was used")
        if self.broken is None and self._written:
            self._check_current(output)
        if self.broken is not None:
            return None
        index = self._values.get(id(output))
        if index is None:
            self.broken = "the output does not depend on any noise"
            self.is_random = False
            return None
        return Tape(self.ops, self.leaves, index, self.size, self.mutates)

    # what the mode reports

    def leaf(self, tensor: Tensor, key: str, sample: Sampler) -> None:
        """Note a noise that the model got."""
        if id(tensor) in self._values:
            return
        self.leaves.append(Leaf(self.size, key, tuple(tensor.shape), sample, tensor.dtype, tensor.device))
        self._register(tensor, self.size)
        self.size += 1

    def input(self, tensor: Tensor) -> int:
        """Note a tensor whose value the tape leaves open; returns its number."""
        self._register(tensor, self.size)
        self.size += 1
        return self.size - 1

    def constant(self, tensor: Tensor) -> None:
        """Note a tensor that exists before the pass: a parameter, a buffer, an input."""
        self._known[id(tensor)] = tensor

    def constants(self, tensors: Iterable[Tensor]) -> None:
        """Note tensors that exist before the pass."""
        self._known.update((id(tensor), tensor) for tensor in tensors)

    def rows(self, tensor: Tensor) -> None:
        """Note that a tensor has the rows of the batch on axis 0, one after another."""
        self._in_rows.add(id(tensor))

    def has_rows(self, value: Any) -> bool:
        """Whether this is a tensor that is known to have the rows of the batch on axis 0."""
        return id(value) in self._in_rows

    def stop(self, reason: str) -> None:
        """Note why the pass cannot be run again; the first reason counts. Rows are not followed any more."""
        self.broken = self.broken or reason
        self._in_rows.clear()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one function of the model, and record it if it depends on noise."""
        if self.broken is not None:
            return func(*args, **kwargs)
        tensors = tensors_in((args, kwargs) if kwargs else args)
        depends = False
        for tensor in tensors:
            if id(tensor) in self._values:
                depends = True
            elif id(tensor) not in self._known:
                self.stop("a tensor appears that no function was seen to make")
            if self._written:
                self._check_current(tensor)
        if depends and self.broken is None:
            result = self._write(func, args, kwargs, tensors)
        else:
            result = self._run(func, args, kwargs, tensors)
        if self._in_rows and isinstance(result, Tensor):
            with torch._C.DisableTorchFunction():
                kept = keeps_rows(func, args, kwargs, result, self.has_rows)
            # The result may be an argument, changed in place.
            (self._in_rows.add if kept else self._in_rows.discard)(id(result))
        return result

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Run a function whose arguments do not depend on noise."""
        name = getattr(func, "__name__", "")
        if tensors and (writes_in_place(name, args, kwargs) or name in _ESCAPES):
            self._check_constant(tensors[0])
            if name in _ESCAPES:
                self._escaped.add(memory_of(tensors[0]))
        result = func(*args, **kwargs)
        gradient = name == "__get__" and func == _GRADIENT and result is not None
        if gradient or name in ("__set__", "backward"):
            self.stop(_OUT_OF_SIGHT)
        for tensor in (result,) if isinstance(result, Tensor) else tensors_in(result):
            self._register(tensor)
        return result

    def unchanged(self, target: Tensor) -> Tensor:
        """What the tape may read instead of `target`, which is about to change: a copy of a constant."""
        if self.broken is not None or id(target) in self._values:
            return target
        copy = target.clone()
        self.constant(copy)
        return copy

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """Write the elements of `value` into `target`, which is from now on another value of the tape."""
        index = self._values.get(id(value))
        if self.broken is not None or index is None or target._is_view():
            written: Tensor = self.call(Tensor.copy_, (target, value), {})
            return written
        target.copy_(value)
        self._moved_on(target, index)
        return target

    # recording

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        name = getattr(func, "__name__", "")
        reason = self._unsafe(name, func, kwargs)
        if reason is not None:
            self.stop(reason)
            return func(*args, **kwargs)
        in_place = writes_in_place(name, args, kwargs)
        target = args[0] if in_place and isinstance(args[0], Tensor) else None
        pure = _pure(name, func, args, kwargs) if target is not None else None
        if target is not None and pure is not None and self._may_move_on(target, tensors):
            before = self.unchanged(target)
            templates = self._template(tuple(before if a is target else a for a in pure[1])), pure[2]
            result = func(*args, **kwargs)
            self._append(pure[0], templates, [target])
            self._moved_on(target, self._values[id(target)])
            return result
        if target is not None and id(target) not in self._values and not target._is_view():
            self._copied(target)
        templates = self._template(args), self._template(kwargs)
        versions = [_version(tensor) for tensor in tensors]
        result = func(*args, **kwargs)
        for tensor, version in zip(tensors, versions, strict=True):
            if _version(tensor) != version:
                self.mutates = True
                if id(tensor) not in self._values:
                    self.stop(f"{name} writes noise into a view or an input")
        outputs = tensors_in(result)
        if not outputs:
            if name not in _READS_SHAPE and name != "__get__" and result is not None:
                self.stop(f"{name} turns noise into a Python value")
            if result is None and self.mutates and target is not None:
                self._append(func, templates, [target])
            return result
        self._append(func, templates, outputs)
        return result

    def _unsafe(self, name: str, func: Any, kwargs: dict[str, Any]) -> str | None:
        if name in _READS_VALUE or kwargs.get("out") is not None:
            return f"{name} reads or stores values of noise"
        if name in ("__set__", "grad", "backward") or (name == "__get__" and func == _GRADIENT):
            return _OUT_OF_SIGHT
        if _precision() != self._precision:
            return "part of the model runs in another precision (autocast)"
        return None

    def _append(self, func: Any, templates: tuple[Any, Any], outputs: list[Tensor]) -> None:
        indices = tuple(range(self.size, self.size + len(outputs)))
        self.size += len(outputs)
        shapes = tuple(tuple(tensor.shape) for tensor in outputs)
        if getattr(func, "__name__", "") == "__setitem__":
            func = _set_item
        self.ops.append(Op(func, templates[0], templates[1], indices, shapes))
        for tensor, index in zip(outputs, indices, strict=True):
            self._register(tensor, index)

    def _copied(self, target: Tensor) -> None:
        """Record a copy of a constant that is about to change in place, so that each draw changes a copy."""
        index = self.size
        self.ops.append(Op(torch.clone, (target.clone(),), {}, (index,), (tuple(target.shape),)))
        self.size += 1
        self._moved_on(target, index)

    # changes in place that the tape does not repeat: after them the tensor is another value

    def _may_move_on(self, target: Tensor, tensors: list[Tensor]) -> bool:
        same = all(tensor.dtype == target.dtype or not tensor.is_floating_point() for tensor in tensors)
        return same and target.is_floating_point() and not target._is_view()

    def _moved_on(self, target: Tensor, index: int) -> None:
        self._clock += 1
        self._written[memory_of(target)] = self._clock
        self._register(target, index)

    def _check_current(self, tensor: Tensor) -> None:
        if self._stamps.get(id(tensor), 0) < self._written.get(memory_of(tensor), 0):
            self.stop("noise is written into a tensor that has other views")

    def _check_constant(self, target: Tensor) -> None:
        """Stop if `target`, about to change, shares memory with a constant, as `x.data` does unseen."""
        memory = memory_of(target)
        if any(memory_of(tensor) == memory for tensor, _ in self._constants.values()):
            self.stop("a tensor is changed in place after it was used")

    # what is known

    def _register(self, tensor: Tensor, index: int | None = None) -> None:
        key = id(tensor)
        if index is not None:
            self._values[key] = index
        if key not in self._known:
            self._known[key] = weakref.ref(tensor, lambda _: self._forget(key))
        self._stamps[key] = self._clock

    def _forget(self, key: int) -> None:
        self._known.pop(key, None)
        self._values.pop(key, None)
        self._stamps.pop(key, None)
        self._in_rows.discard(key)

    def _template(self, value: Any) -> Any:
        """The arguments as the tape stores them: a `Ref` for every tensor that depends on noise."""
        return mapped(value, Tensor | slice, self._part)

    def _part(self, value: Tensor | slice) -> Any:
        if isinstance(value, slice):
            if any(id(part) in self._values for part in tensors_in(value)):
                self.stop("noise decides where a tensor is cut")
            return value
        index = self._values.get(id(value))
        if index is not None:
            return Ref(index)
        if self._escaped and memory_of(value) in self._escaped:
            self.stop("a tensor has been handed out of torch")
        if id(value) not in self._constants:
            self._constants[id(value)] = (value, _version(value))
        return value


_OUT_OF_SIGHT = "the model changes a tensor, or takes a gradient, where no function is seen"
_GRADIENT = vars(torch._C.TensorBase)["grad"].__get__


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _precision() -> tuple[bool, bool]:
    return torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")


def _pure(
    name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The same call not in place; None if there is no such function."""
    at = TABLE[name].inplace if name in TABLE else None
    if at is not None:
        kept = args[:at] if len(args) > at else args
        return func, kept, {key: value for key, value in kwargs.items() if key != "inplace"}
    plain = _PURE.get(name)
    return None if plain is None or tensors_in(kwargs) else (plain, args, kwargs)


_PURE = {
    f"{name}_": getattr(torch, name) if name in ("relu", "tanh", "sigmoid") else getattr(Tensor, name)
    for name in names(twin=True)
}
_READS_VALUE = names(reads="value")
_READS_SHAPE = names(reads="shape")
_ESCAPES = names(escapes=True)


def _set_item(target: Tensor, *rest: Any) -> Tensor:
    target.__setitem__(*rest)
    return target


def memory_of(tensor: Tensor) -> int:
    """The address of a tensor's memory, the same for all its views."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return id(tensor)  # sparse tensors have no storage
