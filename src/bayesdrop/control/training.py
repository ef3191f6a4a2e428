"""train(): agents act in worlds, store transitions and learn, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from bayesdrop.errors import must, whole_number, whole_seed

__all__ = ["Learner", "check_worlds", "train"]

Seen = NDArray[np.float32]
Each = Callable[[int, NDArray[np.float64], dict[str, Any]], None]


class Learner(Protocol):
    """The methods that `train` calls; `AgentStack`, `ThompsonAgent` and the other agents have them."""

    inputs: int
    num_actions: int

    def act(self, observations: Seen) -> NDArray[np.int64]:
        """An action for every world."""

    def remember(
        self,
        observations: Seen,
        actions: NDArray[np.int64],
        rewards: NDArray[np.float64],
        next_observations: Seen,
        terminated: NDArray[np.bool_],
        over: NDArray[np.bool_] | None = None,
    ) -> None:
        """Store one transition of every world."""

    def learn(self) -> bool:
        """One update, if the memory has enough transitions; returns whether there was one."""


def check_worlds(owner: str, agents: Learner, worlds: Any) -> VectorEnv[Any, Any, Any]:
    """The worlds as one `VectorEnv`; raise unless their spaces fit the agents.

    Args:
        owner: the caller, for errors.
        agents: with `inputs` and `num_actions`; agents with a length need as many worlds.
        worlds: a `gymnasium.vector.VectorEnv` that resets in the same step, or a single `gymnasium.Env`.
    """
    if isinstance(worlds, gymnasium.Env):
        single = worlds
        worlds = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.SAME_STEP)
    if not isinstance(worlds, VectorEnv):
        raise TypeError(must(owner, "worlds", "a gymnasium.Env or a gymnasium.vector.VectorEnv", worlds))
    if worlds.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
        hint = "Make them with autoreset='same-step' (ours) or autoreset_mode=AutoresetMode.SAME_STEP."
        got = worlds.metadata.get("autoreset_mode")
        raise ValueError(must(owner, "worlds", "of the autoreset mode SAME_STEP", got, hint))
    seen, actions = worlds.single_observation_space, worlds.single_action_space
    if not isinstance(seen, gymnasium.spaces.Box) or seen.shape != (agents.inputs,):
        hint = "Those are the inputs of the Q-network."
        raise ValueError(must(owner, "worlds", f"of observations of {agents.inputs} numbers", seen, hint))
    if not isinstance(actions, gymnasium.spaces.Discrete) or actions.n != agents.num_actions:
        hint = "Those are the outputs of the Q-network."
        raise ValueError(must(owner, "worlds", f"of {agents.num_actions} actions", actions, hint))
    if actions.start != 0:
        raise ValueError(must(owner, "worlds", "of actions that are counted from 0", actions))
    many = len(agents) if isinstance(agents, Sized) else worlds.num_envs
    if worlds.num_envs != many:
        raise ValueError(must(owner, "worlds", f"{many}, one for each agent", worlds.num_envs))
    return worlds


def train(
    agents: Learner, worlds: Any, steps: int, *, seed: int | None = None, each: Each | None = None
) -> None:
    """Let agents act in their worlds for some steps, and learn after each.

    In a step, every agent acts, every world makes a step, transitions are stored, and one update follows.
    Worlds whose episode is over reset in the same step; the next observation of the last action is the last
    one of its episode, not the first one of the next.

    Args:
        agents: an `AgentStack` (one agent a world) or one agent for all worlds.
        worlds: a `gymnasium.vector.VectorEnv` that resets in the same step, or a single `gymnasium.Env`.
        steps: number of steps.
        seed: of the first reset; None leaves the generators of the worlds as they are.
        each: called after every step with its number, counted from 1, the rewards (W,) and the infos. It may
            raise StopIteration to end the training.
    """
    owner = "train"
    steps = whole_number(owner, "steps", steps, at_least=1)
    vector = check_worlds(owner, agents, worlds)
    seen, _ = vector.reset(seed=None if seed is None else whole_seed(owner, seed))
    if not np.isfinite(seen).all():
        raise ValueError(must(owner, "worlds", "of finite observations", seen))
    for step in range(1, steps + 1):
        actions = agents.act(seen)
        new, rewards, terminated, truncated, infos = vector.step(actions)
        if not np.isfinite(rewards).all():
            raise ValueError(must(owner, "rewards", f"finite (step {step})", rewards))
        over = terminated | truncated
        agents.remember(seen, actions, rewards, _followed(new, over, infos), terminated, over)
        agents.learn()
        seen = new
        if each is not None:
            try:
                each(step, rewards, infos)
            except StopIteration:
                return


def _followed(new: Seen, over: NDArray[np.bool_], infos: dict[str, Any]) -> Seen:
    """The observations after the actions: the last ones of their episodes where these are over."""
    if not over.any():
        return new
    followed = new.copy()
    for place in np.flatnonzero(over):
        followed[place] = infos["final_obs"][place]
    return followed
