"""Transitions: states, actions, and the states that followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, must_be_tensor

__all__ = ["Transitions"]


@dataclass(frozen=True)
class Transitions:
    """N steps that were taken in a world.

    Attributes:
        states: (N, S).
        actions: (N, A).
        next_states: (N, S).
    """

    states: Tensor
    actions: Tensor
    next_states: Tensor

    def __post_init__(self) -> None:
        for name in ("states", "actions", "next_states"):
            value = getattr(self, name)
            must_be_tensor("Transitions", name, value, floating=True)
            if value.dim() != 2:
                raise ValueError(must("Transitions", name, "of shape (N, size)", tuple(value.shape)))
            must_be_finite("Transitions", name, value)
        if self.next_states.shape != self.states.shape:
            want = f"of the shape of `states`, {tuple(self.states.shape)}"
            raise ValueError(must("Transitions", "next_states", want, tuple(self.next_states.shape)))
        if len(self.actions) != len(self.states):
            want = f"of {len(self.states)} rows, as `states`"
            raise ValueError(must("Transitions", "actions", want, tuple(self.actions.shape)))

    def __len__(self) -> int:
        return len(self.states)

    @classmethod
    def of_episode(cls, seen: Tensor, actions: Tensor) -> Transitions:
        """The transitions of one episode, from its states (H + 1, S) and actions (H, A)."""
        return cls(seen[:-1], actions, seen[1:])

    @classmethod
    def joined(cls, parts: Sequence[Transitions]) -> Transitions:
        """Several sets of transitions as one."""
        if not parts:
            raise ValueError(must("Transitions.joined", "parts", "at least one", parts))
        return cls(
            torch.cat([part.states for part in parts]),
            torch.cat([part.actions for part in parts]),
            torch.cat([part.next_states for part in parts]),
        )

    def __getitem__(self, rows: Tensor | slice) -> Transitions:
        return Transitions(self.states[rows], self.actions[rows], self.next_states[rows])

    def mirrored(self) -> Transitions:
        """The mirror images of all transitions: every number with the opposite sign.

        In a world that is symmetric, the mirror image of a transition is a possible transition. That is prior
        knowledge, which doubles the data: say so where it is used.
        """
        return Transitions(-self.states, -self.actions, -self.next_states)
