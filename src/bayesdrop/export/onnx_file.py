"""The whole graph of an ONNX file: what runs once, a loop over draws, and what is said of the draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bayesdrop.errors import require
from bayesdrop.export.nodes import DTYPES, IR_VERSION, OPSET, CannotExport, Handle, Weights, Writer
from bayesdrop.export.onnx_perceptron import chain_of, write_chain
from bayesdrop.export.packing import Packed
from bayesdrop.export.program import Dims, Program, Size, Value
from bayesdrop.trace import Leaf
from bayesdrop.version import __version__

__all__ = ["Plan", "onnx_model"]

#: bytes of unpacked noise up to which it is unpacked once, when a file is loaded; beyond, draw by draw
_READY = 4 * 2**20
#: ONNX files are at most so large
_LARGEST = 2**31 - 2**20


@dataclass(frozen=True, eq=False)
class Plan:
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


def onnx_model(plan: Plan) -> Any:
    """The file's content, a `ModelProto`."""
    helper = require("onnx.helper", extra="onnx", owner="export")
    program, weights = plan.program, Weights()
    weights.titles = dict(plan.titles)
    first = program.values[program.inputs[0]]
    main = Writer(weights, None)
    if any(isinstance(size, Size) for size in first.shape):
        main.rows = main.node("Shape", plan.inputs[0], start=0, end=1)
    for index, name in zip(program.inputs, plan.inputs, strict=True):
        value = program.values[index]
        main.values[index] = Handle(value.shape, value.dtype, name)
    before, after = program.parts()
    main.write(before, program.values)
    noise = [_noise_input(main, leaf, place, plan) for place, leaf in enumerate(program.leaves)]
    draws = _loop(main, plan, after, noise)
    tail = Writer(weights, main.rows, main)
    tail.values = {plan.tail.inputs[0]: draws}
    tail.write(plan.tail.steps, plan.tail.values)
    main.nodes += tail.nodes
    results = []
    for index, name in zip(plan.tail.outputs, plan.outputs, strict=True):
        value = plan.tail.values[index]
        main.nodes.append(helper.make_node("Identity", [tail.values[index].name], [name]))
        results.append(_info(name, value.shape, value))
    given = [
        _info(n, program.values[i].shape, program.values[i])
        for i, n in zip(program.inputs, plan.inputs, strict=True)
    ]
    if plan.noise is None:
        for leaf, name in zip(program.leaves, plan.noise_names, strict=True):
            given.append(_info(name, ("draws", *leaf.shape), Value(leaf.shape, leaf.dtype)))
    used = set(_used(main.nodes))
    kept = [tensor for name, tensor in weights.tensors.items() if name in used]
    size = sum(len(tensor.raw_data) for tensor in kept)
    if size > _LARGEST:
        raise CannotExport(
            f"export: {size / 2**30:.1f} GB do not fit into an ONNX file, which has at most 2 GB; "
            'use format="torch".'
        )
    graph = helper.make_graph(main.nodes, "bayesdrop", given, results, kept)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="bayesdrop",
        producer_version=__version__,
    )
    helper.set_model_props(model, dict(plan.facts))
    return model


def _info(name: str, shape: Iterable[Any], value: Value) -> Any:
    helper = require("onnx.helper", extra="onnx", owner="export")
    return helper.make_tensor_value_info(name, DTYPES[value.dtype], [_dim(size) for size in shape])


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


def _noise_input(main: Writer, leaf: Leaf, place: int, plan: Plan) -> _Noise:
    if plan.noise is None:
        return _Noise(leaf, plan.noise_names[place], None, leaf.shape, False)
    found = plan.noise[place]
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


def _loop(main: Writer, plan: Plan, after: Sequence[Any], noise: list[_Noise]) -> Handle:
    """A Scan over the noise, whose body is one draw. Weights are those of the graph around it."""
    helper = require("onnx.helper", extra="onnx", owner="export")
    program = plan.program
    chain = None if plan.noise is None or any(one.is_bits for one in noise) else chain_of(program, after)
    if chain is not None:
        known = {one.leaf.index: (one.name, one.packed) for one in noise if one.packed is not None}
        whole = program.values[program.outputs[0]]
        return Handle(
            (plan.num_draws, *whole.shape), whole.dtype, write_chain(main, chain, known, plan.num_draws)
        )
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
    graph = helper.make_graph(body.nodes, "draw", given, [_info(end, value.shape, value)])
    stacked = main.node("Scan", *(one.name for one in noise), body=graph, num_scan_inputs=len(noise))
    lead: Any = plan.num_draws
    shape: Dims = (lead, *value.shape)
    return Handle(shape, value.dtype, stacked)
