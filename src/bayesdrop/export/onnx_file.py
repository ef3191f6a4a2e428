"""The whole graph of an ONNX file: what runs once, a loop over draws, and what is said of the draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bayesdrop.errors import require
from bayesdrop.export.nodes import DTYPES, IR_VERSION, OPSET, CannotExport, Handle, Weights, Writer
from bayesdrop.export.onnx_perceptron import LARGE_ROWS, chain_of, write_chain
from bayesdrop.export.packing import Packed
from bayesdrop.export.program import Program, Size, Step, Value
from bayesdrop.trace import Leaf
from bayesdrop.version import __version__

__all__ = [
    "GraphPlan",
    "finished",
    "named_value",
    "onnx_model",
    "rows_of",
    "rows_to_try",
    "write_draws",
    "write_quantities",
]

#: bytes of unpacked noise up to which it is unpacked once, when a file is loaded; beyond, draw by draw
_READY = 4 * 2**20
#: the number of texts among ONNX's dtypes
_TEXT = 8
#: ONNX files are at most so large
_LARGEST = 2**31 - 2**20


@dataclass(frozen=True, eq=False)
class GraphPlan:
    """All that a file holds, whatever its format.

    Attributes:
        program: of the model, for any rows and the noise of one draw.
        tail: from the draws (T, N, ...) to the outputs.
        noise: of every leaf of the program; None if it is given when the file is run.
        inputs: names of the inputs.
        outputs: names of the outputs.
        noise_names: of the leaves.
        facts: what the file says of itself.
        titles: names of the model's tensors, by their ids.
        num_draws: T.
    """

    program: Program
    tail: Program
    noise: list[Packed] | None
    inputs: list[str]
    outputs: list[str]
    noise_names: list[str]
    facts: Mapping[str, str]
    titles: Mapping[int, str]
    num_draws: int


def onnx_model(plan: GraphPlan) -> Any:
    """The file's content, a `ModelProto`."""
    program, weights = plan.program, Weights()
    weights.titles = dict(plan.titles)
    weights.reserved = {*plan.inputs, *plan.outputs, *plan.noise_names}
    main = Writer(weights, None)
    first = program.values[program.inputs[0]]
    if any(isinstance(size, Size) for size in first.shape):
        main.rows = rows_of(main, plan.inputs[0])
    values = [program.values[index] for index in program.inputs]
    given = [Handle(value.shape, value.dtype, name) for value, name in zip(values, plan.inputs, strict=True)]
    draws = write_draws(main, program, given, plan.noise, plan.noise_names, plan.num_draws)
    ends = write_quantities(main, plan.tail, draws)
    known = [named_value(one.name, one.shape, one) for one in given]
    if plan.noise is None:
        for leaf, name in zip(program.leaves, plan.noise_names, strict=True):
            known.append(named_value(name, ("draws", *leaf.shape), Value(leaf.shape, leaf.dtype)))
    return finished(main, known, dict(zip(plan.outputs, ends, strict=True)), plan.facts)


def rows_to_try(model: Any) -> tuple[int, ...]:
    """Numbers of rows that take every branch of a graph: large batches may have one of their own."""
    return (1, 4, LARGE_ROWS) if any(node.op_type == "If" for node in model.graph.node) else (1, 4)


def rows_of(main: Writer, name: str) -> str:
    """The number of rows of an input, a vector of one number."""
    return main.node("Shape", name, start=0, end=1)


def write_draws(
    main: Writer,
    program: Program,
    given: Sequence[Handle],
    noise: Sequence[Packed] | None,
    names: Sequence[str],
    num_draws: int,
) -> Handle:
    """Write all draws of a program into a graph; returns their outputs (T, N, ...).

    Args:
        main: the graph.
        program: of one draw.
        given: its inputs.
        noise: of every leaf; None if these are inputs of the graph.
        names: of the noise, where it is an input.
        num_draws: T.
    """
    own = main.beside()
    own.values = dict(zip(program.inputs, given, strict=True))
    before, after = program.parts()
    own.write(before, program.values)
    packed = list(noise) if noise is not None else None
    parts = [
        _noise_input(
            own, leaf, names[place] if packed is None else "", None if packed is None else packed[place]
        )
        for place, leaf in enumerate(program.leaves)
    ]
    return _loop(own, program, after, parts, num_draws)


def write_quantities(main: Writer, tail: Program, draws: Handle) -> list[Handle]:
    """Write what is said of draws; returns the values in their order."""
    own = main.beside()
    own.values = {tail.inputs[0]: draws}
    own.write(tail.steps, tail.values)
    return [own.values[index] for index in tail.outputs]


