"""Modules that pass their dropout rate on only in training mode, found by watching two passes."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import nn

from bayesdrop.draws import FunctionDraw, StochasticModule
from bayesdrop.inputs import Inputs, call, take_rows

__all__ = ["modules_that_pass_rates_in_training"]


def modules_that_pass_rates_in_training(
    model: nn.Module, batch: Inputs, options: dict[str, Any]
) -> frozenset[str]:
    """Paths of modules such as `dropout_p = self.p if self.training else 0.0` needs to be told about.

    A pass of one row with the flags of such candidates on is compared with one where they are off:
    those that make a dropout call with a rate only in the first are in training mode inside a draw.
    Buffers are put back.
    """
    candidates = frozenset(path for path, module in model.named_modules() if _reads_training(module))
    if not candidates:
        return frozenset()
    row = take_rows(batch, slice(0, 1))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        counts = [_sites(model, row, trained, options) for trained in (candidates, frozenset[str]())]
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers and buffer.shape == buffers[name].shape:
                    buffer.copy_(buffers[name])
    return frozenset(path for path in candidates if counts[0][path] > counts[1][path])


def _sites(model: nn.Module, row: Inputs, trained: frozenset[str], options: dict[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    with FunctionDraw(model, trained=trained, **options) as draw:
        try:
            call(model, copy.copy(row))
        except Exception:
            # In training mode a model may want more than inputs; what it showed until then still counts.
            if not trained:
                raise
        for site in draw.sites.values():
            found[site.path] += site.p is not None and site.p > 0
    return found


def _reads_training(module: nn.Module) -> bool:
    """Whether a class outside torch.nn reads `self.training` in a method of its own."""
    if isinstance(module, StochasticModule | torch.jit.ScriptModule):
        return False
    for kind in type(module).__mro__:
        if kind is nn.Module:
            return False
        if kind.__module__.startswith("torch.nn."):
            continue
        for member in vars(kind).values():
            code = getattr(member, "__code__", None)
            if code is not None and "training" in code.co_names:
                return True
    return False
