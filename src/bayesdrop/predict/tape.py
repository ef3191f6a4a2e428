"""A tape: the part of a model's pass that depends on noise, as a list of operations to run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesdrop.draws import Sampler

__all__ = ["DoesNotFit", "Leaf", "Op", "Ref", "Tape", "filled", "tensors_of"]


class DoesNotFit(RuntimeError):
    """A draw for which an operation gives another shape than in the pass that was recorded."""


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
            result = self.func(*filled(self.args, values), **filled(self.kwargs, values))
        if len(self.outputs) == 1 and isinstance(result, Tensor):
            # The model may have read a shape that depends on noise, as that of h[h > 0].
            if result.shape != self.shapes[0]:
                raise DoesNotFit(f"{self.name} gives {tuple(result.shape)}, not {self.shapes[0]}")
            values[self.outputs[0]] = result
            return
        tensors = tensors_of(result)
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


# Checked first: most of what a call is made with is none of a tensor's business.
_ATOMS = frozenset(
    {int, float, bool, str, type(None), torch.Size, torch.dtype, torch.device, torch.memory_format}
)


def tensors_of(value: Any) -> list[Tensor]:
    """Every tensor in nested lists, tuples, mappings and slices."""
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
    elif isinstance(value, slice):
        _collect((value.start, value.stop, value.step), found)


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _refs(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _refs(part)


def filled(value: Any, values: list[Any]) -> Any:
    """The same arguments with every `Ref` replaced by its value."""
    if isinstance(value, Ref):
        return values[value.index]
    if isinstance(value, tuple):
        parts = [filled(part, values) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [filled(part, values) for part in value]
    if isinstance(value, dict):
        return {name: filled(part, values) for name, part in value.items()}
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
