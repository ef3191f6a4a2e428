"""Drop rates that follow a schedule while a model is trained."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from bayesdrop.errors import must, real_number
from bayesdrop.layers import set_rates

__all__ = ["ScheduledRates"]


class ScheduledRates:
    """The rates of a model as a function of the steps that are done; at first, those of no step.

    Args:
        model: whose fixed rates are set.
        schedule: from the share of the steps to a rate.
        total_steps: of the run; None where it is not known.
    """

    def __init__(self, model: nn.Module, schedule: Callable[[float], float], total_steps: int | None) -> None:
        if total_steps is None:
            want = "None where the number of minibatches is not known"
            raise ValueError(must("fit", "p_schedule", want, schedule))
        self.model = model
        self.schedule = schedule
        self.total_steps = total_steps
        self.set(0)

    def rate(self, step: int) -> float:
        """When `step` steps are done."""
        # A run may go on after its last step, as where a last batch is split otherwise.
        rate = self.schedule(min(1.0, step / self.total_steps))
        return real_number(
            "fit", "p_schedule", rate, "a function that gives rates in [0, 1)", at_least=0, below=1
        )

    def set(self, step: int) -> None:
        """Give the model its rate."""
        set_rates(self.model, self.rate(step))

    def described(self) -> dict[str, object]:
        """What a run that goes on must share: the rates at some steps, and how many there are."""
        steps = [self.total_steps * part // 8 for part in range(9)]
        return {"total_steps": self.total_steps, "rates": [self.rate(step) for step in steps]}
