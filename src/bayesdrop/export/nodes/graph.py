"""A graph of ONNX nodes that is being written, and the table of operations that can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import require
from bayesdrop.export.program import Dims, ForRows, Size, Step, Value
from bayesdrop.inputs import mapped
from bayesdrop.trace import Ref

__all__ = ["DTYPES", "OPSET", "CannotExport", "Handle", "Weights", "Writer", "as_array", "writes"]

#: the version of ONNX's operators, and of its files
OPSET, IR_VERSION = 18, 9
#: numbers of dtypes in ONNX files
DTYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
}
#: bytes up to which constants of equal content are stored once
_SMALL = 4096


class CannotExport(ValueError):
    """The model does something that the format cannot express."""


@dataclass(frozen=True, eq=False)
class Handle(Value):
    """A value of the graph: its name, shape and dtype; its content if it is a constant."""

    name: str = ""
    constant: Tensor | None = None

    @property
    def dims(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def axis(self, dim: int) -> int:
        """An axis counted from 0."""
        return dim % self.dims if self.dims else 0


def as_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor as an array of its own."""
    return np.array(tensor.detach().cpu().numpy(), order="C")


class Weights:
    """The constants of a file, each stored once, and its names. Shared by a graph and the graphs in it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._kept: list[Tensor] = []
        self._count = 0
        self.titles: dict[int, str] = {}
        #: names of the inputs and outputs of the file
        self.reserved: set[str] = set()

    def fresh(self, stem: str) -> str:
        """A name that was not used before."""
        while True:
            self._count += 1
            name = f"{stem}_{self._count}"
            if name not in self.reserved and name not in self.tensors:
                return name

    def name_of(self, tensor: Tensor, stem: str = "c") -> str:
        """The name under which a constant is stored."""
        small = tensor.numel() * tensor.element_size() <= _SMALL
        place = (id(tensor),)
        if place in self._names:
            return self._names[place]
        array = as_array(tensor)
        key = (array.tobytes(), array.shape, array.dtype.str) if small else place
        if key not in self._names:
            helper = require("onnx.numpy_helper", extra="onnx", owner="export")
            title = self.titles.get(id(tensor))
            taken = title is None or title in self.tensors or title in self.reserved
            name = self.fresh(stem) if title is None or taken else title
            self.tensors[name] = helper.from_array(array, name)
            self._names[key] = name
        self._kept.append(tensor)
        self._names[place] = self._names[key]
        return self._names[key]

    def texts(self, values: Sequence[str]) -> str:
        """The name under which texts are stored."""
        helper = require("onnx.numpy_helper", extra="onnx", owner="export")
        name = self.fresh("texts")
        self.tensors[name] = helper.from_array(np.array(list(values), dtype=object), name)
        return name


_Write = Callable[..., Any]
_WRITERS: dict[str, _Write] = {}


def writes(*names: str) -> Callable[[_Write], _Write]:
    """Say that a function writes the operations of these names.

    It is called with the writer, then with the arguments of the operation, in which every tensor is a
    `Handle`; it returns the name of its result, or a list of them.
    """

    def register(function: _Write) -> _Write:
        for name in names:
            _WRITERS[name] = function
        return function

    return register


#: arguments that change nothing of what a function computes, and other names of the same argument
_DROPPED = frozenset({"inplace", "_stacklevel", "out", "memory_format", "non_blocking", "copy", "layout",
                      "device", "pin_memory", "requires_grad", "generator"})  # fmt: skip
_RENAMED = {"input": "x", "self": "x", "axis": "dim", "tensors": "parts", "tensor": "x"}


class Writer:
    """Nodes of one graph.

    Args:
        weights: the constants of the file.
        rows: name of the number of rows, a vector of one whole number; None if the batch is not dynamic.
        outer: the writer of the graph around this one.
    """

    def __init__(self, weights: Weights, rows: str | None, outer: Writer | None = None) -> None:
        self.weights, self.rows, self.outer = weights, rows, outer
        self.nodes: list[Any] = []
        self.values: dict[int, Handle] = dict(outer.values) if outer is not None else {}
        #: what is known of the results of the operation that is being written
        self.out: list[Value] = []
        #: names of constant matrices and of their transposes
        self.turned: dict[str, str] = {}

    @property
    def root(self) -> Writer:
        """The writer of the outermost graph."""
        return self if self.outer is None else self.outer.root

    def beside(self) -> Writer:
        """A writer of the same graph with values of its own, for another program."""
        other = Writer(self.weights, self.rows)
        other.nodes, other.turned = self.nodes, self.turned
        return other

    # nodes and constants

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one result, whose name is returned."""
        return self.node_many(kind, inputs, 1, **attributes)[0]

    def node_many(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """A node with `count` results, whose names are returned."""
        helper = require("onnx.helper", extra="onnx", owner="export")
        outputs = [self.weights.fresh(kind.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs

    def constant(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """The name of a constant: a tensor, or numbers."""
        tensor = value if isinstance(value, Tensor) else torch.tensor(value)
        return self.weights.name_of(tensor if dtype is None else tensor.to(dtype))

    def whole(self, *numbers: int) -> str:
        """The name of a vector of whole numbers."""
        return self.constant(torch.tensor(numbers, dtype=torch.int64))

    def sizes(self, dims: Sequence[int | Size]) -> str:
        """The name of a vector of whole numbers, some of which may depend on the rows."""
        if not any(isinstance(size, Size) for size in dims):
            return self.whole(*dims)  # type: ignore[arg-type]
        parts = [self._size(size) if isinstance(size, Size) else self.whole(size) for size in dims]
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def _size(self, size: Size) -> str:
        assert self.rows is not None
        name = self.rows
        if size.times != 1:
            name = self.node("Mul", name, self.whole(size.times))
        return name if size.plus == 0 else self.node("Add", name, self.whole(size.plus))

    # values

    def reshaped(self, name: str, dims: Dims) -> str:
        """A value in another shape."""
        open_axes = [axis for axis, size in enumerate(dims) if isinstance(size, Size)]
        if len(open_axes) == 1:
            return self.node("Reshape", name, self.whole(*(-1 if isinstance(s, Size) else s for s in dims)))
        return self.node("Reshape", name, self.sizes(dims), allowzero=1)

    def cast(self, value: Handle, dtype: torch.dtype) -> str:
        """The name of a value in another dtype."""
        if value.dtype == dtype:
            return value.name
        if value.constant is not None:
            return self.constant(value.constant, dtype)
        return self.node("Cast", value.name, to=DTYPES[dtype])

    def operand(self, value: Any, dtype: torch.dtype) -> str:
        """The name of a value or a number in a dtype."""
        if isinstance(value, Handle):
            return self.cast(value, dtype)
        if isinstance(value, Size):
            name = self.reshaped(self._size(value), ())
            return name if dtype == torch.int64 else self.node("Cast", name, to=DTYPES[dtype])
        return self.constant(value, dtype)

    def handle(self, name: str, shape: Dims, dtype: torch.dtype) -> Handle:
        """A value of this graph that a node has made."""
        return Handle(tuple(shape), dtype, name)

    def held(self, tensor: Tensor) -> Handle:
        """A constant as a value."""
        if tensor.dtype not in DTYPES:
            raise CannotExport(f"export: {tensor.dtype} cannot be written to an ONNX file.")
        return Handle(tuple(tensor.shape), tensor.dtype, self.weights.name_of(tensor, "w"), tensor)

    def spread(self, constant: ForRows) -> Handle:
        """A constant with an axis of rows."""
        one, axis = constant.one, constant.axis
        shape: Dims = tuple(Size(1) if a == axis else size for a, size in enumerate(one.shape))
        assert self.rows is not None
        if constant.counts:
            rows = self.reshaped(self.rows, ())
            zero, step = self.constant(0, torch.int64), self.constant(1, torch.int64)
            name = self.reshaped(self.node("Range", zero, rows, step), shape)
            return self.handle(self.cast(Handle(shape, torch.int64, name), one.dtype), shape, one.dtype)
        ones = [Size(1) if a == axis else 1 for a in range(one.dim())]
        return self.handle(self.node("Expand", self.held(one).name, self.sizes(ones)), shape, one.dtype)

    # steps

    def write(self, steps: Sequence[Step], known: Mapping[int, Value]) -> None:
        """Write steps of a program whose values so far are in `values`."""
        for step in steps:
            names = self.written(step, [known[index] for index in step.outputs])
            for index, name in zip(step.outputs, names, strict=True):
                value = known[index]
                if value.dtype not in DTYPES:
                    raise CannotExport(f"export: {value.dtype} cannot be written to an ONNX file.")
                self.values[index] = Handle(value.shape, value.dtype, name)

    def written(self, step: Step, out: list[Value]) -> list[str]:
        """Write one step, of which `out` is known; returns the names of its results."""
        self.out = out
        made = self._made(step)
        return made if isinstance(made, list) else [made]

    def _made(self, step: Step) -> Any:
        write = _WRITERS.get(step.name)
        if write is None:
            raise CannotExport(
                f"export: `model` calls {step.name}, which cannot be written to an ONNX file yet; "
                'format="torch" may take it.'
            )
        args = tuple(mapped(part, Ref | Tensor | ForRows, self._handle) for part in step.args)
        kwargs = {
            _RENAMED.get(name, name): mapped(part, Ref | Tensor | ForRows, self._handle)
            for name, part in step.kwargs.items()
            if name not in _DROPPED
        }
        try:
            return write(self, *args, **kwargs)
        except CannotExport as error:
            raise CannotExport(f"export: `model` calls {step.name} {error}") from None
        except TypeError as error:
            raise CannotExport(
                f"export: `model` calls {step.name} in a way that no ONNX file can be told ({error})."
            ) from error

    def _handle(self, part: Ref | Tensor | ForRows) -> Handle:
        if isinstance(part, Ref):
            return self.values[part.index]
        return self.held(part) if isinstance(part, Tensor) else self.spread(part)
