"""What is written down of a pass: a tape, or the reason why there can be none.

What does not depend on noise is run once and becomes a constant; the rest can be run again for other draws,
without the model and without repeating the prefix. A pass that cannot be replayed safely says why.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from bayesdrop.draws import Sampler
from bayesdrop.draws.passes import ESCAPES, INPLACE_ARGUMENT, memory_of, writes_in_place
from bayesdrop.predict.tape import Leaf, Op, Ref, Tape, tensors_of

__all__ = ["Recording"]


class Recording:
    """What a recorder found: a tape, or the reason why there is none."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.leaves: list[Leaf] = []
        self.size = 0
        self.mutates = False
        self.broken: str | None = None
        #: memory that has other elements now than it had in the pass
        self.put_back: set[int] = set()
        self._values: dict[int, int] = {}
        self._known: dict[int, Any] = {}
        self._constants: dict[int, tuple[Tensor, int]] = {}
        # When a tensor became known, and when its memory was last written to behind its back.
        self._stamps: dict[int, int] = {}
        self._written: dict[int, int] = {}
        # Memory that somebody else may write to, unseen.
        self._escaped: set[int] = set()
        self._clock = 0
        self._precision = _precision()

    def tape(self, output: Tensor) -> Tape | None:
        """The tape that ends in `output`; None if the pass cannot be replayed."""
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

    def stop(self, reason: str) -> None:
        """The pass cannot be replayed."""
        self.broken = self.broken or reason

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one function of the model, and write it down if it depends on noise."""
        if self.broken is not None:
            return func(*args, **kwargs)
        tensors = tensors_of((args, kwargs))
        depends = False
        for tensor in tensors:
            if id(tensor) in self._values:
                depends = True
            elif id(tensor) not in self._known:
                self.stop("a tensor appears that no function was seen to make")
            if self._written:
                self._check_current(tensor)
        if depends and self.broken is None:
            return self._write(func, args, kwargs, tensors)
        name = getattr(func, "__name__", "")
        if tensors and (writes_in_place(name, args, kwargs) or name in ESCAPES):
            self._check_constant(tensors[0])
            if name in ESCAPES:
                self._escaped.add(memory_of(tensors[0]))
        result = func(*args, **kwargs)
        gradient = name == "__get__" and func == _GRADIENT and result is not None
        if gradient or name in ("__set__", "backward"):
            self.stop(_OUT_OF_SIGHT)
        for tensor in tensors_of(result):
            self._register(tensor)
        return result

    def unchanged(self, target: Tensor) -> Tensor:
        """What the tape may read in place of a tensor that is about to change: a copy if it is a constant."""
        if self.broken is not None or id(target) in self._values:
            return target
        copy = target.clone()
        self.constant(copy)
        return copy

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """`target` takes the elements of `value`. On the tape it is simply another value from now on."""
        index = self._values.get(id(value))
        if self.broken is not None or index is None or target._is_view():
            written: Tensor = self.call(Tensor.copy_, (target, value), {})
            return written
        target.copy_(value)
        self._moved_on(target, index)
        return target

    # writing down

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
        outputs = tensors_of(result)
        if not outputs:
            if name not in _SHAPE_READERS and name != "__get__" and result is not None:
                self.stop(f"{name} turns noise into a Python value")
            if result is None and self.mutates and target is not None:
                self._append(func, templates, [target])
            return result
        self._append(func, templates, outputs)
        return result

    def _unsafe(self, name: str, func: Any, kwargs: dict[str, Any]) -> str | None:
        if name in _VALUE_READERS or "out" in kwargs:
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
        """A constant is about to be changed in place: every draw changes a copy of its own."""
        index = self.size
        self.ops.append(Op(torch.clone, (target.clone(),), {}, (index,), (tuple(target.shape),)))
        self.size += 1
        self._moved_on(target, index)

    # changes in place that the tape does not repeat: the tensor is another value afterwards

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
        """`target` is about to change; `x.data`, which shares memory with x, has a version of its own."""
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

    def _template(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            index = self._values.get(id(value))
            if index is not None:
                return Ref(index)
            if self._escaped and memory_of(value) in self._escaped:
                self.stop("a tensor has been handed out of torch")
            if id(value) not in self._constants:
                self._constants[id(value)] = (value, _version(value))
            return value
        if isinstance(value, tuple):
            parts = [self._template(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, list):
            return [self._template(part) for part in value]
        if isinstance(value, dict):
            return {name: self._template(part) for name, part in value.items()}
        if isinstance(value, slice) and any(id(part) in self._values for part in tensors_of(value)):
            self.stop("noise decides where a tensor is cut")
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
    """The same function not in place, where there is one that needs nothing else."""
    at = INPLACE_ARGUMENT.get(name)
    if at is not None:
        kept = args[:at] if len(args) > at else args
        return func, kept, {key: value for key, value in kwargs.items() if key != "inplace"}
    plain = _PURE.get(name)
    return None if plain is None or tensors_of(kwargs) else (plain, args, kwargs)


_PURE = {
    f"{name}_": getattr(Tensor, name)
    for name in (
        "add", "sub", "mul", "div", "relu", "tanh", "sigmoid", "exp", "neg", "abs", "sqrt", "square", "clamp",
    )
} | {"relu_": torch.relu, "tanh_": torch.tanh, "sigmoid_": torch.sigmoid}  # fmt: skip


def _set_item(target: Tensor, *rest: Any) -> Tensor:
    target.__setitem__(*rest)
    return target


_VALUE_READERS = frozenset(
    {
        "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__",
        "__complex__", "equal", "allclose", "is_nonzero", "nonzero", "argwhere", "masked_select", "unique",
        "unique_consecutive", "masked_scatter", "masked_scatter_", "data_ptr", "untyped_storage", "storage",
        "__contains__", "__iter__", "register_hook", "__deepcopy__", "__reduce_ex__", "__format__", "apply_",
        "map_", "map2_",
    }
)  # fmt: skip
_SHAPE_READERS = frozenset(
    {
        "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "is_floating_point",
        "is_complex", "is_signed", "element_size", "get_device", "storage_offset", "__len__", "__hash__",
        "type", "_is_view", "is_same_size", "__repr__", "has_names", "is_inference", "is_conj", "is_neg",
    }
)  # fmt: skip
