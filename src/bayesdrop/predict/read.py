"""A plain network, read off its modules: nothing needs to be watched where all code is known.

A `nn.Sequential` of torch's own layers does what its settings say. It is read anew for every batch, weights
and rates as they are at this moment, so that nothing is kept that could go stale. Whatever is not known for
certain (a class of somebody else, a hook, a mode) is recorded instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.draws import Selection, Site
from bayesdrop.functional.noise import KeepNoise
from bayesdrop.inputs import Inputs
from bayesdrop.predict.chain import Chain
from bayesdrop.predict.plain import BEFORE, ELEMENTWISE, Call, gather, is_undisturbed
from bayesdrop.predict.steps import Map, Step, elementwise
from bayesdrop.predict.tape import Leaf, Op, Ref, Tape

__all__ = ["Reading", "read"]

_Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """A plain network, as it is at this moment.

    Attributes:
        sites: all of them, on or off.
        start: the value that the first noise meets.
        layers: what follows; of a dropout that is on, its noise.
    """

    sites: dict[str, Site]
    start: Tensor
    layers: list[nn.Module | Leaf]

    @property
    def leaves(self) -> list[Leaf]:
        """The noise of the network, in order."""
        return [layer for layer in self.layers if isinstance(layer, Leaf)]

    def chain(self) -> Chain | None:
        """The network as a perceptron; None if it is something else."""
        steps: list[Step] = []
        noise: Leaf | None = None
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                steps.append(Map(noise, layer.weight, layer.bias))
                noise = None
                continue
            if isinstance(layer, nn.Identity):
                continue
            step = None
            if isinstance(layer, Leaf):
                if noise is None and len(layer.shape) == 2 and layer.shape[0] == 1:
                    noise = layer
                    continue
            elif noise is None and type(layer) in ELEMENTWISE:
                step = elementwise(*ELEMENTWISE[type(layer)](layer))
            if step is None:
                return None
            steps.append(step)
        return None if noise is not None else Chain(self.start, steps)

    def tape(self) -> Tape:
        """The network as a tape."""
        leaves = self.leaves
        ops: list[Op] = []
        value: Any = self.start
        shape: _Shape = tuple(self.start.shape)
        for layer in self.layers:
            call = _call_of(layer)
            if call is None:
                continue
            index = len(leaves) + len(ops)
            shape = _shape_after(layer, shape)
            ops.append(Op(call[0], (value, *call[1]), call[2], (index,), (shape,)))
            value = Ref(index)
        return Tape(ops, leaves, value.index, len(leaves) + len(ops), mutates=False)


def _call_of(layer: nn.Module | Leaf) -> Call | None:
    if isinstance(layer, Leaf):
        return torch.mul, (Ref(layer.index),), {}
    if isinstance(layer, nn.Linear):
        return F.linear, (layer.weight, layer.bias), {}
    if isinstance(layer, nn.Flatten):
        return torch.flatten, (layer.start_dim, layer.end_dim), {}
    return None if isinstance(layer, nn.Identity) else ELEMENTWISE[type(layer)](layer)


def _shape_after(layer: nn.Module | Leaf, shape: _Shape) -> _Shape:
    if isinstance(layer, nn.Linear):
        return (*shape[:-1], layer.weight.shape[0])
    if isinstance(layer, nn.Flatten):
        last = layer.end_dim % len(shape)
        return (*shape[: layer.start_dim], math.prod(shape[layer.start_dim : last + 1]), *shape[last + 1 :])
    return shape


def read(model: nn.Module, batch: Inputs, *, per_row: bool, selection: Selection) -> Reading | None:
    """A plain network with one batch; None for a network that must be recorded.

    Args:
        model: any module.
        batch: what it is called with.
        per_row: noise of every row's own.
        selection: which sites are on.
    """
    if isinstance(batch, tuple | list) and len(batch) == 1:
        batch = batch[0]
    if not isinstance(batch, Tensor) or type(batch) is not Tensor or batch.dim() == 0:
        return None
    found: list[tuple[str, nn.Module]] = []
    if not gather(model, "", found) or not is_undisturbed(batch.device.type):
        return None
    reasons = _reasons(found, selection)
    start = next((place for place, why in enumerate(reasons) if why is not None and why[2] == "on"), None)
    if start is None or any(type(module) in BEFORE for _, module in found[start:]):
        return None
    try:
        x = _before([module for _, module in found[:start]], batch)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None  # recorded, the model says itself what is wrong
    if type(x) is not Tensor or x.layout != torch.strided or not x.is_floating_point():
        return None
    if x.shape[:1] != batch.shape[:1]:
        return None
    return _after(found, reasons, start, x, per_row)


def _reasons(found: list[tuple[str, nn.Module]], selection: Selection) -> list[tuple[str, int, str] | None]:
    """Of every dropout its path, which of its calls it is, and why it is on or off; None of other layers."""
    reasons: list[tuple[str, int, str] | None] = []
    calls: dict[nn.Module, tuple[str, int]] = {}
    for place, module in found:
        if type(module) is not nn.Dropout:
            reasons.append(None)
            continue
        # A module that is used twice is at its first place, and its calls are counted.
        path, call = calls.get(module, (place, 0))
        calls[module] = (path, call + 1)
        reason = "p = 0" if module.p == 0 else "on" if selection.allows(path, module) else "excluded"
        reasons.append((path, call, reason))
    return reasons


def _before(layers: list[nn.Module], x: Tensor) -> Tensor:
    """The value that the first noise meets. The input is left alone, whatever works in place."""
    for module in layers:
        call = ELEMENTWISE.get(type(module))
        if call is not None:
            func, rest, kwargs = call(module)
            x = func(x, *rest, **kwargs)
        elif type(module) is not nn.Dropout:
            x = module.forward(x)
    return x


def _after(
    found: list[tuple[str, nn.Module]],
    reasons: list[tuple[str, int, str] | None],
    start: int,
    x: Tensor,
    per_row: bool,
) -> Reading | None:
    """The sites, and the layers from the first noise on; None if these do not fit what they are given."""
    shape: _Shape = tuple(x.shape)
    dtype, device = x.dtype, x.device
    noises: dict[tuple[float, int], KeepNoise] = {}
    sites: dict[str, Site] = {}
    layers: list[nn.Module | Leaf] = []
    number = 0
    for place, ((_, module), why) in enumerate(zip(found, reasons, strict=True)):
        if why is not None:
            path, call, reason = why
            p = float(cast("nn.Dropout", module).p)
            on = reason == "on"
            own = None if not on else shape if per_row else (1, *shape[1:])
            key = f"{path}:{call}"
            sites[key] = Site(path, call, "Dropout", p, own, on, reason)
            if own is not None:
                # As a draw has it: three axes are rows, positions and units.
                first = 0 if len(own) == 3 and not per_row else None
                if (p, len(own)) not in noises:
                    noises[p, len(own)] = KeepNoise(torch.tensor(p), first, of_pixels=len(own) == 4)
                layers.append(Leaf(number, key, own, noises[p, len(own)], dtype, device))
                number += 1
        elif place > start:
            if isinstance(module, nn.Linear) and not _fits(module, shape, dtype, device):
                return None
            if isinstance(module, nn.Flatten):
                if module.end_dim >= len(shape) or module.start_dim > module.end_dim % len(shape):
                    return None
                if _shape_after(module, shape) == shape:
                    continue
            layers.append(module)
            shape = _shape_after(module, shape)
    return Reading(sites, x, layers)


def _fits(module: nn.Linear, shape: _Shape, dtype: torch.dtype, device: torch.device) -> bool:
    weight: Tensor = module.weight
    bias: Tensor | None = module.bias
    if len(shape) < 2 or weight.shape[1:] != shape[-1:]:
        return False
    return all(
        type(tensor) in (nn.Parameter, Tensor)
        and tensor.dtype == dtype
        and tensor.device == device
        and tensor.layout == torch.strided
        for tensor in ((weight,) if bias is None else (weight, bias))
    )
