"""Replay: memories of transitions, which are overwritten at random when they are full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import must, whole_number, whole_seed

__all__ = ["Batch", "Replay"]

#: for how many steps random numbers are made at once
_AHEAD = 256


class Batch(NamedTuple):
    """Sampled transitions of A agents, B each."""

    observations: Tensor  #: (A, B, D)
    actions: Tensor  #: (A, B) int64
    rewards: Tensor  #: (A, B)
    next_observations: Tensor  #: (A, B, D)
    terminated: Tensor  #: (A, B) 1 where the episode ended with the step, so that no state follows
    draws: Tensor  #: (A, B) int64, index of the draw that was held; -1 for the mean weights
    places: Tensor  #: (A, B) int64, places of the transitions in the memory of their agent


class Replay:
    """Memories of A agents: transitions of each, sampled uniformly with replacement.

    In a full memory, a new transition overwrites a random one, as in Karpathy's demo: the chance that a
    transition is still there falls with its age.

    Args:
        capacity: largest number of transitions of each agent.
        observation_size: D.
        seeds: one for each agent; an agent's samples do not depend on its neighbours.
        batch_size: B.
    """

    def __init__(
        self, capacity: int, observation_size: int, *, seeds: Sequence[int], batch_size: int
    ) -> None:
        owner = "Replay"
        self.capacity = whole_number(owner, "capacity", capacity, at_least=1)
        size = whole_number(owner, "observation_size", observation_size, at_least=1)
        self.batch_size = whole_number(owner, "batch_size", batch_size, at_least=1)
        if not len(seeds):
            raise ValueError(must(owner, "seeds", "at least one", seeds))
        agents = len(seeds)
        self._generators = [np.random.default_rng([0x5EED, whole_seed(owner, seed)]) for seed in seeds]
        shape = (agents * self.capacity,)
        self._observations = np.zeros((*shape, size), np.float32)
        self._next = np.zeros((*shape, size), np.float32)
        self._actions = np.zeros(shape, np.int64)
        self._rewards, self._terminated = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._draws = np.full(shape, -1, np.int64)
        self._starts = np.arange(agents) * self.capacity
        self._size = 0
        self._chance: NDArray[np.float64] = np.zeros((agents, 0, 0))
        self._step = 0

    def __len__(self) -> int:
        """Number of transitions of each agent."""
        return self._size

    def add(
        self,
        observations: NDArray[np.float32],
        actions: NDArray[np.int64],
        rewards: NDArray[Any],
        next_observations: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        draws: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Remember one transition of every agent.

        Args:
            observations: (A, D) before the actions.
            actions: (A,).
            rewards: (A,) of the actions.
            next_observations: (A, D) after the actions.
            terminated: (A,) whether the episode ended; False where it was only truncated.
            draws: (A,) index of the draw that was held; None for the mean weights.

        Returns: (A,) the place of the transition in each memory.
        """
        if not np.isfinite(rewards).all():
            raise ValueError(must("Replay", "rewards", "finite", rewards))
        if self._size < self.capacity:
            places = np.full(len(self._starts), self._size)
            self._size += 1
        else:
            places = np.array([source.integers(self.capacity) for source in self._generators])
        at = self._starts + places
        self._observations[at], self._next[at] = observations, next_observations
        self._actions[at], self._rewards[at], self._terminated[at] = actions, rewards, terminated
        self._draws[at] = -1 if draws is None else draws
        return places

    def sample(self) -> Batch:
        """B transitions of every agent's memory."""
        if self._size == 0:
            raise ValueError("Replay: there is nothing to sample from yet; add() transitions first.")
        if self._step == self._chance.shape[1]:
            shape = (_AHEAD, self.batch_size)
            self._chance = np.stack([source.random(shape) for source in self._generators])
            self._step = 0
        # A double below 1 times the size, rounded, stays below the size.
        places = (self._chance[:, self._step] * self._size).astype(np.int64)
        self._step += 1
        at = (places + self._starts[:, None]).ravel()
        shape = places.shape
        return Batch(
            torch.from_numpy(self._observations[at]).view(*shape, -1),
            torch.from_numpy(self._actions[at]).view(shape),
            torch.from_numpy(self._rewards[at]).view(shape),
            torch.from_numpy(self._next[at]).view(*shape, -1),
            torch.from_numpy(self._terminated[at]).view(shape),
            torch.from_numpy(self._draws[at]).view(shape),
            torch.from_numpy(places),
        )
