"""A recorded pass for any number of rows: the operations before the first noise, of one draw, and after.

A tape has the shapes of the batch that it was recorded with. Two tapes of one model, of batches of different
sizes, show which of the numbers in it depend on the number of rows, and how: a number that is 12 for 3 rows
and 20 for 5 is 4 N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesdrop.inputs import mapped, tensors_in
from bayesdrop.operations import canonical
from bayesdrop.trace import Leaf, Op, Ref

__all__ = ["Dims", "ForRows", "Program", "Recorded", "Size", "Step", "Value", "program_of", "size_at"]


@dataclass(frozen=True)
class Size:
    """A whole number that depends on the number of rows N: times * N + plus."""

    times: int
    plus: int = 0

    def at(self, rows: int) -> int:
        """For so many rows."""
        return self.times * rows + self.plus


Dims = tuple[int | Size, ...]


def size_at(size: Any, rows: int) -> Any:
    """A number for so many rows, if it depends on them."""
    return size.at(rows) if isinstance(size, Size) else size


@dataclass(frozen=True, eq=False)
class ForRows:
    """A constant with an axis of N rows: the same values for every row, or 0, 1, ..., N - 1.

    Attributes:
        one: the values of one row, with an axis of length one.
        axis: of the rows.
        counts: whether row n has the value n.
    """

    one: Tensor
    axis: int
    counts: bool

    def at(self, rows: Any, held: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """For so many rows; `held` as in `Step.run`."""
        if self.counts:
            places = torch.arange(rows, dtype=self.one.dtype)
            return places.reshape([-1 if axis == self.axis else 1 for axis in range(self.one.dim())])
        shape = list(self.one.shape)
        shape[self.axis] = rows
        return (self.one if held is None else held(self.one)).expand(shape)


@dataclass(frozen=True)
class Value:
    """What is known of a value of the program."""

    shape: Dims
    dtype: torch.dtype

    def example(self, rows: int) -> Tensor:
        """A tensor without memory, of this shape for so many rows."""
        return torch.empty([size_at(size, rows) for size in self.shape], dtype=self.dtype, device="meta")


@dataclass(frozen=True)
class Step:
    """One call; its arguments may hold a `Ref`, a `Size` or a `ForRows` in the place of a value."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int, ...]
    refs: tuple[int, ...]

    @property
    def name(self) -> str:
        """One name for all spellings of the function."""
        return canonical(self.func)

    def spread(self) -> list[ForRows]:
        """The constants with an axis of rows that it uses."""
        found: list[ForRows] = []
        mapped((self.args, self.kwargs), ForRows, found.append)
        return found

    def run(self, values: dict[int, Any], rows: Any, held: Callable[[Tensor], Tensor] | None = None) -> None:
        """Call the function for so many rows, and store its outputs among the values.

        Args:
            values: by their numbers.
            rows: how many rows there are.
            held: from a constant to what is used in its place; None for the constant itself.
        """

        def filled(part: Any) -> Any:
            if isinstance(part, Ref):
                return values[part.index]
            if isinstance(part, Tensor):
                return part if held is None else held(part)
            return part.at(rows) if isinstance(part, Size) else part.at(rows, held)

        kinds = Ref | Size | ForRows | Tensor
        args, kwargs = _mapped(self.args, kinds, filled), _mapped(self.kwargs, kinds, filled)
        result = self.func(*args, **kwargs)
        for index, tensor in zip(self.outputs, tensors_in(result), strict=True):
            values[index] = tensor


@dataclass
class Program:
    """The operations of a pass, as a function of its inputs and of the noise of one draw.

    Attributes:
        steps: in the order in which they are run.
        leaves: the noises.
        inputs: numbers of the values that are given.
        outputs: numbers of the values that are wanted.
        values: of every value, what is known.
    """

    steps: list[Step]
    leaves: list[Leaf]
    inputs: list[int]
    outputs: list[int]
    values: dict[int, Value]

    def parts(self) -> tuple[list[Step], list[Step]]:
        """The steps that do not depend on noise, and the others."""
        noisy = {leaf.index for leaf in self.leaves}
        before, after = [], []
        for step in self.steps:
            if noisy.isdisjoint(step.refs):
                before.append(step)
            else:
                noisy.update(step.outputs)
                after.append(step)
        return before, after

    def constants(self) -> list[Tensor]:
        """Every tensor that a step holds, once."""
        found: dict[int, Tensor] = {}
        for step in self.steps:
            for tensor in tensors_in((step.args, step.kwargs)):
                found.setdefault(id(tensor), tensor)
        return list(found.values())


