"""Which parameters are trained, at which learning rate, and by which optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from bayesdrop.errors import is_one_of, must
from bayesdrop.fit.pair import TwoOptimizers
from bayesdrop.fit.schedules import SCHEDULES, NamedSchedule
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
        objective: if it is a module, its parameters, as a learned noise, are the third group.
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


def make_optimizer(
    groups: list[dict[str, Any]], make: MakeOptimizer | None, make_rates: MakeOptimizer | None = None
) -> Optimizer:
    """The user's optimiser; else Adam, or AdamW where weights decay.

    Args:
        groups: from `parameter_groups`.
        make: makes the optimiser of all groups; of all but the rates if there is `make_rates`.
        make_rates: makes the optimiser of the rates.
    """
    if make_rates is None:
        return _made(groups, make, "optimizer")
    rates = [group for group in groups if group["name"] == "rates"]
    if not rates:
        hint = "There is nothing for it to train."
        raise ValueError(
            must("fit", "rate_optimizer", "None for a model without learned rates", make_rates, hint)
        )
    others = [group for group in groups if group["name"] != "rates"]
    second = _made(rates, make_rates, "rate_optimizer")
    return TwoOptimizers(_made(others, make, "optimizer"), second) if others else second


def _made(groups: list[dict[str, Any]], make: MakeOptimizer | None, argument: str) -> Optimizer:
    if make is not None:
        optimizer: Any = make(groups) if callable(make) else make
        if optimizer is make or not isinstance(optimizer, Optimizer):
            want = "a callable from parameter groups to an Optimizer"
            raise TypeError(must("fit", argument, want, type(optimizer)))
        return optimizer
    kind = torch.optim.AdamW if any(group["weight_decay"] for group in groups) else torch.optim.Adam
    # The fused kernel takes a third of the time of the others on small networks.
    parameters = [p for group in groups for p in group["params"]]
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)
    return kind(groups, fused=fused)


def make_scheduler(
    optimizer: Optimizer, make: MakeScheduler | str | None, *, warmup: float, total_steps: int | None
) -> LRScheduler | None:
    """The scheduler, which is stepped after every step of the optimiser.

    Args:
        optimizer: the optimiser whose learning rates it changes.
        make: makes the user's scheduler; or a name.
        warmup: of a named schedule.
        total_steps: of the whole run; None if it is not known.
    """
    if warmup >= 1:
        raise ValueError(must("fit", "warmup", "a share of all steps, in [0, 1)", warmup))
    if make is None and warmup == 0:
        return None
    if make is None or isinstance(make, str):
        return _named(optimizer, "constant" if make is None else make, warmup, total_steps)
    if warmup > 0:
        raise ValueError(must("fit", "warmup", "0 with a scheduler of your own", warmup))
    scheduler: Any = make(optimizer) if callable(make) else make
    if (
        not isinstance(scheduler, LRScheduler)
        or isinstance(scheduler, ReduceLROnPlateau)
        or make is scheduler
    ):
        want = "a callable from an Optimizer to an LRScheduler that is stepped without a metric, or a name"
        raise TypeError(must("fit", "scheduler", want, type(scheduler)))
    return scheduler


def _named(optimizer: Optimizer, name: str, warmup: float, total_steps: int | None) -> NamedSchedule:
    names = [*SCHEDULES, "one-cycle"]
    if not is_one_of(name, names):
        want = f"one of {', '.join(map(repr, names))}, or a callable from an Optimizer to an LRScheduler"
        raise ValueError(must("fit", "scheduler", want, name))
    if total_steps is None:
        hint = "Pass a scheduler of your own: the number of steps is not known for a loader without a length."
        raise ValueError(must("fit", "scheduler", "None or callable", name, hint))
    if name == "one-cycle" and warmup > 0:
        raise ValueError(must("fit", "warmup", "0 with scheduler='one-cycle', which has its own", warmup))
    return NamedSchedule(optimizer, name, total_steps, warmup)
