"""Two optimisers used as one: the first for the weights, the second for the drop rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

__all__ = ["TwoOptimizers"]


class TwoOptimizers(Optimizer):
    """An optimiser with the groups and state of two, which steps both; schedulers change both.

    Args:
        first: has the first parameter groups.
        second: has the groups that follow.
    """

    def __init__(self, first: Optimizer, second: Optimizer) -> None:
        # Not Optimizer.__init__: the groups and the state are those of the two.
        self.both = (first, second)
        self.defaults: dict[str, Any] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups of the first, then those of the second."""
        return [group for part in self.both for group in part.param_groups]

    @property
    def kind(self) -> str:
        """The classes of both, for a checkpoint to compare."""
        return " and ".join(type(part).__name__ for part in self.both)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """A step of each; a closure is not called."""
        for part in self.both:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of both to None, or to zero."""
        for part in self.both:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The state as of one optimiser: the numbers of the second's parameters follow the first's."""
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
        """Number of parameters of the first optimiser."""
        return sum(len(group["params"]) for group in self.both[0].param_groups)
