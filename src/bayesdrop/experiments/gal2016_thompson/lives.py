"""Lives: agents of one kind learn, all seeds side by side, and are measured on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.control.agent_stack import AgentStack
from bayesdrop.control.schedules import LinearDecay
from bayesdrop.control.settings import EpsilonGreedy, QLearning, Thompson
from bayesdrop.control.training import train
from bayesdrop.control.worlds import EyeWorldVector

__all__ = ["AVERAGED", "FILM_SEED", "KINDS", "PLOTTED_EVERY", "SETTINGS", "Published", "live", "make_agents"]

#: the average reward is over so many ticks
AVERAGED = 1_000
#: ticks from one point of its curve to the next: one of the paper's "batches"
PLOTTED_EVERY = 200
#: of the world of the film
FILM_SEED = 7


@dataclass(frozen=True)
class Published:
    """A published setting: what the two descriptions differ in."""

    window: int  #: past ticks among the inputs
    decay: float  #: of the weights; the published code divides it by the batch size
    random_steps: int  #: at the start
    p: tuple[float, float]  #: of the units of the two hidden layers


SETTINGS = {
    "paper": Published(window=0, decay=1e-3, random_steps=5_000, p=(0.1, 0.1)),
    "demo": Published(window=1, decay=1e-2, random_steps=3_000, p=(0.2, 0.0)),
}
#: kinds of agents, and their names in tables
KINDS = {
    "thompson": "Thompson, fixed p",
    "epsilon": "epsilon-greedy",
    "fast": "epsilon-greedy, fast",
    "concrete": "Thompson, Concrete p",
}
_BATCH = 64


def make_agents(
    setting: Published, kind: str, *, seeds: range, random_steps: int, fast_ticks: int
) -> AgentStack:
    """Agents of one kind, one for every seed. Those that explore by epsilon have no dropout.

    Args:
        setting: published setting.
        kind: one of `KINDS`.
        seeds: of the agents.
        random_steps: at the start, in which actions are random.
        fast_ticks: the epsilon of "fast" falls within so many ticks after the start.
    """
    learning = QLearning(batch_size=_BATCH, weight_decay=setting.decay / _BATCH)
    inputs = 27 + 32 * setting.window
    if kind in ("thompson", "concrete"):
        return AgentStack(
            Thompson(hold=1, random_for=random_steps), learning, inputs=inputs, num_actions=5, seeds=seeds,
            p=setting.p, method="concrete" if kind == "concrete" else "bernoulli",
        )  # fmt: skip
    end = random_steps + fast_ticks if kind == "fast" else 200_000
    start = random_steps if kind == "fast" else 3_000
    explore = EpsilonGreedy(LinearDecay(start, end), random_for=random_steps)
    return AgentStack(explore, learning, inputs=inputs, num_actions=5, seeds=seeds, p=0.0)


def live(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: M agents of one kind learn; see `Config` for the key. Times are in ticks.

    Returns: "ticks" (P,), the paper's axis, and on it "reward" (P, M), the average of the last 1,000 ticks,
    and "food" and "poison" (P, M), eaten since the beginning; "check" (C,), when agents were evaluated, and
    of these evaluations "greedy_reward", "greedy_food" and "greedy_poison" (C, M), the last two in 1,000
    ticks; "rates" (C, L, M) of the L layers; "film", the actions of the first agent in the film's world.
    """
    setting = SETTINGS[key["setting"]]
    random_steps = setting.random_steps if key["random_steps"] is None else int(key["random_steps"])
    seeds = range(key["seed"], key["seed"] + key["num_seeds"])
    agents = make_agents(
        setting, key["agent"], seeds=seeds, random_steps=random_steps, fast_ticks=key["fast_ticks"]
    )
    worlds = EyeWorldVector(len(agents), window=setting.window, autoreset="same-step")
    rewards = np.zeros((key["ticks"], len(agents)), np.float32)
    curves: list[NDArray[Any]] = []
    checks: list[NDArray[Any]] = []
    rates: list[NDArray[Any]] = []

    def each(tick: int, reward: NDArray[np.float64], infos: dict[str, Any]) -> None:
        rewards[tick - 1] = reward
        if tick % PLOTTED_EVERY == 0:
            average = rewards[max(0, tick - AVERAGED) : tick].mean(0)
            curves.append(np.stack([average, infos["food"], infos["poison"]]))
        if tick % key["checkpoint_every"] == 0:
            checks.append(_evaluated(agents, setting, key))
            rates.append(np.stack([rate.numpy() for rate in agents.rates()]))

    train(agents, worlds, key["ticks"], seed=key["seed"], each=each)
    curve, check = np.stack(curves, 1), np.stack(checks, 1)
    return {
        "ticks": PLOTTED_EVERY * np.arange(1, curve.shape[1] + 1),
        "reward": curve[0],
        "food": curve[1],
        "poison": curve[2],
        "check": key["checkpoint_every"] * np.arange(1, check.shape[1] + 1),
        "greedy_reward": check[0],
        "greedy_food": check[1],
        "greedy_poison": check[2],
        "rates": np.stack(rates),
        "film": _acted(agents, setting, key),
    }


def _evaluated(agents: AgentStack, setting: Published, key: Mapping[str, Any]) -> NDArray[Any]:
    """(3, M) mean reward, and food and poison in 1,000 ticks, of agents acting greedily, without learning."""
    count, ticks = key["evaluation_worlds"], key["evaluation_ticks"]
    worlds = EyeWorldVector(len(agents) * count, window=setting.window, autoreset="same-step")
    # The same worlds for all agents in every evaluation, with seeds far from those of training.
    first = 10**6 * (1 + key["seed"])
    seen, infos = worlds.reset(seed=[first + place % count for place in range(worlds.num_envs)])
    total = np.zeros(worlds.num_envs)
    for _ in range(ticks):
        actions = agents.act_greedily(seen.reshape(len(agents), count, -1))
        seen, reward, *_, infos = worlds.step(actions.ravel())
        total += reward
    counted = [total / ticks, infos["food"] * 1000 / ticks, infos["poison"] * 1000 / ticks]
    return np.stack([values.reshape(len(agents), count).mean(1) for values in counted])


def _acted(agents: AgentStack, setting: Published, key: Mapping[str, Any]) -> NDArray[np.int64]:
    """Actions of the first agent, one for every tick, as it acts greedily in the film's world."""
    worlds = EyeWorldVector(1, window=setting.window, autoreset="same-step")
    seen, _ = worlds.reset(seed=FILM_SEED)
    done = []
    for _ in range(key["film_ticks"]):
        # All agents are asked, and the first one's answer is taken.
        every = np.repeat(seen[None], len(agents), 0)
        actions = agents.act_greedily(every)[0]
        done.append(int(actions[0]))
        seen, *_ = worlds.step(actions)
    return np.array(done)