@dataclass(frozen=True)
class Recorded:
    """What a pass did.

    Attributes:
        ops: that depend on an input or on noise.
        leaves: the noises.
        given: the inputs, which are the first values.
        outputs: numbers of the values that are wanted.
        size: how many values there are.
    """

    ops: list[Op]
    leaves: list[Leaf]
    given: list[Tensor]
    outputs: list[int]
    size: int


def program_of(
    record: Callable[[int | None], Recorded], sizes: tuple[int, int] | None, owner: str
) -> Program:
    """The program of what `record` records.

    Args:
        record: makes a pass of so many rows; of the example as it is for None.
        sizes: two numbers of rows to record with; None to record the example, for its size alone.
        owner: the function that errors name.
    """
    if sizes is None:
        tape = record(None)
        shapes, dtypes = _shapes(tape), _dtypes(tape)
        steps = [Step(op.func, op.args, op.kwargs, op.outputs, op.refs) for op in tape.ops]
        values = {index: Value(shapes[index], dtypes[index]) for index in shapes}
        return Program(steps, tape.leaves, list(range(len(tape.given))), tape.outputs, values)
    few, many = sizes
    tape, other = record(few), record(many)
    if tape.outputs != other.outputs:
        raise _depends(owner, "which operations are run")
    joined = _Joiner(few, many, owner)
    steps = joined.steps(tape.ops, other.ops)
    if [(leaf.index, leaf.key) for leaf in tape.leaves] != [(leaf.index, leaf.key) for leaf in other.leaves]:
        raise _depends(owner, "the noise")
    for one, two in zip(tape.leaves, other.leaves, strict=True):
        if one.shape != two.shape:
            raise _depends(owner, f"the noise {one.key!r}")
    one_shapes, two_shapes, dtypes = _shapes(tape), _shapes(other), _dtypes(tape)
    values = {
        index: Value(joined.dims(one_shapes[index], two_shapes[index]), dtypes[index]) for index in one_shapes
    }
    return Program(steps, tape.leaves, list(range(len(tape.given))), tape.outputs, values)


