"""The settings that a run must have in common with a checkpoint to resume it, and their differences."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bayesdrop.layers import StochasticLayer
from bayesdrop.likelihoods import ConstantNoise
from bayesdrop.storage import distinct_state, is_plain, plain_options

__all__ = ["described", "differences", "optimizer_settings", "scheduler_settings"]


def described(module: Any) -> dict[str, Any]:
    """What training does not change: classes, options, shapes, and rates and noise that are not learned."""
    if not isinstance(module, nn.Module):
        return {"class": getattr(module, "__qualname__", type(module).__qualname__)}
    layers: dict[str, Any] = {}
    for path, part in module.named_modules():
        layers[path or "itself"] = {"class": type(part).__name__, **plain_options(part)}
        if isinstance(part, StochasticLayer) and not any(True for _ in part.rate_parameters()):
            layers[path or "itself"]["p"] = part.p.tolist()
        if isinstance(part, ConstantNoise) and part.noise == "fixed":
            layers[path or "itself"]["noise_std"] = part.noise_std.tolist()
    tensors, aliases = distinct_state(module, "fit")
    kept = {name: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in tensors.items()}
    return {"modules": layers, "tensors": kept, "tied": aliases}


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Sentences that name every setting that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        lines = []
        for name in names:
            place = f"{path}.{name}" if path else name
            lines += differences(old.get(name, "absent"), new.get(name, "absent"), place)
        return lines
    # repr, so that NaN equals itself and True is not 1
    if repr(old) == repr(new):
        return []
    before, now = _shown(old), _shown(new)
    if before == now:
        before, now = repr(old), repr(new)
    return [f"{path} was {before} and is {now}"]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict) and "class" in value:
        return str(value["class"])
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def optimizer_settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The options of every parameter group, before a scheduler changes them."""
    groups = [
        {name: value for name, value in group.items() if name != "params" and is_plain(value)}
        | {"tensors": len(group["params"])}
        for group in optimizer.param_groups
    ]
    named = {str(group.get("name", place)): group for place, group in enumerate(groups)}
    return {"class": getattr(optimizer, "kind", type(optimizer).__name__), **named}


def scheduler_settings(scheduler: Any) -> dict[str, Any]:
    """The options of a scheduler that has not been stepped."""
    if scheduler is None:
        return {"class": "none"}
    start = {name: value for name, value in scheduler.state_dict().items() if not name.startswith("_")}
    return {"class": type(scheduler).__name__, **{name: v for name, v in start.items() if is_plain(v)}}
