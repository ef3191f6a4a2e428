"""Modules whose code is known: a `nn.Sequential` of torch's own layers, and nothing around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as torch_module

__all__ = ["BEFORE", "ELEMENTWISE", "Call", "gather", "is_undisturbed"]

#: a function that keeps shapes, and what it is called with after the value
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
ELEMENTWISE: dict[type[nn.Module], Callable[[Any], Call]] = {
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
BEFORE: tuple[type[nn.Module], ...] = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, *_NORMS, nn.LayerNorm, nn.GroupNorm, *_POOLS, nn.AvgPool1d, nn.AvgPool2d,
    nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Embedding,
)  # fmt: skip
_ANYWHERE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Dropout, nn.Identity, nn.Flatten, *ELEMENTWISE)
# Somebody may have put another function in the place of torch's own.
_KNOWN: tuple[type[nn.Module], ...] = (nn.Sequential, *_ANYWHERE, *BEFORE)
_FORWARDS: dict[type[nn.Module], Any] = {kind: kind.forward for kind in _KNOWN}
_DROPOUT = F.dropout
# Settings with which a layer is what it is taken for.
_USUAL: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.Dropout: lambda m: type(m.p) in (float, int) and 0 <= m.p < 1,
    nn.Flatten: lambda m: m.start_dim >= 1,
    nn.Embedding: lambda m: m.max_norm is None,
    **dict.fromkeys(_NORMS, lambda m: not m.training),
    **dict.fromkeys(_POOLS, lambda m: not m.return_indices),
}


def gather(module: nn.Module, path: str, found: list[tuple[str, nn.Module]]) -> bool:
    """Whether all modules are known; their paths and themselves, in the order in which they are run."""
    kind = type(module)
    forward = _FORWARDS.get(kind)
    if forward is None or kind.forward is not forward or "forward" in module.__dict__:
        return False
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    if kind is nn.Sequential:
        prefix = f"{path}." if path else ""
        inner = module._modules.items()
        return all(child is not None and gather(child, prefix + name, found) for name, child in inner)
    found.append((path, module))
    usual = _USUAL.get(kind)
    return usual is None or usual(module)


def is_undisturbed(device: str) -> bool:
    """Whether functions of torch do what they do by themselves: no modes, no transforms, no hooks."""
    return (
        torch._C._len_torch_function_stack() == 0
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled(device)
        and not torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]
        and F.dropout is _DROPOUT
    )
