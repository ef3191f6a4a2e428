"""DeepSea: a sea of N x N cells in which only one sequence of N actions finds the treasure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bayesdrop.control.worlds.many import Actions, Infos, ManyWorlds, Observations, chosen_actions
from bayesdrop.errors import is_one_of, must, must_be_flag, whole_number, whole_seed

__all__ = ["DeepSea", "DeepSeaVector"]

_MOVE_COST = 0.01
_CELL = 12


def right_actions(owner: str, depth: int, randomised: bool, mapping_seed: int) -> NDArray[np.int64]:
    """(N, N) which of the two actions moves right in every cell: 1 everywhere unless randomised."""
    must_be_flag(owner, randomised=randomised)
    source = np.random.default_rng(whole_seed(owner, mapping_seed, "mapping_seed"))
    drawn = source.integers(0, 2, (depth, depth))
    return drawn if randomised else np.ones_like(drawn)


class DeepSeaVector(ManyWorlds):
    """Many deep seas that are stepped at once. See `DeepSea` for the world and the other arguments.

    Args:
        num_envs: how many.
        depth: as in `DeepSea`.
        randomised: as in `DeepSea`.
        mapping_seed: of the first world; the others have the seeds that follow.
        autoreset: "next-step" or "same-step": when a world that has ended resets.
        render_mode: "rgb_array" or None.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        depth: int = 10,
        randomised: bool = True,
        mapping_seed: int = 0,
        autoreset: str = "next-step",
        render_mode: str | None = None,
    ) -> None:
        owner = type(self).__name__
        self.depth = whole_number(owner, "depth", depth, at_least=2, at_most=1000)
        self.render_mode = _render_mode(owner, render_mode)
        space = gymnasium.spaces.Box(0.0, 1.0, (self.depth**2,), np.float32)
        super().__init__(num_envs, space, 2, autoreset)
        places = range(self.num_envs)
        self.rights = np.stack(
            [right_actions(owner, self.depth, randomised, mapping_seed + place) for place in places]
        )
        self.row = np.zeros(self.num_envs, np.int64)
        self.column = np.zeros(self.num_envs, np.int64)
        self._worlds = np.arange(self.num_envs)

    def begin(self, places: Sequence[int], generators: list[np.random.Generator] | None) -> None:
        """Reset some worlds; nothing in them is random."""
        self.row[list(places)] = self.column[list(places)] = 0

    def advance(self, actions: Actions) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Move one row down; rewards, terminated (at the bottom), truncated (never)."""
        # A world that has ended stays at the bottom until the caller resets it.
        row = np.minimum(self.row, self.depth - 1)
        right = actions == self.rights[self._worlds, row, self.column]
        treasure = right & (self.column == self.depth - 1)
        rewards = np.where(right, -_MOVE_COST / self.depth, 0.0) + treasure
        self.column = np.clip(self.column + np.where(right, 1, -1), 0, self.depth - 1)
        self.row = np.minimum(self.row + 1, self.depth)
        return rewards, self.row == self.depth, np.zeros(self.num_envs, np.bool_)

    def observations(self) -> Observations:
        """(W, N^2) 1 for the cell of the diver, 0 for all others; all 0 at the bottom."""
        seen = np.zeros((self.num_envs, self.depth, self.depth), np.float32)
        swimming = np.flatnonzero(self.row < self.depth)
        seen[swimming, self.row[swimming], self.column[swimming]] = 1
        return seen.reshape(self.num_envs, -1)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A picture of every world."""
        if self.render_mode is None:
            return None
        return tuple(self.picture(place) for place in range(self.num_envs))

    def picture(self, place: int) -> NDArray[np.uint8]:
        """(12 N, 12 N, 3) the sea with the diver, and the treasure in the far corner."""
        cells = np.full((self.depth, self.depth, 3), (214, 232, 245), np.uint8)
        cells[-1, -1] = (230, 159, 0)
        cells[min(self.row[place], self.depth - 1), self.column[place]] = (0, 114, 178)
        return cells.repeat(_CELL, 0).repeat(_CELL, 1)


class DeepSea(gymnasium.Env[Observations, np.int64]):
    """A diver starts in the top left of N x N cells and sinks one row a step, left or right by choice.

    A step right costs 0.01 / N; only N steps right lead to the treasure in the far corner, worth 1. The best
    return is 0.99, never going right gives 0, and random actions find the treasure once in 2^N episodes.

    Args:
        depth: N.
        randomised: the action that moves right differs from cell to cell, so that a network cannot find the
            treasure by treating all cells alike; if False, it is action 1 everywhere.
        mapping_seed: of that choice, which stays the same over episodes.
        render_mode: "rgb_array", or None for no pictures.

    Observations are one-hot, (N^2,). An episode has N steps.
    Reference: Osband, Van Roy, Russo & Wen (2019), "Deep exploration via randomized value functions", and
    the environment of that name in the behaviour suite of Osband et al. (2020).

    >>> sea = DeepSea(depth=4, randomised=False)
    >>> _ = sea.reset(seed=0)
    >>> round(sum(float(sea.step(1)[1]) for _ in range(4)), 6)
    0.99
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        *,
        depth: int = 10,
        randomised: bool = True,
        mapping_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = _render_mode("DeepSea", render_mode)
        self._worlds = DeepSeaVector(1, depth=depth, randomised=randomised, mapping_seed=mapping_seed)
        self.observation_space = self._worlds.single_observation_space
        self.action_space = self._worlds.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Go back to the top left."""
        super().reset(seed=seed)
        self._worlds.begin([0], None)
        return self._worlds.observations()[0], {}

    def step(self, action: np.int64) -> tuple[Observations, float, bool, bool, Infos]:
        """Move one row down; observation, reward, terminated, truncated, info."""
        chosen = chosen_actions("DeepSea", np.asarray(action).reshape(-1), 1, 2)
        rewards, terminated, _ = self._worlds.advance(chosen)
        return self._worlds.observations()[0], float(rewards[0]), bool(terminated[0]), False, {}

    def render(self) -> NDArray[np.uint8] | None:
        """A picture, (12 N, 12 N, 3)."""
        return None if self.render_mode is None else self._worlds.picture(0)


def _render_mode(owner: str, mode: str | None) -> str | None:
    if not is_one_of(mode, ("rgb_array", None)):
        raise ValueError(must(owner, "render_mode", "'rgb_array' or None", mode))
    return mode
