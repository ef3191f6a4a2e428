"""Convolutions of concatenated channels, some constant and some random: the constant part is computed once.

    conv(relu(norm([a, c])), W) = conv(relu(norm_a(a)), W_a) + conv(relu(norm_c(c)), W_c)

with a random and c the same in every draw, as the levels of a U-shaped network or the beginning of a dense
block. Channels are followed from the concatenation through element-wise functions and norms to the
convolution that sums over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.execute.perceptron import elementwise
from bayesdrop.trace import Op, Ref, Tape

__all__ = ["split_concatenations"]

#: multiply-adds to save for each element of the output, so that the extra addition pays
_WORTH = 16


@dataclass(frozen=True)
class _Split:
    """A value whose channels, on axis 1, are in two parts: those that depend on noise, and the others."""

    noisy: int  #: number of the value that holds the channels that depend on noise
    noisy_shape: tuple[int, ...]
    noisy_channels: tuple[int, ...]
    constant: Tensor
    constant_channels: tuple[int, ...]


def split_concatenations(tape: Tape) -> Tape:
    """The same tape, whose convolutions no longer sum over channels that are the same in every draw."""
    if tape.mutates or not any(op.func is torch.cat for op in tape.ops):
        return tape
    splitter = _Splitter(tape)
    for op in tape.ops:
        splitter.read(op)
    if not splitter.found:
        return tape
    # A new tape leaves out operations that nothing needs any more.
    return Tape(splitter.ops, tape.leaves, tape.output, splitter.size, tape.mutates)


class _Splitter:
    def __init__(self, tape: Tape) -> None:
        self.ops: list[Op] = []
        self.size = tape.size
        self.found = False
        self._splits: dict[int, _Split] = {}
        self._shapes = {leaf.index: leaf.shape for leaf in tape.leaves}
        for op in tape.ops:
            self._shapes |= dict(zip(op.outputs, op.shapes, strict=True))

    def read(self, op: Op) -> None:
        """Append an operation; where its input is split, its split form too."""
        if op.name == "conv2d":
            op = self._convolution(op) or op
        self.ops.append(op)
        split = None
        if op.func is torch.cat:
            split = self._concatenation(op)
        elif op.args and isinstance(op.args[0], Ref) and op.args[0].index in self._splits:
            known = self._splits[op.args[0].index]
            split = self._norm(op, known) if op.func is F.batch_norm else self._elementwise(op, known)
        if split is not None:
            self._splits[op.outputs[0]] = split

    def _append(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: Any) -> int:
        index = self.size
        self.size += 1
        self.ops.append(Op(func, args, kwargs, (index,), (tuple(shape),)))
        return index

    def _concatenation(self, op: Op) -> _Split | None:
        axis = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)
        parts = op.args[0] if op.args else None
        if axis != 1 or not isinstance(parts, list | tuple) or len(op.shapes[0]) != 4:
            return None
        noisy: list[Ref] = []
        constant: list[Tensor] = []
        channels: tuple[list[int], list[int]] = ([], [])
        start = 0
        for part in parts:
            split = self._splits.get(part.index) if isinstance(part, Ref) else None
            if split is not None:
                noisy.append(Ref(split.noisy))
                constant.append(split.constant)
                channels[0].extend(start + place for place in split.noisy_channels)
                channels[1].extend(start + place for place in split.constant_channels)
                start += len(split.noisy_channels) + len(split.constant_channels)
                continue
            size = self._shapes[part.index][1] if isinstance(part, Ref) else part.shape[1]
            channels[0 if isinstance(part, Ref) else 1].extend(range(start, start + size))
            (noisy if isinstance(part, Ref) else constant).append(part)
            start += size
        if not constant or not noisy:
            return None
        shape = (op.shapes[0][0], len(channels[0]), *op.shapes[0][2:])
        index = noisy[0].index if len(noisy) == 1 else self._append(torch.cat, (noisy, 1), {}, shape)
        whole = constant[0] if len(constant) == 1 else torch.cat(constant, 1)
        return _Split(index, shape, tuple(channels[0]), whole, tuple(channels[1]))

    def _norm(self, op: Op, split: _Split) -> _Split | None:
        """`F.batch_norm` in eval mode, which treats every channel by itself."""
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = dict(zip(names, op.args, strict=False)) | op.kwargs
        if given.get("training") or len(op.refs) != 1:
            return None
        rest = {name: value for name, value in given.items() if name not in ("input", "training")}

        def of(channels: tuple[int, ...]) -> dict[str, Any]:
            return {
                name: value[list(channels)] if isinstance(value, Tensor) else value
                for name, value in rest.items()
            }

        index = self._append(F.batch_norm, (Ref(split.noisy),), of(split.noisy_channels), split.noisy_shape)
        constant = F.batch_norm(split.constant, **of(split.constant_channels))
        return _Split(index, split.noisy_shape, split.noisy_channels, constant, split.constant_channels)

    def _elementwise(self, op: Op, split: _Split) -> _Split | None:
        rest, kwargs = op.args[1:], {name: value for name, value in op.kwargs.items() if name != "inplace"}
        if len(op.refs) != 1 or elementwise(op.func, rest, kwargs) is None:
            return None
        index = self._append(op.func, (Ref(split.noisy), *rest), kwargs, split.noisy_shape)
        constant = op.func(split.constant, *rest, **kwargs)
        return _Split(index, split.noisy_shape, split.noisy_channels, constant, split.constant_channels)

    def _convolution(self, op: Op) -> Op | None:
        """The convolution of the random channels, plus the constant result of the others."""
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        given = dict(zip(names, op.args, strict=False)) | op.kwargs
        source, weight = given.get("input"), given.get("weight")
        split = self._splits.get(source.index) if isinstance(source, Ref) else None
        if split is None or len(op.refs) != 1 or not isinstance(weight, Tensor):
            return None
        saved = len(split.constant_channels) * weight[0, 0].numel()
        if given.get("groups", 1) != 1 or saved < _WORTH:
            return None
        geometry = tuple(
            given.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
        )
        here = weight[:, list(split.constant_channels)]
        base = F.conv2d(split.constant, here, given.get("bias"), *geometry)
        self.found = True
        rest = weight[:, list(split.noisy_channels)]
        return Op(_split_convolution, (Ref(split.noisy), rest, base, geometry), {}, op.outputs, op.shapes)


def _split_convolution(x: Tensor, weight: Tensor, base: Tensor, geometry: tuple[Any, ...]) -> Tensor:
    return F.conv2d(x, weight, None, *geometry).add_(base)
