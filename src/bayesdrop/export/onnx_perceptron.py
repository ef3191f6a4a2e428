"""The draws of a perceptron in ONNX: several at a time, and only the kept units where that is less work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesdrop.errors import require
from bayesdrop.export.nodes import DTYPES, Handle, Writer, turned
from bayesdrop.export.packing import Packed
from bayesdrop.export.program import Program, Size, Step, Value
from bayesdrop.inputs import tensors_in
from bayesdrop.operations import TABLE
from bayesdrop.trace import Leaf, Ref

__all__ = ["LARGE_ROWS", "Chain", "chain_of", "write_chain"]

#: draws in one product: of batches of any size, and of small ones alone
_DRAWS, _SMALL_DRAWS = 5, 10
#: rows, weights and the share of kept units from which on gathering the kept units is less work
LARGE_ROWS, _WEIGHTS, _KEPT = 128, 2**16, 0.7


@dataclass(frozen=True)
class _Part:
    """A part of a chain: a mask, a linear map, or a function of every element."""

    leaf: Leaf | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None
    step: Step | None = None


@dataclass(frozen=True)
class Chain:
    """A perceptron: what it starts from, and its parts."""

    start: int
    parts: tuple[_Part, ...]
    width: int

    def kept_units_pay(self, noise: dict[int, Packed]) -> bool:
        """Whether large batches gain by multiplying kept units alone."""
        weights, kept = 0, 0.0
        previous: _Part | None = None
        for part in self.parts:
            if part.weight is not None:
                size = part.weight.numel()
                share = 1.0
                if previous is not None and previous.leaf is not None:
                    share = _kept_share(noise[previous.leaf.index])
                weights, kept = weights + size, kept + share * size
            elif previous is not None and previous.leaf is not None:
                return False
            previous = part
        scales = [packed.scale for packed in noise.values()]
        plain = all(scale is not None and scale.dim() == 0 for scale in scales)
        return plain and weights >= _WEIGHTS and kept <= _KEPT * weights


def _kept_share(packed: Packed) -> float:
    if packed.bits is None:
        return 1.0
    ones = sum(int(((packed.bits >> place) & 1).sum()) for place in range(8))
    return ones / (packed.num_draws * max(1, torch.Size(packed.shape).numel()))


def chain_of(program: Program, after: Sequence[Step]) -> Chain | None:
    """The steps of a draw as a perceptron; None if they are something else."""
    leaves = {leaf.index: leaf for leaf in program.leaves}
    start: int | None = None
    latest: int | None = None
    parts: list[_Part] = []
    for step in after:
        if len(step.outputs) != 1 or len(program.values[step.outputs[0]].shape) != 2:
            return None
        found = _part(step, leaves, program)
        if found is None:
            return None
        part, given = found
        if latest is None:
            start = given
        elif given != latest:
            return None
        parts.append(part)
        latest = step.outputs[0]
    first = None if start is None else program.values[start]
    if start is None or first is None or latest != program.outputs[0] or len(first.shape) != 2:
        return None
    width = program.values[program.outputs[0]].shape[1]
    if first.dtype != torch.float32 or isinstance(width, Size):
        return None
    return Chain(start, tuple(parts), width)


def _part(step: Step, leaves: dict[int, Leaf], program: Program) -> tuple[_Part, int] | None:
    """A step as a part of a chain, and the value it is applied to."""
    if step.name in ("mul", "multiply") and len(step.args) == 2 and not step.kwargs:
        for one, other in (step.args, step.args[::-1]):
            if (
                isinstance(one, Ref)
                and isinstance(other, Ref)
                and other.index in leaves
                and one.index not in leaves
            ):
                leaf = leaves[other.index]
                if leaf.shape == (1, program.values[one.index].shape[-1]):
                    return _Part(leaf=leaf), one.index
        return None
    if (
        any(index in leaves for index in step.refs)
        or len(step.refs) != 1
        or not isinstance(step.args[0], Ref)
    ):
        return None
    given = step.args[0].index
    if step.name == "linear":
        named = dict(zip(("weight", "bias"), step.args[1:], strict=False)) | step.kwargs
        weight, bias = named.get("weight"), named.get("bias")
        plain = (
            isinstance(weight, Tensor) and weight.dim() == 2 and (bias is None or isinstance(bias, Tensor))
        )
        return (_Part(weight=weight, bias=bias), given) if plain else None
    row = TABLE.get(step.name)
    if row is None or not row.elementwise or tensors_in((step.args, step.kwargs)):
        return None
    return _Part(step=step), given


def write_chain(main: Writer, chain: Chain, noise: dict[int, tuple[str, Packed]], num_draws: int) -> str:
    """Write the draws of a perceptron; returns the name of (T, N, outputs).

    Args:
        main: the graph.
        chain: the perceptron.
        noise: names of the noise (T, 1, units) of every leaf, and what it is.
        num_draws: T.
    """
    packed = {index: one for index, (_, one) in noise.items()}
    if main.rows is None or not chain.kept_units_pay(packed):
        return _stacked(main, chain, noise, num_draws, _DRAWS)
    many = main.node("GreaterOrEqual", main.rows, main.whole(LARGE_ROWS))
    condition = main.node("Reshape", many, main.whole())
    branches = {
        "then_branch": _branch(main, "kept_units", lambda w: _kept(w, chain, noise)),
        "else_branch": _branch(main, "stacked", lambda w: _stacked(w, chain, noise, num_draws, _SMALL_DRAWS)),
    }
    return main.node("If", condition, **branches)


def _branch(main: Writer, title: str, write: Any) -> Any:
    helper = require("onnx.helper", extra="onnx", owner="export")
    inner = Writer(main.weights, main.rows, main)
    name = inner.node("Identity", write(inner))
    return helper.make_graph(inner.nodes, title, [], [helper.make_tensor_value_info(name, 1, None)])


def _scan(w: Writer, inputs: list[tuple[str, list[int]]], write: Any) -> str:
    """A loop over axis 0 of some values, each given with the shape of one slice."""
    helper = require("onnx.helper", extra="onnx", owner="export")
    body = Writer(w.weights, w.rows, w)
    names = [w.weights.fresh("noise") for _ in inputs]
    given = [
        helper.make_tensor_value_info(name, DTYPES[torch.float32], shape)
        for name, (_, shape) in zip(names, inputs, strict=True)
    ]
    end = body.node("Identity", write(body, names))
    graph = helper.make_graph(body.nodes, "draws", given, [helper.make_tensor_value_info(end, 1, None)])
    return w.node("Scan", *(name for name, _ in inputs), body=graph, num_scan_inputs=len(inputs))


def _applied(body: Writer, part: _Part, name: str, shape: Any) -> str:
    """A function of every element."""
    assert part.step is not None
    body.values[part.step.args[0].index] = Handle(shape, torch.float32, name)
    return body.written(part.step, [Value(shape, torch.float32)])[0]


def _stacked(
    w: Writer, chain: Chain, noise: dict[int, tuple[str, Packed]], num_draws: int, together: int
) -> str:
    """Several draws in one product: (C, N, units) by the weights; `together` is the most of them."""
    chunks = -(-num_draws // together)
    size = -(-num_draws // chunks)
    inputs = []
    for name, packed in noise.values():
        units = packed.shape[1]
        full = name
        if chunks * size > num_draws:
            # Draws that only fill the last product; they are cut off again.
            empty = w.constant(torch.zeros(chunks * size - num_draws, 1, units))
            full = w.node("Concat", name, empty, axis=0)
        inputs.append((w.node("Reshape", full, w.whole(chunks, size, 1, units)), [size, 1, units]))
    order = list(noise)

    def write(body: Writer, names: list[str]) -> str:
        masks = dict(zip(order, names, strict=True))
        at = w.values[chain.start].name
        for part in chain.parts:
            if part.leaf is not None:
                at = body.node("Mul", at, masks[part.leaf.index])
            elif part.weight is not None:
                at = body.node("MatMul", at, turned(body, body.held(part.weight)))
                at = at if part.bias is None else body.node("Add", at, body.held(part.bias).name)
            else:
                at = _applied(body, part, at, (size, Size(1), 1))
        return at

    stacked = _scan(w, inputs, write)
    flat = w.node("Reshape", stacked, w.whole(chunks * size, -1, chain.width))
    if chunks * size == num_draws:
        return flat
    return w.node("Slice", flat, w.whole(0), w.whole(num_draws), w.whole(0))


def _kept(w: Writer, chain: Chain, noise: dict[int, tuple[str, Packed]]) -> str:
    """Draw after draw, units by rows: the rows of kept units alone are gathered, and multiplied."""
    inputs = []
    for name, packed in noise.values():
        units = packed.shape[1]
        inputs.append((w.node("Reshape", name, w.whole(-1, units)), [units]))
    order = list(noise)
    start = w.node("Transpose", w.values[chain.start].name, perm=[1, 0])

    def write(body: Writer, names: list[str]) -> str:
        masks = dict(zip(order, names, strict=True))
        at, kept, alpha = start, "", 1.0
        for part in chain.parts:
            if part.leaf is not None:
                scale = noise[part.leaf.index][1].scale
                assert scale is not None
                places = body.node("NonZero", masks[part.leaf.index])
                kept, alpha = body.node("Reshape", places, body.whole(-1)), float(scale)
            elif part.weight is not None:
                weight = turned(body, body.held(part.weight))
                if kept:
                    at = body.node("Gather", at, kept, axis=0)
                    weight = body.node("Gather", weight, kept, axis=0)
                added = (
                    []
                    if part.bias is None
                    else [body.node("Unsqueeze", body.held(part.bias).name, body.whole(1))]
                )
                at = body.node("Gemm", weight, at, *added, transA=1, alpha=alpha)
                kept, alpha = "", 1.0
            else:
                at = _applied(body, part, at, (1, Size(1)))
        return at

    return w.node("Transpose", _scan(w, inputs, write), perm=[0, 2, 1])
