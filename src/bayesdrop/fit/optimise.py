"""Which parameters are trained, at which learning rate, and by which optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from bayesdrop.errors import must
from bayesdrop.layers import StochasticLayer

__all__ = ["MakeOptimizer", "MakeScheduler", "make_optimizer", "make_scheduler", "parameter_groups"]

MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]


def parameter_groups(
    model: nn.Module, objective: Any, *, lr: float, rate_lr: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Groups named "weights", "rates" and "objective"; only the weights decay. Empty groups are left out.

    Args:
        model: its `rate_parameters()` are the rates, all its other parameters the weights.
        objective: its own parameters, as a learned noise, where it is a module.
        lr: of the weights and the objective.
        rate_lr: of the drop rates.
        weight_decay: of the weights.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, StochasticLayer)]
    rates = _trained([p for layer in layers for p in layer.rate_parameters()], set())
    weights = _trained(list(model.parameters()), {id(p) for p in rates})
    taken = {id(p) for p in [*rates, *weights]}
    own = _trained(list(objective.parameters()), taken) if isinstance(objective, nn.Module) else []
    groups = [
        {"name": "weights", "params": weights, "lr": lr, "weight_decay": weight_decay},
        {"name": "rates", "params": rates, "lr": rate_lr, "weight_decay": 0.0},
        {"name": "objective", "params": own, "lr": lr, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError(must("fit", "model", "a model with parameters that require gradients", model))
    return groups


def _trained(parameters: list[nn.Parameter], taken: set[int]) -> list[nn.Parameter]:
    distinct = {id(p): p for p in parameters if p.requires_grad and id(p) not in taken}
    return list(distinct.values())


def make_optimizer(groups: list[dict[str, Any]], make: MakeOptimizer | None) -> Optimizer:
    """The user's optimiser; else Adam, or AdamW where weights decay."""
    if make is not None:
        optimizer: Any = make(groups)
        if not isinstance(optimizer, Optimizer):
            want = "a callable from parameter groups to an Optimizer"
            raise TypeError(must("fit", "optimizer", want, type(optimizer)))
        return optimizer
    kind = torch.optim.AdamW if any(group["weight_decay"] for group in groups) else torch.optim.Adam
    # The fused kernel takes a third of the time of the others on small networks.
    parameters = [p for group in groups for p in group["params"]]
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)
    return kind(groups, fused=fused)


def make_scheduler(optimizer: Optimizer, make: MakeScheduler | None) -> LRScheduler | None:
    """The user's scheduler, which is stepped after every step of the optimiser."""
    if make is None:
        return None
    scheduler: Any = make(optimizer)
    if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
        want = "a callable from an Optimizer to an LRScheduler that is stepped without a metric"
        raise TypeError(must("fit", "scheduler", want, type(scheduler)))
    return scheduler
