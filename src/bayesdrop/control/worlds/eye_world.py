"""EyeWorld: an agent with nine eyes among walls, food and poison, one world or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray

from bayesdrop.control.worlds.eye_picture import draw_plane
from bayesdrop.control.worlds.eyes import ACTIONS, EYES, Plane
from bayesdrop.control.worlds.many import Actions, Infos, ManyWorlds, Observations, chosen_actions
from bayesdrop.errors import is_one_of, must, must_be_flag, whole_number

__all__ = ["EyeWorld", "EyeWorldVector"]

_SIGHT = 3 * len(EYES)


class _Memory:
    """Observations: what the eyes see now, and what they saw and the agent did in the last k ticks.

    A tick of memory has 27 numbers of the eyes and five of the action, 27 for the one that was taken and 0
    for the others. Ticks before the first one are zeros.
    """

    def __init__(self, worlds: int, window: int) -> None:
        self.past = np.zeros((worlds, window, _SIGHT + len(ACTIONS)), np.float32)

    def forget(self, places: Sequence[int]) -> None:
        """Clear the memory of some worlds, which were reset."""
        self.past[list(places)] = 0

    def add(self, seen: Observations, actions: Actions) -> None:
        """Store one more tick."""
        if self.past.shape[1]:
            self.past[:, 1:] = self.past[:, :-1].copy()
            self.past[:, 0, :_SIGHT] = seen
            self.past[:, 0, _SIGHT:] = np.float32(_SIGHT) * np.eye(len(ACTIONS), dtype=np.float32)[actions]

    def shown(self, seen: Observations) -> Observations:
        """The observations, (W, 27 + 32 k)."""
        if not self.past.shape[1]:
            return seen
        return np.concatenate([seen, self.past.reshape(len(seen), -1)], 1)


def _space(window: int) -> gymnasium.spaces.Box:
    high = np.ones(_SIGHT + window * (_SIGHT + len(ACTIONS)), np.float32)
    for k in range(window):
        start = _SIGHT + k * (_SIGHT + len(ACTIONS)) + _SIGHT
        high[start : start + len(ACTIONS)] = _SIGHT
    return gymnasium.spaces.Box(np.zeros_like(high), high, dtype=np.float32)


class EyeWorldVector(ManyWorlds):
    """Many eye worlds that are stepped at once. See `EyeWorld` for the world and the other arguments.

    Args:
        num_envs: how many.
        doubled_proximity: as in `EyeWorld`.
        window: as in `EyeWorld`.
        max_ticks: as in `EyeWorld`.
        autoreset: "next-step" or "same-step": when a world that has ended resets.
        render_mode: "rgb_array" or None: `render()` gives a picture of every world.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        doubled_proximity: bool = False,
        window: int = 0,
        max_ticks: int | None = None,
        autoreset: str = "next-step",
        render_mode: str | None = None,
    ) -> None:
        owner = type(self).__name__
        must_be_flag(owner, doubled_proximity=doubled_proximity)
        window = whole_number(owner, "window", window, at_least=0, at_most=1000)
        super().__init__(num_envs, _space(window), len(ACTIONS), autoreset)
        self.max_ticks = (
            None if max_ticks is None else whole_number(owner, "max_ticks", max_ticks, at_least=1)
        )
        self.render_mode = _render_mode(owner, render_mode)
        generators = [np_random(None)[0] for _ in range(self.num_envs)]
        self.plane = Plane(generators, doubled_proximity=bool(doubled_proximity))
        self._memory = _Memory(self.num_envs, window)

    def begin(self, places: Sequence[int], generators: list[np.random.Generator] | None) -> None:
        """Reset some worlds."""
        if generators is not None:
            self.plane.generators = generators
        self.plane.begin(places)
        self._memory.forget(places)

    def advance(self, actions: Actions) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """One tick; rewards, terminated (never), truncated (after `max_ticks`)."""
        self._memory.add(self.plane.inputs(), actions)
        rewards = self.plane.step(actions)
        never = np.zeros(self.num_envs, np.bool_)
        return rewards, never, never.copy() if self.max_ticks is None else self.plane.tick >= self.max_ticks

    def observations(self) -> Observations:
        """(W, 27), or more with a window."""
        return self._memory.shown(self.plane.inputs())

    def infos(self) -> Infos:
        """Food and poison eaten since each world began."""
        return {"food": self.plane.eaten[:, 0].copy(), "poison": self.plane.eaten[:, 1].copy()}

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A picture (500, 700, 3) of every world."""
        if self.render_mode is None:
            return None
        return tuple(draw_plane(self.plane, place) for place in range(self.num_envs))


class EyeWorld(gymnasium.Env[Observations, np.int64]):
    """An agent with nine eyes in a plane of 700 x 500 with walls, food and poison.

    Every eye has a range of 85 and gives three numbers, for wall, food and poison: distance / 85 for what it
    sees, and 1 for the others. There are five actions: straight on, two slight and two sharp turns. The
    reward is

        prox + 0.1 prox [straight on and prox > 0.75] + 5 for food - 6 for poison

    where prox is the mean over eyes of distance / 85 to a wall, 1 for eyes that see none, before the move.
    Each of 30 items is food or poison with equal chances. The world has no end.

    Args:
        doubled_proximity: use min(1, 2 prox) for prox, as the demo that the world comes from does.
        window: how many past ticks, with their actions, are shown beside the present: 27 + 32 window inputs.
        max_ticks: ticks after which the world is truncated; None for never.
        render_mode: "rgb_array", or None for no pictures.

    Reference: Gal & Ghahramani (2016), section 5.4; the world is that of Karpathy's demo of deep Q-learning.

    >>> world = EyeWorld(window=1)
    >>> seen, info = world.reset(seed=0)
    >>> seen.shape
    (59,)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        *,
        doubled_proximity: bool = False,
        window: int = 0,
        max_ticks: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = _render_mode("EyeWorld", render_mode)
        self._worlds = EyeWorldVector(
            1, doubled_proximity=doubled_proximity, window=window, max_ticks=max_ticks
        )
        self.observation_space = self._worlds.single_observation_space
        self.action_space = self._worlds.single_action_space

    @property
    def plane(self) -> Plane:
        """The state of the world."""
        return self._worlds.plane

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Start again with thirty items and the agent at (50, 50)."""
        super().reset(seed=seed)
        self._worlds.begin([0], [self.np_random])
        return self._worlds.observations()[0], self._info()

    def step(self, action: np.int64) -> tuple[Observations, float, bool, bool, Infos]:
        """Make one tick; observation, reward, terminated, truncated, info."""
        chosen = chosen_actions("EyeWorld", np.asarray(action).reshape(-1), 1, len(ACTIONS))
        rewards, _, truncated = self._worlds.advance(chosen)
        return self._worlds.observations()[0], float(rewards[0]), False, bool(truncated[0]), self._info()

    def render(self) -> NDArray[np.uint8] | None:
        """A picture, (500, 700, 3)."""
        return None if self.render_mode is None else draw_plane(self.plane, 0)

    def _info(self) -> Infos:
        return {name: int(value[0]) for name, value in self._worlds.infos().items()}


def _render_mode(owner: str, mode: str | None) -> str | None:
    if not is_one_of(mode, ("rgb_array", None)):
        raise ValueError(must(owner, "render_mode", "'rgb_array' or None", mode))
    return mode
