"""Named schedules of learning rates: the factor at every step."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

__all__ = ["SCHEDULES", "NamedSchedule"]


def _constant(done: float) -> float:
    return 1.0


def _linear(done: float) -> float:
    return 1.0 - done


def _cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


#: from the share of the steps that is done, in [0, 1], to a factor
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
}
_CYCLE_RISE, _CYCLE_START, _CYCLE_END = 0.3, 1 / 25, 1 / 25e4


class NamedSchedule(LRScheduler):
    """The learning rates of all groups times a factor that depends on the share s of the steps done.

        constant    1
        linear      1 - s
        cosine      (1 + cos(pi s)) / 2
        one-cycle   from 1/25 to 1 in the first 3 tenths, then to 1/250,000, each along half a cosine

    With `warmup` w the factor rises linearly from 1 / (w n) to 1 in the first w n of n steps, and s is the
    share of the steps after these. One-cycle begins with a rise and takes no warmup.

    Args:
        optimizer: its learning rates are multiplied by the factor.
        name: one of the above.
        total_steps: n.
        warmup: w, in [0, 1).

    Reference: Loshchilov & Hutter (2017), cosine; Smith & Topin (2018), one-cycle, momentum left alone.
    """

    def __init__(self, optimizer: Optimizer, name: str, total_steps: int, warmup: float = 0.0) -> None:
        self.name = name
        self.total_steps = total_steps
        self.warmup = warmup
        super().__init__(optimizer)

    def factor(self, step: int) -> float:
        """The factor of the learning rates after `step` steps."""
        rise = round(self.warmup * self.total_steps)
        if step < rise:
            return (step + 1) / rise
        # There may be more steps than expected, as if a loader gives more batches than its length.
        steps, done = self.total_steps - rise, min(step, self.total_steps) - rise
        if self.name != "one-cycle":
            return SCHEDULES[self.name](done / max(1, steps))
        return _one_cycle(done, steps)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of every group for the next step."""
        factor = self.factor(self.last_epoch)
        return [lr * factor for lr in self.base_lrs]


def _one_cycle(step: int, steps: int) -> float:
    """The factor of "one-cycle": 1/25 at the first step, 1/250,000 at the last."""
    top, last = _CYCLE_RISE * steps - 1, steps - 1
    if step <= top:
        low, high, share = _CYCLE_START, 1.0, step / top if top > 0 else 1.0
    else:
        low, high, share = 1.0, _CYCLE_END, min(1.0, (step - top) / max(last - top, 1e-9))
    return high + (low - high) * 0.5 * (1 + math.cos(math.pi * share))
