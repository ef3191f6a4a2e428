"""Many worlds in one `gymnasium.vector.VectorEnv`: the common code of steps, seeds and resets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bayesdrop.errors import is_one_of, must, whole_number, whole_seed

__all__ = ["ManyWorlds", "chosen_actions", "generators_of"]

Observations = NDArray[np.float32]
Actions = NDArray[np.int64]
Infos = dict[str, Any]


def generators_of(
    owner: str, seed: int | Sequence[int | None] | None, worlds: int
) -> list[np.random.Generator] | None:
    """A generator for every world, of seed, seed + 1, ...; None where there is no seed.

    Single worlds with these seeds have the same generators.
    """
    if seed is None:
        return None
    if isinstance(seed, Sequence):
        if len(seed) != worlds:
            raise ValueError(must(owner, "seed", f"one number, or one for each of {worlds} worlds", seed))
        return [np_random(one if one is None else whole_seed(owner, one))[0] for one in seed]
    first = whole_seed(owner, seed)
    return [np_random(first + place)[0] for place in range(worlds)]


def chosen_actions(owner: str, actions: Any, worlds: int, count: int) -> Actions:
    """Actions as an array (worlds,); raise unless each is a whole number from 0 to count - 1."""
    chosen = np.asarray(actions)
    if chosen.shape != (worlds,) or chosen.dtype.kind not in "iu":
        raise ValueError(must(owner, "actions", f"{worlds} whole numbers", actions))
    if chosen.min() < 0 or chosen.max() >= count:
        raise ValueError(must(owner, "actions", f"from 0 to {count - 1}", actions))
    return chosen.astype(np.int64)


class ManyWorlds(VectorEnv[Observations, Actions, NDArray[Any]]):
    """W worlds that are stepped at once. World w of seed s is the single world of seed s + w.

    A world that has ended resets: at the next step, whose action it ignores and whose reward is 0
    (Gymnasium's `AutoresetMode.NEXT_STEP`), or in the same step, whose infos then have the last observation
    as "final_obs" (`AutoresetMode.SAME_STEP`).

    Args:
        num_envs: W.
        observation_space: of one world.
        num_actions: of one world.
        autoreset: "next-step" or "same-step".
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: gymnasium.spaces.Box,
        num_actions: int,
        autoreset: str = "next-step",
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.num_envs = whole_number(owner, "num_envs", num_envs, at_least=1)
        modes = {"next-step": AutoresetMode.NEXT_STEP, "same-step": AutoresetMode.SAME_STEP}
        if not is_one_of(autoreset, modes):
            raise ValueError(must(owner, "autoreset", "'next-step' or 'same-step'", autoreset))
        self._mode = modes[autoreset]
        self.metadata = {**self.metadata, "autoreset_mode": self._mode}
        self.num_actions = num_actions
        self.single_observation_space = observation_space
        self.single_action_space = gymnasium.spaces.Discrete(num_actions)
        self.observation_space = batch_space(observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._ended = np.zeros(self.num_envs, np.bool_)

    @abstractmethod
    def begin(self, places: Sequence[int], generators: list[np.random.Generator] | None) -> None:
        """Reset some worlds; if generators are given, all worlds get them."""

    @abstractmethod
    def advance(self, actions: Actions) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """One step of all worlds: rewards, terminated, truncated."""

    @abstractmethod
    def observations(self) -> Observations:
        """The observations of all worlds."""

    def infos(self) -> Infos:
        """Further facts by name: arrays with one entry for each world."""
        return {}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Reset all worlds.

        Args:
            seed: of the first world, of which the others have seed + 1, ...; or one for each; None leaves
                the generators as they are.
            options: not used.
        """
        self._ended[:] = False
        self.begin(range(self.num_envs), generators_of(type(self).__name__, seed, self.num_envs))
        return self.observations(), self.infos()

    def step(
        self, actions: Actions
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Infos]:
        """One step of every world: observations, rewards, terminated, truncated, infos."""
        chosen = chosen_actions(type(self).__name__, actions, self.num_envs, self.num_actions)
        rewards, terminated, truncated = self.advance(chosen)
        again = self._ended.copy()
        if again.any():
            self.begin(np.flatnonzero(again).tolist(), None)
            rewards[again], terminated[again], truncated[again] = 0.0, False, False
        ended = terminated | truncated
        seen, infos = self.observations(), self.infos()
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            infos = {**infos, "final_obs": seen, "_final_obs": ended}
            self.begin(np.flatnonzero(ended).tolist(), None)
            return self.observations(), rewards, terminated, truncated, infos
        self._ended = ended
        return seen, rewards, terminated, truncated, infos
