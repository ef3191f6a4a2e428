"""Drop rates that follow a schedule while a model is trained."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from bayesdrop.errors import must, real_number
from bayesdrop.layers import set_rates

__all__ = ["ScheduledRates"]


class ScheduledRates:
    """Sets the rates of a model as a function of the steps that are done; at once, those of step 0.

    Args:
        model: a model with rates that are not learned.
        schedule: from the share of steps that is done to a rate.
        total_steps: of the run; None, if it is not known, is an error.
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
        """The rate after `step` steps."""
        # There may be more steps than expected, as if a loader gives more batches than its length.
        rate = self.schedule(min(1.0, step / self.total_steps))
        return real_number(
            "fit", "p_schedule", rate, "a function that gives rates in [0, 1)", at_least=0, below=1
        )

    def set(self, step: int) -> None:
        """Set the model's rates to that after `step` steps."""
        set_rates(self.model, self.rate(step))

    def described(self) -> dict[str, object]:
        """What a run that resumes must have in common: the rates at some steps, and the number of steps."""
        steps = [self.total_steps * part // 8 for part in range(9)]
        return {"total_steps": self.total_steps, "rates": [self.rate(step) for step in steps]}
