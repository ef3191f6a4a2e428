"""Tapes rewritten to cost less: noise folded into weights, images stored channels last, perceptrons found.

Noise that multiplies the inputs of a linear map can multiply its weights instead: (x * z) W = x (z W).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.execute.perceptron import Map, Perceptron, Step, elementwise
from bayesdrop.functional.products import LARGE, ONEDNN, linear
from bayesdrop.operations import CONVOLUTIONS, TABLE, canonical
from bayesdrop.trace import Leaf, Op, Ref, Tape

__all__ = [
    "Masked",
    "as_perceptron",
    "channels_last",
    "fast_products",
    "fold",
    "fold_norms",
    "folded_convolution",
    "in_place",
    "masked_maps",
    "users_of",
]


@dataclass(frozen=True)
class Masked:
    """A linear map or convolution of `x * noise`, the noise being one value for each input unit."""

    x: Any  #: a Ref, or a constant
    leaf: Leaf
    weight: Tensor
    bias: Tensor | None
    #: stride, padding, dilation, groups of a convolution; None for a linear map
    geometry: tuple[Any, ...] | None
    shape: tuple[int, ...]  #: of the masked input
    multiply: int  #: place of the multiplication on the tape
    apply: int  #: place of the map on the tape

    @property
    def folding_is_cheaper(self) -> bool:
        """Whether the weights have fewer elements than the input that would be multiplied instead."""
        return self.weight.numel() < math.prod(self.shape)


def masked_maps(tape: Tape) -> list[Masked]:
    """The maps with constant weights whose input, used nowhere else, is multiplied by one noise a unit."""
    if tape.mutates:
        # The tape reads a product before its input changes in place; a folded map would read that input
        # later.
        return []
    leaves = {leaf.index: leaf for leaf in tape.leaves}
    users = users_of(tape)
    found = []
    for step, op in enumerate(tape.ops):
        product = _product_with_leaf(op, leaves)
        if product is None or op.outputs[0] == tape.output:
            continue
        consumers = users.get(op.outputs[0], [])
        if len(consumers) != 1:
            continue
        x, leaf = product
        masked = _map_of(tape.ops[consumers[0]], op, x, leaf, (step, consumers[0]))
        if masked is not None:
            found.append(masked)
    return found


_MULTIPLY = frozenset({"mul", "multiply", "rmul"})


def _product_with_leaf(op: Op, leaves: dict[int, Leaf]) -> tuple[Any, Leaf] | None:
    if canonical(op.func) not in _MULTIPLY or len(op.args) != 2 or op.kwargs:
        return None
    for first, second in (op.args, op.args[::-1]):
        if isinstance(second, Ref) and second.index in leaves:
            is_noise = isinstance(first, Ref) and first.index in leaves
            if isinstance(first, Ref | Tensor) and not is_noise:
                return first, leaves[second.index]
    return None


def _map_of(op: Op, product: Op, x: Any, leaf: Leaf, place: tuple[int, int]) -> Masked | None:
    """`op` as a masked map; None if its weights are not constant or its noise is not one value a unit."""
    values = list(op.args)
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    named = dict(zip(names, values, strict=False)) | op.kwargs
    shape = product.shapes[0]
    weight, bias = named.get("weight"), named.get("bias")
    if len(op.refs) != 1 or not isinstance(weight, Tensor) or named.get("input") != Ref(product.outputs[0]):
        return None
    if op.name == "linear":
        unit = len(shape) - 1
        geometry = None
    elif op.name in CONVOLUTIONS and len(shape) == CONVOLUTIONS[op.name] + 2:
        unit = 1
        geometry = (
            named.get("stride", 1),
            named.get("padding", 0),
            named.get("dilation", 1),
            named.get("groups", 1),
        )
    else:
        return None
    if leaf.shape != tuple(size if axis == unit else 1 for axis, size in enumerate(shape)):
        return None
    return Masked(x, leaf, weight, bias, geometry, shape, *place)


def _folded_linear(x: Tensor, noise: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return linear(x, weight * noise.reshape(-1), bias)


def folded_convolution(
    x: Tensor, noise: Tensor, weight: Tensor, bias: Tensor | None, geometry: tuple[Any, ...]
) -> Tensor:
    """The convolution of `x * noise`, the noise, (1, C, ...), being one value for each channel.

    Args:
        x: (N, C, ...).
        noise: multiplies the weights instead of `x`.
        weight: of the convolution.
        bias: of the convolution, or None.
        geometry: its stride, padding, dilation and groups.
    """
    groups, width = geometry[3], weight.shape[1]
    rows = noise.reshape(groups, 1, width).expand(groups, weight.shape[0] // groups, width)
    spatial = weight.dim() - 2
    scaled = weight * rows.reshape(weight.shape[0], width, *[1] * spatial)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    out: Tensor = convolve(x, scaled, bias, *geometry)
    return out


def _folded(m: Masked, op: Op) -> Op:
    args = (m.x, Ref(m.leaf.index), m.weight, m.bias)
    if m.geometry is None:
        return Op(_folded_linear, args, {}, op.outputs, op.shapes)
    return Op(folded_convolution, (*args, m.geometry), {}, op.outputs, op.shapes)


def fold(tape: Tape) -> Tape:
    """The same tape with noise folded into the weights of maps that have fewer weights than inputs."""
    masked = [m for m in masked_maps(tape) if m.folding_is_cheaper]
    if not masked:
        return tape
    gone = {m.multiply for m in masked}
    at = {m.apply: m for m in masked}
    ops = []
    for step, op in enumerate(tape.ops):
        if step in gone:
            continue
        ops.append(_folded(at[step], op) if step in at else op)
    return Tape(ops, tape.leaves, tape.output, tape.size, tape.mutates)


def as_perceptron(tape: Tape) -> Perceptron | None:
    """The tape as a perceptron, or None if it is something else."""
    if tape.mutates or not tape.ops:
        return None
    masked = {m.apply: m for m in masked_maps(tape) if m.geometry is None and len(m.shape) == 2}
    products = {m.multiply for m in masked.values()}
    leaves = {leaf.index for leaf in tape.leaves}
    steps: list[Step] = []
    start: Tensor | None = None
    latest: int | None = None
    for place, op in enumerate(tape.ops):
        if place in products:
            continue
        found = masked.get(place)
        if found is not None:
            x = found.x
            steps.append(Map(found.leaf, found.weight, found.bias))
        elif any(index in leaves for index in op.refs) or len(op.refs) != 1:
            return None
        else:
            x = Ref(op.refs[0])
            step = _plain_step(op)
            if step is None:
                return None
            steps.append(step)
        if isinstance(x, Tensor):
            if latest is not None:
                return None
            start = x
        elif latest is None or x.index != latest:
            return None
        latest = op.outputs[0]
    if latest != tape.output or start is None or start.dim() != 2:
        return None
    return Perceptron(start, steps)


def _plain_step(op: Op) -> Step | None:
    if len(op.shapes) != 1 or len(op.shapes[0]) != 2:
        return None
    if op.name == "linear" and isinstance(op.args[0], Ref):
        weight = op.args[1]
        bias = op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
        return Map(None, weight, bias)
    if not op.args or not isinstance(op.args[0], Ref):
        return None
    return elementwise(op.func, op.args[1:], {k: v for k, v in op.kwargs.items() if k != "inplace"})


def users_of(tape: Tape) -> dict[int, list[int]]:
    """From every value to the places of the operations that use it."""
    users: dict[int, list[int]] = {}
    for step, op in enumerate(tape.ops):
        for index in op.refs:
            users.setdefault(index, []).append(step)
    return users


def fold_norms(tape: Tape) -> Tape:
    """The same tape with batch norms (in eval mode) folded into the linear maps or convolutions before them.

    (x W + b - m) s + c = x (W s) + ((b - m) s + c),    s = w / sqrt(v + eps)
    """
    norms = [step for step, op in enumerate(tape.ops) if op.func in (F.batch_norm, torch.batch_norm)]
    if tape.mutates or not norms:
        return tape
    users = users_of(tape)
    makers = {index: step for step, op in enumerate(tape.ops) for index in op.outputs}
    ops: list[Op | None] = list(tape.ops)
    for step in norms:
        norm = tape.ops[step]
        maker = makers.get(norm.refs[0]) if len(norm.refs) == 1 else None
        if maker is None or users[norm.refs[0]] != [step] or norm.refs[0] == tape.output:
            continue
        joined = _joined(tape.ops[maker], norm)
        if joined is not None:
            ops[maker], ops[step] = None, joined
    kept = [op for op in ops if op is not None]
    return Tape(kept, tape.leaves, tape.output, tape.size, tape.mutates)


_NORM = {
    F.batch_norm: ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    torch.batch_norm: (
        *("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"),
        "cudnn_enabled",
    ),
}


def _joined(layer: Op, norm: Op) -> Op | None:
    """A layer and the norm after it as one layer; None if they cannot be joined."""
    given = {"eps": 1e-5} | dict(zip(_NORM[norm.func], norm.args, strict=False)) | norm.kwargs
    if layer.name not in ("linear", *CONVOLUTIONS) or given.get("training"):
        return None
    named = dict(zip(("input", "weight", "bias"), layer.args, strict=False)) | layer.kwargs
    weight, bias = named.get("weight"), named.get("bias")
    mean, variance = given.get("running_mean"), given.get("running_var")
    if not isinstance(weight, Tensor) or not isinstance(mean, Tensor) or not isinstance(variance, Tensor):
        return None
    if (
        len(layer.refs) != 1
        or given["input"] != Ref(layer.outputs[0])
        or len(layer.shapes[0]) != weight.dim()
    ):
        return None
    scale = (variance + given["eps"]).rsqrt()
    scale = scale if given.get("weight") is None else scale * given["weight"]
    shift = -mean * scale if bias is None else (bias - mean) * scale
    shift = shift if given.get("bias") is None else shift + given["bias"]
    rest = {key: value for key, value in layer.kwargs.items() if key not in ("input", "weight", "bias")}
    args = (named["input"], weight * scale.reshape(-1, *[1] * (weight.dim() - 1)), shift, *layer.args[3:])
    return Op(layer.func, args, rest, norm.outputs, norm.shapes)


def in_place(tape: Tape) -> Tape:
    """The same tape, in which an operation may overwrite an input that nothing else uses.

    Allocating memory costs more than the arithmetic of an element-wise function.
    """
    if tape.mutates:
        return tape
    users = users_of(tape)
    fresh: dict[int, tuple[int, ...]] = {}
    ops: list[Op] = []
    for op in tape.ops:
        ops.append(_over(op, [i for i in op.refs if i in fresh and users[i] == [len(ops)]], fresh))
        row = TABLE.get(op.name)
        known = row is not None and (row.product or row.elementwise or row.arithmetic)
        if known or op.name in _OURS:
            fresh |= dict(zip(op.outputs, op.shapes, strict=True))
    return Tape(ops, tape.leaves, tape.output, tape.size, tape.mutates)


#: functions of this package whose results are new tensors
_OURS = frozenset({"_folded_linear", "folded_convolution", "_split_convolution", "_kept_convolutions"})


def _over(op: Op, own: list[int], fresh: dict[int, tuple[int, ...]]) -> Op:
    """The operation, overwriting one of the values in `own` if it can and the shapes agree."""
    name = canonical(op.func)
    if op.kwargs.keys() - {"inplace"} or not own or fresh[own[0]] != op.shapes[0]:
        return op
    if name == "relu" and op.args == (Ref(own[0]),):
        return Op(torch.relu_, op.args, {}, op.outputs, op.shapes)
    if name == "add" and len(op.args) == 2 and all(isinstance(a, Ref | Tensor) for a in op.args):
        other = op.args[1] if op.args[0] == Ref(own[0]) else op.args[0]
        if other != Ref(own[0]):
            return Op(_added, (Ref(own[0]), other), {}, op.outputs, op.shapes)
    return op


def _added(x: Tensor, y: Tensor) -> Tensor:
    # A sum that is promoted to a wider dtype does not fit into x.
    return x.add_(y) if torch.result_type(x, y) == x.dtype else x + y


def fast_products(tape: Tape) -> Tape:
    """The same tape with large linear maps by the fastest kernel of this machine."""
    if not ONEDNN:
        return tape
    ops = [Op(linear, op.args, op.kwargs, op.outputs, op.shapes) if _is_large(op) else op for op in tape.ops]
    return Tape(ops, tape.leaves, tape.output, tape.size, tape.mutates)


def _is_large(op: Op) -> bool:
    """Whether this is a linear map whose product is worth a kernel of its own."""
    weight = op.args[1] if len(op.args) > 1 else op.kwargs.get("weight")
    if op.func is not F.linear or "input" in op.kwargs or not isinstance(weight, Tensor):
        return False
    return bool(math.prod(op.shapes[0]) * weight.shape[-1] >= LARGE)


def channels_last(tape: Tape) -> Tape:
    """The same tape with images stored channels last, if that makes its convolutions faster on the whole."""
    if sum(map(_gain, tape.ops)) <= 0:
        return tape
    if tape.mutates or any(op.name in _READS_STRIDES for op in tape.ops):
        return tape

    def turned(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        if type(value) in (list, tuple):  # what is concatenated
            return type(value)(turned(part) for part in value)
        return value

    ops = [
        Op(
            Tensor.reshape if op.name == "view" else op.func,
            tuple(turned(value) for value in op.args),
            {name: turned(value) for name, value in op.kwargs.items()},
            op.outputs,
            op.shapes,
        )
        for op in tape.ops
    ]
    return Tape(ops, tape.leaves, tape.output, tape.size, tape.mutates)


_READS_STRIDES = frozenset({"as_strided", "stride", "storage_offset", "data_ptr"})


# On one core with AVX-512, in multiply-adds: the share that a convolution saves where it has a window, and
# that it loses where it has none and its channels do not fill the registers; and what a maximum saves.
_SAVED, _LOST, _POOLED = 0.1, 0.7, 600


def _gain(op: Op) -> float:
    """What an operation gains if images are stored channels last, in multiply-adds; negative for a loss."""
    if op.name == "max_pool2d":
        return _POOLED * math.prod(op.shapes[0])
    if op.name not in ("conv2d", "folded_convolution", "_split_convolution", "_kept_convolutions"):
        return 0.0
    weight = _image_weight(op)
    if weight is None or weight.device.type != "cpu":
        return -math.inf
    work = math.prod(op.shapes[0]) * weight[0].numel()
    if weight[0, 0].numel() > 1:
        return _SAVED * work
    return 0.0 if weight.shape[0] % 16 == 0 and weight.shape[1] % 16 == 0 else -_LOST * work


def _image_weight(op: Op) -> Tensor | None:
    """The weights of a convolution: the first constant after the image and its noise."""
    tensors = [value for value in op.args[1:] if isinstance(value, Tensor) and value.dim() == 4]
    return tensors[0] if tensors else None
