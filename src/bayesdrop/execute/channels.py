"""Convolutions between which a shared mask drops whole channels: only kept channels are computed.

    conv(z f(conv(x, W)), V) = conv(z' f(conv(x, W')), V')

with W' the kept rows of W, V' the kept columns of V, and f element by element. What holds for the units of a
perceptron holds for the channels of images; here it is for one draw at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.execute.perceptron import Map, elementwise
from bayesdrop.execute.rewrite import folded_convolution, users_of
from bayesdrop.noise import KeepNoise
from bayesdrop.operations import CONVOLUTIONS
from bayesdrop.trace import Op, Ref, Tape

__all__ = ["WORTH", "keep_channels"]

#: multiply-adds of the second convolution from which on choosing channels costs little beside it
WORTH = 2**22
#: kept channels come in at most so many numbers, as kernels are made anew for every number
_SIZES = 16


def keep_channels(tape: Tape, *, worth: int = WORTH) -> Tape:
    """The same tape, for one draw at a time, that leaves out the channels which masks drop.

    Args:
        tape: with its noise folded into weights.
        worth: multiply-adds from which on a convolution is worth it.
    """
    if tape.mutates:
        return tape
    masks = {leaf.index for leaf in tape.leaves if type(leaf.sample) is KeepNoise}
    users = users_of(tape)
    makers = {index: place for place, op in enumerate(tape.ops) for index in op.outputs}
    ops: list[Op | None] = list(tape.ops)
    for place, op in enumerate(tape.ops):
        if op.func is not folded_convolution or op.args[1].index not in masks:
            continue
        weight, geometry = op.args[2], op.args[4]
        is_large = math.prod(op.shapes[0]) * weight[0].numel() >= worth
        if geometry[3] != 1 or weight.device.type != "cpu" or not is_large:
            continue
        # Back to the convolution that makes the channels, through values that nothing else uses.
        steps: list[Callable[[Tensor], Tensor]] = []
        inner: list[int] = []
        value, user = op.args[0], place
        while isinstance(value, Ref) and value.index in makers and users[value.index] == [user]:
            user = makers[value.index]
            made = tape.ops[user]
            if ops[user] is not made:
                break  # it is the second convolution of another pair
            inner.append(user)
            first = _first(made)
            if first is not None:
                ops[place] = Op(
                    _kept_convolutions, (*first, steps[::-1], *op.args[1:]), {}, op.outputs, op.shapes
                )
                for gone in inner:
                    ops[gone] = None
                break
            rest = {name: given for name, given in made.kwargs.items() if name != "inplace"}
            step = elementwise(made.func, made.args[1:], rest)
            if step is None or isinstance(step, Map):
                break
            steps.append(step)
            value = made.args[0]
    return Tape([op for op in ops if op is not None], tape.leaves, tape.output, tape.size, tape.mutates)


def _first(op: Op) -> tuple[Any, ...] | None:
    """Input, noise, weight, bias and geometry of a convolution; None if `op` is anything else."""
    if op.func is folded_convolution:
        return op.args if op.args[4][3] == 1 else None
    if op.name not in CONVOLUTIONS or len(op.refs) != 1:
        return None
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given: dict[str, Any] = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    given |= dict(zip(names, op.args, strict=False)) | op.kwargs
    x, weight = given["input"], given["weight"]
    if not isinstance(x, Ref) or given["groups"] != 1 or len(op.shapes[0]) != weight.dim():
        return None
    return x, None, weight, given["bias"], tuple(given[name] for name in names[3:])


def _kept_convolutions(
    x: Tensor,
    before: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: tuple[Any, ...],
    steps: list[Callable[[Tensor], Tensor]],
    noise: Tensor,
    last_weight: Tensor,
    last_bias: Tensor | None,
    last_geometry: tuple[Any, ...],
) -> Tensor:
    kept = _channels(noise.reshape(-1))
    if kept is not None:
        weight, bias = weight[kept], None if bias is None else bias[kept]
        noise, last_weight = noise[:, kept], last_weight[:, kept]
    if before is None:
        h: Tensor = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3](x, weight, bias, *geometry)
    else:
        h = folded_convolution(x, before, weight, bias, geometry)
    for step in steps:
        h = step(h)
    return folded_convolution(h, noise, last_weight, last_bias, last_geometry)


def _channels(noise: Tensor) -> Tensor | None:
    """The channels that are not dropped, with dropped ones up to a usual number; None for all of them."""
    apart = -(-len(noise) // _SIZES)
    order = torch.argsort(noise == 0, stable=True)
    count = max(1, -(-int(noise.count_nonzero()) // apart)) * apart
    return None if count >= len(noise) else order[:count]