class _Joiner:
    """Compares what two batches have in the same place of their tapes.

    Args:
        few: rows of the first batch.
        many: rows of the second batch.
        owner: the function that errors name.
    """

    def __init__(self, few: int, many: int, owner: str) -> None:
        self.few, self.many, self.owner = few, many, owner
        self._known: dict[tuple[int, int], Any] = {}
        # Ids are of use only while the tensors live.
        self._alive: list[Any] = []

    def steps(self, ops: list[Op], others: list[Op]) -> list[Step]:
        """The steps of both passes as one list."""
        if [self._call(op) for op in ops] != [self._call(op) for op in others]:
            raise _depends(self.owner, "which operations are run")
        return [
            Step(
                one.func,
                self.joined(one.args, two.args, one.name),
                self.joined(one.kwargs, two.kwargs, one.name),
                one.outputs,
                one.refs,
            )
            for one, two in zip(ops, others, strict=True)
        ]

    def dims(self, one: Iterable[int], two: Iterable[int]) -> Dims:
        """A shape."""
        return tuple(self._size(a, b, "a shape") for a, b in zip(one, two, strict=True))

    def joined(self, one: Any, two: Any, name: str) -> Any:
        """Arguments of the operation `name`."""
        if type(one) is not type(two):
            raise _depends(self.owner, f"an argument of {name}")
        if isinstance(one, Tensor):
            return self._tensor(one, two, name)
        if isinstance(one, slice):
            return slice(*(self.joined(getattr(one, e), getattr(two, e), name) for e in _ENDS))
        if isinstance(one, tuple | list):
            if len(one) != len(two):
                raise _depends(self.owner, f"an argument of {name}")
            parts = [self.joined(a, b, name) for a, b in zip(one, two, strict=True)]
            return parts if isinstance(one, list) else tuple(parts)
        if isinstance(one, dict):
            if one.keys() != two.keys():
                raise _depends(self.owner, f"an argument of {name}")
            return {key: self.joined(value, two[key], name) for key, value in one.items()}
        if type(one) is int:
            return self._size(one, two, name)
        same = one == two or (one != one and two != two)  # noqa: PLR0124
        if not same:
            raise _depends(self.owner, f"an argument of {name}")
        return one

    def _call(self, op: Op) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        return canonical(op.func), op.outputs, op.refs

    def _size(self, one: int, two: int, name: str) -> int | Size:
        if one == two:
            return one
        times, left = divmod(two - one, self.many - self.few)
        plus = one - times * self.few
        if left:
            raise _depends(self.owner, f"a number that {name} is given, and not in proportion,")
        return Size(times, plus)

    def _tensor(self, one: Tensor, two: Tensor, name: str) -> Any:
        key = (id(one), id(two))
        if key not in self._known:
            self._known[key] = self._constant(one, two, name)
            self._alive += [one, two]
        return self._known[key]

    def _constant(self, one: Tensor, two: Tensor, name: str) -> Any:
        if one.dim() != two.dim() or one.dtype != two.dtype:
            raise _depends(self.owner, f"a constant of {name}")
        if one.shape == two.shape:
            if one is two or one.data_ptr() == two.data_ptr() or _equal(one, two):
                return one
            raise _depends(self.owner, f"a constant of {name}")
        grown = [axis for axis in range(one.dim()) if one.shape[axis] != two.shape[axis]]
        axis = grown[0]
        rows = (one.shape[axis], two.shape[axis]) == (self.few, self.many)
        first = two.narrow(axis, 0, 1)
        if len(grown) == 1 and rows:
            if _equal(two, first.expand_as(two)) and _equal(one, first.expand_as(one)):
                return ForRows(first.clone(), axis, counts=False)
            counts = ForRows(first.clone(), axis, counts=True)
            if _equal(one, counts.at(self.few).expand_as(one)) and _equal(
                two, counts.at(self.many).expand_as(two)
            ):
                return counts
        raise _depends(self.owner, f"a constant of {name}")


_ENDS = ("start", "stop", "step")


def _equal(one: Tensor, two: Tensor) -> bool:
    if one.is_floating_point():
        return bool(((one == two) | (one.isnan() & two.isnan())).all())
    return bool((one == two).all())


def _depends(owner: str, what: str) -> ValueError:
    return ValueError(
        f"{owner}: in `model`, {what} depends on the number of rows in a way that no file can repeat. "
        "With dynamic_batch=False it is written for the number of rows of `example` alone."
    )


def _shapes(tape: Recorded) -> dict[int, tuple[int, ...]]:
    shapes = {index: tuple(tensor.shape) for index, tensor in enumerate(tape.given)}
    shapes |= {leaf.index: leaf.shape for leaf in tape.leaves}
    for op in tape.ops:
        shapes |= dict(zip(op.outputs, op.shapes, strict=True))
    return shapes


def _dtypes(tape: Recorded) -> dict[int, torch.dtype]:
    """Dtypes of all values, by running the pass once more with noise of ones."""
    values: list[Any] = [*tape.given, *[None] * (tape.size - len(tape.given))]
    for leaf in tape.leaves:
        values[leaf.index] = torch.ones(leaf.shape, dtype=leaf.dtype, device=leaf.device)
    with torch.no_grad():
        for op in tape.ops:
            op.run(values)
    return {index: value.dtype for index, value in enumerate(values) if isinstance(value, Tensor)}


def _mapped(value: Any, kinds: Any, change: Callable[[Any], Any]) -> Any:
    """As `mapped`, and the ends of slices too."""

    def part(found: Any) -> Any:
        if isinstance(found, slice):
            ends = (getattr(found, end) for end in _ENDS)
            return slice(*(change(end) if isinstance(end, kinds) else end for end in ends))
        return change(found)

    return mapped(value, kinds | slice, part)
