"""Two optimisers that are one to everybody else: weights by the first, drop rates by the second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

__all__ = ["TwoOptimizers"]


class TwoOptimizers(Optimizer):
    """Groups, steps and state of both. Schedulers change the learning rates of both.

    Args:
        first: has the first groups.
        second: has those that follow.
    """

    def __init__(self, first: Optimizer, second: Optimizer) -> None:
        # Not Optimizer.__init__: the groups and the state are those of the two.
        self.both = (first, second)
        self.defaults: dict[str, Any] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Those of the first, then those of the second."""
        return [group for part in self.both for group in part.param_groups]

    @property
    def kind(self) -> str:
        """The classes of both, for a checkpoint to compare."""
        return " and ".join(type(part).__name__ for part in self.both)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """A step of each; they have no closure."""
        for part in self.both:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let go of the gradients of both."""
        for part in self.both:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As of one optimiser of all groups: the parameters of the second are counted on."""
        first, second = (part.state_dict() for part in self.both)
        count = self._count()
        groups = [
            group | {"params": [place + count for place in group["params"]]}
            for group in second["param_groups"]
        ]
        state = {place + count: value for place, value in second["state"].items()}
        return {
            "state": first["state"] | state,
            "param_groups": first["param_groups"] + groups,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        count, groups = self._count(), state_dict["param_groups"]
        head = len(self.both[0].param_groups)
        state = state_dict["state"]
        self.both[0].load_state_dict(
            {"state": {p: v for p, v in state.items() if p < count}, "param_groups": groups[:head]}
        )
        self.both[1].load_state_dict(
            {
                "state": {p - count: v for p, v in state.items() if p >= count},
                "param_groups": [
                    group | {"params": [place - count for place in group["params"]]}
                    for group in groups[head:]
                ],
            }
        )

    def _count(self) -> int:
        """Parameters of the first."""
        return sum(len(group["params"]) for group in self.both[0].param_groups)