def finished(main: Writer, given: list[Any], ends: Mapping[str, Handle], facts: Mapping[str, str]) -> Any:
    """The model of a graph.

    Args:
        main: the graph.
        given: its inputs, as `named_value` makes them.
        ends: its outputs by name.
        facts: what the file says of itself.
    """
    helper = require("onnx.helper", extra="onnx", owner="export")
    results = []
    for name, value in ends.items():
        main.nodes.append(helper.make_node("Identity", [value.name], [name]))
        results.append(named_value(name, value.shape, value))
    used = set(_used(main.nodes))
    kept = [tensor for name, tensor in main.weights.tensors.items() if name in used]
    size = sum(len(tensor.raw_data) for tensor in kept)
    if size > _LARGEST:
        raise CannotExport(
            f"export: {size / 2**30:.1f} GB do not fit into an ONNX file, which has at most 2 GB; "
            'use format="torch".'
        )
    graph = helper.make_graph(main.nodes, "bayesdrop", given, results, kept)
    operators = [helper.make_opsetid("", OPSET)]
    if any(node.domain == "ai.onnx.ml" for node in main.nodes):
        operators.append(helper.make_opsetid("ai.onnx.ml", 3))
    model = helper.make_model(
        graph,
        opset_imports=operators,
        ir_version=IR_VERSION,
        producer_name="bayesdrop",
        producer_version=__version__,
    )
    helper.set_model_props(model, dict(facts))
    return model


def named_value(name: str, shape: Iterable[Any], value: Value) -> Any:
    """An input or output of a graph."""
    helper = require("onnx.helper", extra="onnx", owner="export")
    kind = _TEXT if getattr(value, "is_text", False) else DTYPES[value.dtype]
    return helper.make_tensor_value_info(name, kind, [_dim(size) for size in shape])


def _dim(size: Any) -> Any:
    if not isinstance(size, Size):
        return size
    return "N" if (size.times, size.plus) == (1, 0) else f"{size.times}N+{size.plus}"


def _used(nodes: Iterable[Any]) -> Iterator[str]:
    """Every name that a node reads, in the graphs inside it too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _used(attribute.g.node)
                yield from (output.name for output in attribute.g.output)


# noise


@dataclass(frozen=True)
class _Noise:
    """What the loop over draws is given for a leaf: its name, the shape of one draw, and what it is."""

    leaf: Leaf
    name: str
    packed: Packed | None
    shape: tuple[int, ...]
    is_bits: bool


def _noise_input(main: Writer, leaf: Leaf, name: str, found: Packed | None) -> _Noise:
    if found is None:
        return _Noise(leaf, name, None, leaf.shape, False)
    if found.bits is None:
        assert found.numbers is not None
        return _Noise(leaf, main.held(found.numbers).name, found, leaf.shape, False)
    bits = main.held(found.bits).name
    if found.num_draws * math.prod(leaf.shape) * 4 > _READY:
        return _Noise(leaf, bits, found, (found.bits.shape[1],), True)
    return _Noise(leaf, unpacked(main, bits, found, leaf, (found.num_draws,)), found, leaf.shape, False)


def unpacked(w: Writer, bits: str, found: Packed, leaf: Leaf, lead: tuple[int, ...]) -> str:
    """Noise (*lead, *shape) from its bits (*lead, bytes)."""
    assert found.scale is not None
    whole = w.node("Unsqueeze", w.node("Cast", bits, to=6), w.whole(-1))
    shifted = w.node("Div", whole, w.constant([1, 2, 4, 8, 16, 32, 64, 128], torch.int32))
    units = w.node("Cast", w.node("Mod", shifted, w.constant(2, torch.int32)), to=DTYPES[leaf.dtype])
    units = w.node("Reshape", units, w.whole(*lead, -1))
    if math.prod(found.shape) % 8:
        axis = len(lead)
        units = w.node("Slice", units, w.whole(0), w.whole(math.prod(found.shape)), w.whole(axis))
    shaped = w.node("Reshape", units, w.whole(*lead, *found.shape))
    return w.node("Mul", shaped, w.held(found.scale).name)


# the loop over draws


def _loop(
    main: Writer, program: Program, after: Sequence[Step], noise: list[_Noise], num_draws: int
) -> Handle:
    """A Scan over the noise, whose body is one draw. Weights are those of the graph around it."""
    helper = require("onnx.helper", extra="onnx", owner="export")
    known = {one.leaf.index: (one.name, one.packed) for one in noise if one.packed is not None}
    ready = len(known) == len(noise) and not any(one.is_bits for one in noise)
    chain = chain_of(program, after) if ready else None
    if chain is not None:
        whole = program.values[program.outputs[0]]
        return Handle((num_draws, *whole.shape), whole.dtype, write_chain(main, chain, known, num_draws))
    body = Writer(main.weights, main.rows, main)
    given = []
    for one in noise:
        name = main.weights.fresh("noise")
        dtype = 2 if one.is_bits else DTYPES[one.leaf.dtype]
        given.append(helper.make_tensor_value_info(name, dtype, list(one.shape)))
        if one.is_bits:
            assert one.packed is not None
            name = unpacked(body, name, one.packed, one.leaf, ())
        body.values[one.leaf.index] = Handle(one.leaf.shape, one.leaf.dtype, name)
    body.write(after, program.values)
    index = program.outputs[0]
    value = program.values[index]
    end = body.node("Identity", body.values[index].name)
    graph = helper.make_graph(body.nodes, "draw", given, [named_value(end, value.shape, value)])
    stacked = main.node("Scan", *(one.name for one in noise), body=graph, num_scan_inputs=len(noise))
    return Handle((num_draws, *value.shape), value.dtype, stacked)
