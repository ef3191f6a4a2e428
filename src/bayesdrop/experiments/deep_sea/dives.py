"""Agents of one kind in seas of one depth: how long they take, and how far their functions differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.control.agent_stack import AgentStack
from bayesdrop.control.schedules import LinearDecay
from bayesdrop.control.settings import EpsilonGreedy, QLearning, Thompson
from bayesdrop.control.training import train
from bayesdrop.control.worlds import DeepSeaVector

__all__ = ["FADING", "KINDS", "dive", "fade", "is_solved", "make_agents"]

#: kinds of agents, and their names in tables
KINDS = {
    "epsilon": "epsilon-greedy",
    "low": "dropout 0.1, held an episode",
    "episode": "dropout 0.5, held an episode",
    "step": "dropout 0.5, held a step",
    "concrete": "Concrete from 0.5, held an episode",
    "ensemble": "bootstrapped ensemble of ten",
}
#: a sea is solved when so many treasures were found within so many episodes
_WANTED, _WITHIN = 10, 100
#: kinds whose functions are compared during the first episodes
FADING = ("episode", "concrete", "ensemble")


def make_agents(key: Mapping[str, Any]) -> AgentStack:
    """M agents of one kind, one for every seed, for seas of one depth; see `Config` for the key."""
    kind, depth = key["agent"], key["depth"]
    learning = QLearning(
        gamma=key["gamma"], lr=key["lr"], replay_size=key["replay_size"], learn_after=64, batch_size=64
    )
    epsilon = LinearDecay(0, max(1, key["epsilon_episodes"] * depth))
    explore = EpsilonGreedy(epsilon) if kind == "epsilon" else Thompson(1 if kind == "step" else "episode")
    return AgentStack(
        explore,
        learning,
        inputs=depth**2,
        num_actions=2,
        seeds=range(key["seed"], key["seed"] + key["num_seeds"]),
        hidden=(key["hidden"],),
        p={"epsilon": 0.0, "ensemble": 0.0, "low": 0.1}.get(kind, 0.5),
        method="concrete" if kind == "concrete" else "bernoulli",
        members=10 if kind == "ensemble" else 1,
        bootstrap=0.5 if kind == "ensemble" else 1.0,
        first_scale=float(depth),
    )


def dive(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: agents dive until all have solved their seas or the episodes are over.

    Returns: "first" (M,) and "solved" (M,), episodes to the first treasure and until solved, -1 where that
    never happened; "spread" (2, M) of functions in the first cell, before the dives and after; "rates" (L, M)
    of the L layers at the end.
    """
    agents, depth = make_agents(key), key["depth"]
    worlds = DeepSeaVector(len(agents), depth=depth, mapping_seed=key["seed"], autoreset="same-step")
    found: list[list[int]] = [[] for _ in range(len(agents))]
    first, solved = np.full(len(agents), -1), np.full(len(agents), -1)
    before = spread(agents, depth, 0)

    def each(step: int, rewards: NDArray[np.float64], infos: dict[str, Any]) -> None:
        episode = (step - 1) // depth + 1
        for place in np.flatnonzero(rewards > 0.5).tolist():
            found[place].append(episode)
            first[place] = episode if first[place] < 0 else first[place]
            if solved[place] < 0 and is_solved(found[place]):
                solved[place] = episode
        if (solved > 0).all():
            raise StopIteration

    train(agents, worlds, key["episodes"] * depth, seed=key["seed"], each=each)
    rates = np.stack([rate.view(len(agents), -1)[:, 0].numpy() for rate in agents.rates()])
    return {
        "first": first,
        "solved": solved,
        "spread": np.stack([before, spread(agents, depth, 0)]),
        "rates": rates,
    }


def is_solved(found: list[int]) -> bool:
    """Whether the latest ten treasures were found within a hundred episodes."""
    return len(found) >= _WANTED and found[-1] - found[-_WANTED] < _WITHIN


def fade(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: how far functions differ during the first episodes, in which hardly any treasure is found.

    Returns: "spread" (2, E, M) in the first cell and in the treasure's, after each of the E episodes of
    `looks`; "found" (M,), the number of treasures found by then.
    """
    agents, depth = make_agents(key), key["depth"]
    worlds = DeepSeaVector(len(agents), depth=depth, mapping_seed=key["seed"], autoreset="same-step")
    corners, looks = (0, depth**2 - 1), tuple(key["looks"])
    spreads = [[spread(agents, depth, cell) for cell in corners]]
    found = np.zeros(len(agents), np.int64)

    def each(step: int, rewards: NDArray[np.float64], infos: dict[str, Any]) -> None:
        found[rewards > 0.5] += 1
        if step % depth == 0 and step // depth in looks:
            spreads.append([spread(agents, depth, cell) for cell in corners])

    train(agents, worlds, looks[-1] * depth, seed=key["seed"], each=each)
    return {"spread": np.stack([np.stack(one) for one in spreads], 1), "found": found}


def spread(agents: AgentStack, depth: int, cell: int) -> NDArray[np.float64]:
    """(M,) how far functions differ in a cell: standard deviation of its values, mean over both actions.

    Functions are the members of an ensemble, or 500 draws of dropout.
    """
    start = torch.zeros(1, depth**2)
    start[0, cell] = 1
    spreads = []
    for agent in range(len(agents)):
        if agents.members > 1:
            networks = [agents.network(agent, member) for member in range(agents.members)]
            values = torch.cat([network(start) for network in networks])
        else:
            # In training every row has a mask of its own.
            network = agents.network(agent).train()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(agents.seeds[agent])
                values = network(start.expand(500, -1))
        spreads.append(float(values.detach().std(0).mean()))
    return np.array(spreads)
