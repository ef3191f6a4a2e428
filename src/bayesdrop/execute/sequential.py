"""Networks read off their modules, without recording a pass: `nn.Sequential` of torch's own layers.

What such a network does is known from its layers' settings. It is read again for every batch, with its
weights and rates at that moment, so that nothing can be out of date. A network with anything else in it (a
class of the user, a hook) is recorded instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from bayesdrop.execute.perceptron import Map, Perceptron, Step, elementwise
from bayesdrop.functional.products import linear
from bayesdrop.inputs import Inputs
from bayesdrop.noise import KeepNoise
from bayesdrop.trace import Leaf, Op, Ref, Selection, Site, Tape

__all__ = ["Reading", "read"]

_Shape = tuple[int, ...]
#: a function that keeps shapes, and what it is called with after the value
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Reading:
    """A network read off its modules, for one batch.

    Attributes:
        sites: every site, on or off, by its key.
        start: the value that the first noise multiplies.
        layers: the layers from the first noise on, each dropout that is on replaced by its noise.
    """

    sites: dict[str, Site]
    start: Tensor
    layers: list[nn.Module | Leaf]

    @property
    def leaves(self) -> list[Leaf]:
        """The noise of the network, in order."""
        return [layer for layer in self.layers if isinstance(layer, Leaf)]

    def perceptron(self) -> Perceptron | None:
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
            elif noise is None and type(layer) in _ACTIVATIONS:
                step = elementwise(*_ACTIVATIONS[type(layer)](layer))
            if step is None:
                return None
            steps.append(step)
        return None if noise is not None else Perceptron(self.start, steps)

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
    return None if isinstance(layer, nn.Identity) else _ACTIVATIONS[type(layer)](layer)


def _shape_after(layer: nn.Module | Leaf, shape: _Shape) -> _Shape:
    if isinstance(layer, nn.Linear):
        return (*shape[:-1], layer.weight.shape[0])
    if isinstance(layer, nn.Flatten):
        last = layer.end_dim % len(shape)
        return (*shape[: layer.start_dim], math.prod(shape[layer.start_dim : last + 1]), *shape[last + 1 :])
    return shape


def read(model: nn.Module, batch: Inputs, *, per_row: bool, selection: Selection) -> Reading | None:
    """Read a network for one batch; None if it must be recorded instead.

    Args:
        model: any module.
        batch: the input that it is called with.
        per_row: every row has its own noise.
        selection: which sites are on.
    """
    if isinstance(batch, tuple | list) and len(batch) == 1:
        batch = batch[0]
    if not isinstance(batch, Tensor) or type(batch) is not Tensor or batch.dim() == 0:
        return None
    found: list[tuple[str, nn.Module]] = []
    if not _gather(model, "", found) or not _is_undisturbed(batch.device.type):
        return None
    reasons = _reasons(found, selection)
    start = next((place for place, why in enumerate(reasons) if why is not None and why[2] == "on"), None)
    if start is None or any(type(module) in _BEFORE for _, module in found[start:]):
        return None
    try:
        x = _before([module for _, module in found[:start]], batch)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None  # when it is recorded, the model raises its own error
    if type(x) is not Tensor or x.layout != torch.strided or not x.is_floating_point():
        return None
    if x.shape[:1] != batch.shape[:1]:
        return None
    return _after(found, reasons, start, x, per_row)


def _reasons(found: list[tuple[str, nn.Module]], selection: Selection) -> list[tuple[str, int, str] | None]:
    """For every dropout its path, the number of its call, and why it is on or off; None for other layers."""
    reasons: list[tuple[str, int, str] | None] = []
    calls: dict[nn.Module, tuple[str, int]] = {}
    for place, module in found:
        if type(module) is not nn.Dropout:
            reasons.append(None)
            continue
        # A module that is used twice has the path of its first place, and its calls are counted.
        path, call = calls.get(module, (place, 0))
        calls[module] = (path, call + 1)
        reason = "p = 0" if module.p == 0 else "on" if selection.allows(path, module) else "excluded"
        reasons.append((path, call, reason))
    return reasons


def _before(layers: list[nn.Module], x: Tensor) -> Tensor:
    """The value that the first noise multiplies. Layers that work in place do not change the input."""
    turned = x.dim() == 4 and x.device.type == "cpu" and _gains(layers)
    if turned:
        x = _turned(x)
    for module in layers:
        call = _ACTIVATIONS.get(type(module))
        if call is not None:
            func, rest, kwargs = call(module)
            x = func(x, *rest, **kwargs)
        elif turned and isinstance(module, nn.Conv2d):
            x = module._conv_forward(x, _turned(module.weight), module.bias)
        elif isinstance(module, nn.Linear):
            x = linear(x, module.weight, module.bias)
        elif type(module) is not nn.Dropout:
            x = module.forward(x)
    return x


def _turned(x: Tensor) -> Tensor:
    """A copy with channels last. (`Tensor.contiguous` would not change the strides of one channel.)"""
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _gains(layers: list[nn.Module]) -> bool:
    """Whether the layers are faster on images with channels last.

    On one core with AVX-512, a maximum over windows takes an eighth of its time, convolutions with windows
    nine tenths; a 1 x 1 convolution whose channels do not fill the registers takes 1.7 times as long.
    """
    maxima = any(isinstance(module, nn.MaxPool2d) for module in layers)
    convolutions = [module for module in layers if isinstance(module, nn.Conv2d)]
    windows = [module for module in convolutions if math.prod(module.kernel_size) > 1]
    usual = all(module.groups == 1 for module in convolutions)
    return usual and bool(windows) and (maxima or len(windows) == len(convolutions))


def _after(
    found: list[tuple[str, nn.Module]],
    reasons: list[tuple[str, int, str] | None],
    start: int,
    x: Tensor,
    per_row: bool,
) -> Reading | None:
    """The reading, from the sites and the layers after the first noise; None if a layer does not fit."""
    shape: _Shape = tuple(x.shape)
    dtype, device = x.dtype, x.device
    noises: dict[tuple[float, int | None], KeepNoise] = {}
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
                # As in `HeldNoise._positions`: three axes are rows, positions and units.
                first = 0 if len(own) == 3 and not per_row else None
                if (p, first) not in noises:
                    noises[p, first] = KeepNoise(torch.tensor(p), first)
                layers.append(Leaf(number, key, own, noises[p, first], dtype, device))
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


# modules whose code is known

_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], Call]] = {
    nn.ReLU: lambda m: (F.relu, (), {}),
    nn.Tanh: lambda m: (torch.tanh, (), {}),
    nn.Sigmoid: lambda m: (torch.sigmoid, (), {}),
    nn.GELU: lambda m: (F.gelu, (), {"approximate": m.approximate}),
    nn.ELU: lambda m: (F.elu, (m.alpha,), {}),
    nn.LeakyReLU: lambda m: (F.leaky_relu, (m.negative_slope,), {}),
    nn.SiLU: lambda m: (F.silu, (), {}),
    nn.SELU: lambda m: (F.selu, (), {}),
    nn.Softplus: lambda m: (F.softplus, (m.beta, m.threshold), {}),
}
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
#: layers that are run once, before the first noise; all of them leave the rows on axis 0
_BEFORE: tuple[type[nn.Module], ...] = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, *_NORMS, nn.LayerNorm, nn.GroupNorm, *_POOLS, nn.AvgPool1d, nn.AvgPool2d,
    nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Embedding,
)  # fmt: skip
_ANYWHERE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Dropout, nn.Identity, nn.Flatten, *_ACTIVATIONS)
# Compared with the functions at use: somebody may have replaced torch's own.
_KNOWN: tuple[type[nn.Module], ...] = (nn.Sequential, *_ANYWHERE, *_BEFORE)
_FORWARDS: dict[type[nn.Module], Any] = {kind: kind.forward for kind in _KNOWN}
_DROPOUT = F.dropout
# Settings for which a layer does what is assumed here.
_USUAL: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.Dropout: lambda m: type(m.p) in (float, int) and 0 <= m.p < 1,
    nn.Flatten: lambda m: m.start_dim >= 1,
    nn.Embedding: lambda m: m.max_norm is None,
    **dict.fromkeys(_NORMS, lambda m: not m.training),
    **dict.fromkeys(_POOLS, lambda m: not m.return_indices),
}


def _gather(module: nn.Module, path: str, found: list[tuple[str, nn.Module]]) -> bool:
    """Append (path, module) to `found`, in the order in which they run. Whether all modules are known."""
    kind = type(module)
    forward = _FORWARDS.get(kind)
    if forward is None or kind.forward is not forward or "forward" in module.__dict__:
        return False
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    if kind is nn.Sequential:
        prefix = f"{path}." if path else ""
        inner = module._modules.items()
        return all(child is not None and _gather(child, prefix + name, found) for name, child in inner)
    found.append((path, module))
    usual = _USUAL.get(kind)
    return usual is None or usual(module)


def _is_undisturbed(device: str) -> bool:
    """Whether nothing changes what torch's functions do: no modes, transforms, autocast or global hooks."""
    return (
        torch._C._len_torch_function_stack() == 0
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled(device)
        and not torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]
        and F.dropout is _DROPOUT
    )
