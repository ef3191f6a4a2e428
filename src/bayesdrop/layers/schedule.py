"""Changing rates that are not learned: once, or along a schedule while a model is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_module, real_number
from bayesdrop.layers.base import StochasticLayer, checked_rate
from bayesdrop.layers.places import DROPOUTS

__all__ = ["RateSchedule", "set_rates"]


class RateSchedule:
    """A drop rate that goes from one value to another while a model is trained.

        linear       start + (end - start) s
        cosine       end + (start - end) (1 + cos(pi s)) / 2
        geometric    start (end / start)^s

    where s goes from 0 to 1 until the share `until` of all steps is done; from then on the rate is `end`. A
    schedule has no state: the rate is a function of the share of steps that is done.
    `fit(..., p_schedule=RateSchedule(0.5, 0.05))` sets the rate before every step, also in a run that is
    resumed from a checkpoint. In your own loop:

        set_rates(model, schedule(step / num_steps))

    Args:
        start: the rate at the first step, in [0, 1).
        end: the rate that it goes to, in [0, 1).
        shape: "linear", "cosine" or "geometric" (both rates above 0).
        until: share of all steps after which the rate is `end`, in (0, 1].

    Reference: Gal, Hron & Kendall (2017), section 4.5, on rates that are decreased by a schedule, which
    learned rates make needless.

    >>> schedule = RateSchedule(0.5, 0.1, until=0.5)
    >>> schedule(0.0), schedule(0.25), schedule(0.75)
    (0.5, 0.3, 0.1)
    """

    def __init__(
        self,
        start: float,
        end: float,
        *,
        shape: Literal["linear", "cosine", "geometric"] = "linear",
        until: float = 1.0,
    ) -> None:
        owner = "RateSchedule"
        self.start = real_number(owner, "start", start, "in [0, 1)", at_least=0, below=1)
        self.end = real_number(owner, "end", end, "in [0, 1)", at_least=0, below=1)
        self.until = real_number(owner, "until", until, "in (0, 1]", above=0, at_most=1)
        if not is_one_of(shape, ("linear", "cosine", "geometric")):
            raise ValueError(must(owner, "shape", "'linear', 'cosine' or 'geometric'", shape))
        if shape == "geometric" and not (self.start > 0 and self.end > 0):
            rates = (self.start, self.end)
            raise ValueError(must(owner, "shape", "'linear' or 'cosine' where a rate is 0", rates))
        self.shape: Literal["linear", "cosine", "geometric"] = shape

    def __repr__(self) -> str:
        return f"RateSchedule({self.start:g}, {self.end:g}, shape={self.shape!r}, until={self.until:g})"

    def __call__(self, done: float) -> float:
        """The rate when this share of all steps is done, in [0, 1]."""
        done = real_number("RateSchedule", "done", done, "in [0, 1]", at_least=0, at_most=1)
        share = min(1.0, done / self.until)
        if share == 1:
            return self.end
        if self.shape == "geometric":
            return self.start * math.pow(self.end / self.start, share)
        if self.shape == "cosine":
            share = 0.5 * (1 - math.cos(math.pi * share))
        return self.start + (self.end - self.start) * share


@torch.no_grad()
def set_rates(model: nn.Module, p: float | Mapping[str, float | Tensor]) -> None:
    """Set the drop rates that are not learned: of stochastic layers and of `nn.Dropout*`. In place.

    Args:
        model: any module.
        p: one rate in [0, 1) for all of them (and all of their units); or a mapping from paths to rates, as
            `rates` returns.

    One number for all does not change learned rates, and naming a learned rate is an error: `share_rates` and
    `convert` set where these start.

    >>> from bayesdrop import BernoulliDropout, rates
    >>> net = nn.Sequential(BernoulliDropout(nn.Linear(3, 2), p=0.5), nn.Dropout(0.5))
    >>> set_rates(net, 0.25)
    >>> rates(net), net[1].p
    ({'0': tensor(0.2500)}, 0.25)
    """
    must_be_module("set_rates", "model", model)
    fixed = {path: part for path, part in model.named_modules() if _has_fixed_rate(part)}
    if not fixed:
        hint = "Learned rates are set by training."
        raise ValueError(must("set_rates", "model", "a model with rates that are not learned", model, hint))
    if isinstance(p, Mapping):
        unknown = [path for path in p if path not in fixed]
        if unknown or not p:
            want = f"paths of rates that are not learned: {', '.join(map(repr, fixed))}"
            raise ValueError(must("set_rates", "p", want, unknown[0] if unknown else "none"))
        wanted = {path: (f"p[{path!r}]", rate) for path, rate in p.items()}
    else:
        wanted = dict.fromkeys(fixed, ("p", p))
    # All are checked before any is set.
    new = {path: _checked(fixed[path], *named) for path, named in wanted.items()}
    for path, rate in new.items():
        part = fixed[path]
        if isinstance(part, StochasticLayer):
            part.p.copy_(rate)
        else:
            part.p = float(rate)


def _has_fixed_rate(module: nn.Module) -> bool:
    if isinstance(module, StochasticLayer):
        # A rate that is a property follows from something else, as from masks that are fixed.
        follows = isinstance(getattr(type(module), "p", None), property)
        return not follows and not any(True for _ in module.rate_parameters())
    return isinstance(module, DROPOUTS)


def _checked(module: nn.Module, argument: str, p: Any) -> Tensor:
    """The rate as a tensor; raise if the module cannot have it."""
    if not isinstance(module, StochasticLayer):
        rate = real_number("set_rates", argument, p, "in [0, 1)", at_least=0, below=1)
        return torch.tensor(rate, dtype=torch.float64)
    rates = checked_rate("set_rates", argument, p, module.layer)
    if rates.dim() and not module.p.dim():
        raise ValueError(must("set_rates", argument, "one number", tuple(rates.shape)))
    return rates
