"""Osband (2016) on the dangers of dropout: how many episodes until a deep sea is solved, by depth.

A diver who goes right at every one of N steps finds a treasure; every step right costs a little, and random
actions find it once in 2^N episodes. Exploration that is consistent over an episode scales far better: each
episode's function either goes all the way or does not. Osband's criticism is that the noise of dropout at a
fixed rate does not fall with the data and so is no posterior to draw such functions from.

Agents of one kind differ in nothing but how they explore: one hidden layer of 50 units, plain Q-learning
without a target network, an update a step, ten seeds, seas whose actions are mixed up cell by cell. A sea
counts as solved when the treasure was found ten times within a hundred episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.control.agent_stack import AgentStack
from bayesdrop.control.schedules import LinearDecay
from bayesdrop.control.settings import EpsilonGreedy, QLearning, Thompson
from bayesdrop.control.training import train
from bayesdrop.control.worlds import DeepSeaVector
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.plots import COLORS, new_figure

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: kinds of agents, and their names in tables
KINDS = {
    "epsilon": "epsilon-greedy",
    "low": "dropout 0.1, held an episode",
    "episode": "dropout 0.5, held an episode",
    "step": "dropout 0.5, held a step",
    "concrete": "Concrete from 0.5, held an episode",
    "ensemble": "bootstrapped ensemble of ten",
}
_WANTED, _WITHIN = 10, 100


@dataclass(frozen=True)
class Config:
    """All agents at all depths."""

    agents: tuple[str, ...] = tuple(KINDS)
    depths: tuple[int, ...] = (4, 6, 8, 10)
    num_seeds: int = 10
    episodes: int = 1_500  #: at most
    epsilon_episodes: int = 300  #: within which epsilon falls from 1 to 0.05
    hidden: int = 50
    lr: float = 0.1
    gamma: float = 0.99
    replay_size: int = 10_000
    seed: int = 0


SMOKE = Config(depths=(3, 4), num_seeds=2, episodes=60, epsilon_episodes=20)
PRESETS = {"quick": Config(depths=(4, 6), num_seeds=5, episodes=500)}


def make_agents(key: Mapping[str, Any]) -> AgentStack:
    """Agents of one kind for a depth; see `Config` for the key."""
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
    """Let the agents of a piece dive until all have solved their seas or the episodes are over.

    Returns: first (M,) and solved (M,), episodes to the first treasure and until solved, -1 where that never
    came; spread (2, M), standard deviation over functions of the values of the first cell, before and after.
    """
    agents = make_agents(key)
    depth, worlds = (
        key["depth"],
        DeepSeaVector(len(agents), depth=key["depth"], mapping_seed=key["seed"], autoreset="same-step"),
    )
    found: list[list[int]] = [[] for _ in range(len(agents))]
    first, solved = np.full(len(agents), -1), np.full(len(agents), -1)
    before = _spread(agents, depth)

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
        "spread": np.stack([before, _spread(agents, depth)]),
        "rates": rates,
    }


def is_solved(found: list[int]) -> bool:
    """Whether the latest ten treasures were found within a hundred episodes."""
    return len(found) >= _WANTED and found[-1] - found[-_WANTED] < _WITHIN


def _spread(agents: AgentStack, depth: int) -> NDArray[np.float64]:
    """(M,) how far functions differ in the first cell, mean of both actions; 0 without noise or members."""
    start = torch.zeros(1, depth**2)
    start[0, 0] = 1
    spreads = []
    for agent in range(len(agents)):
        if agents.members > 1:
            networks = [agents.network(agent, member) for member in range(agents.members)]
            values = torch.cat([network(start) for network in networks])
        else:
            # In training every row has a mask of its own.
            values = agents.network(agent).train()(start.expand(500, -1))
        spreads.append(float(values.detach().std(0).mean()))
    return np.array(spreads)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """One piece for every kind of agent and depth, all seeds side by side."""
    names = (
        "num_seeds", "episodes", "epsilon_episodes", "hidden", "lr", "gamma", "replay_size", "seed"
    )  # fmt: skip
    shared = {name: getattr(config, name) for name in names}
    keys: list[dict[str, Any]] = [
        {"agent": agent, "depth": depth, **shared} for depth in config.depths for agent in config.agents
    ]
    pieces = run_pieces(keys, dive, cache=cache, progress=progress, label="Dives")
    found = {(key["agent"], key["depth"]): piece for key, piece in zip(keys, pieces, strict=True)}
    rows, medians = [], np.zeros((len(config.agents), len(config.depths)))
    for (agent, depth), piece in found.items():
        solved = np.asarray(piece["solved"])
        median = float(np.median(np.where(solved > 0, solved, config.episodes)))
        medians[config.agents.index(agent), config.depths.index(depth)] = median
        note = (
            f"median of seeds; {(solved > 0).sum()} of {len(solved)} solve it, the others count as the limit"
        )
        rows.append(Row(f"depth {depth}: {KINDS[agent]}", "episodes until solved", None, median, note=note))
    deepest = max(config.depths)
    for agent in config.agents:
        if agent != "epsilon":
            before, after = np.asarray(found[agent, deepest]["spread"])
            name = f"depth {deepest}: {KINDS[agent]}"
            rows.append(
                Row(name, "spread of functions in the first cell, before", None, float(before.mean()))
            )
            rows.append(Row(name, "spread of functions in the first cell, after", None, float(after.mean())))
    arrays = {
        "agents": list(config.agents),
        "depths": list(config.depths),
        "limit": config.episodes,
        "medians": medians,
        "solved": np.array(
            [[found[agent, depth]["solved"] for depth in config.depths] for agent in config.agents]
        ),
    }
    claims = _claims(found, config, deepest)
    notes = (
        "First weights of the first layer are N(0, 1), as inputs are one-hot; settings other than those of "
        "exploration were chosen at depth 6 so that epsilon-greedy and the ensemble learn.",
    )
    return Outcome(tuple(rows), claims, arrays, notes)


def _claims(found: Mapping[tuple[str, int], Any], config: Config, depth: int) -> tuple[Claim, ...]:
    if set(config.agents) != set(KINDS):
        return ()
    solved = {agent: np.asarray(found[agent, depth]["solved"]) for agent in KINDS}
    median = {
        agent: float(np.median(np.where(each > 0, each, config.episodes))) for agent, each in solved.items()
    }
    share = {agent: f"{(each > 0).sum()} of {len(each)} solved" for agent, each in solved.items()}
    told = {agent: f"{median[agent]:.0f} episodes ({share[agent]})" for agent in KINDS}
    before, after = np.asarray(found["episode", depth]["spread"]).mean(1)
    learned = np.asarray(found["concrete", depth]["spread"]).mean(1)
    return (
        Claim(
            "Gal & Ghahramani (2016), 5.4, carried over: functions drawn by dropout explore; here: held an "
            f"episode, dropout 0.5 solves depth {depth} in at most half of epsilon-greedy's median.",
            f"{told['episode']} against {told['epsilon']}; at 0.1 {told['low']}, "
            f"Concrete {told['concrete']}.",
            median["episode"] <= 0.5 * median["epsilon"],
        ),
        Claim(
            f"Osband et al. (2016): a bootstrapped ensemble explores deeply; here: it solves depth {depth} "
            "in at most half of epsilon-greedy's median.",
            f"{told['ensemble']} against {told['epsilon']}.",
            median["ensemble"] <= 0.5 * median["epsilon"],
        ),
        Claim(
            "Osband (2016): what matters is that a function is held; here: dropout 0.5 held an episode has a "
            f"lower median than held a step at depth {depth}.",
            f"{told['episode']} against {told['step']}.",
            median["episode"] < median["step"],
        ),
        Claim(
            "Osband (2016): dropout at a fixed rate does not concentrate with data; here: the spread of "
            "functions in the first cell, which every episode visits, does not fall below half of its first.",
            f"{before:.3f} before and {after:.3f} after with dropout 0.5; {learned[0]:.3f} and "
            f"{learned[1]:.3f} with Concrete rates.",
            bool(after >= 0.5 * before),
        ),
    )


def draw(outcome: Outcome) -> Any:
    """Episodes until solved by depth: medians as lines, seeds as dots; what was not solved is at the top."""
    arrays = outcome.arrays
    figure = new_figure(8, 5)
    ax = figure.subplots()
    depths, limit = np.asarray(arrays["depths"], float), float(arrays["limit"])
    for place, (agent, color) in enumerate(zip(arrays["agents"], COLORS, strict=False)):
        shift = 0.09 * (place - (len(arrays["agents"]) - 1) / 2)
        solved = np.asarray(arrays["solved"][place], float)
        shown = np.where(solved > 0, solved, limit)
        ax.plot(depths + shift, np.median(shown, 1), "-", color=color, linewidth=1.6, label=KINDS[agent])
        where = np.repeat(depths + shift, shown.shape[1])
        ax.plot(where, shown.ravel(), "o", color=color, markersize=3, alpha=0.5)
    ax.axhline(limit, color="#666666", linewidth=0.8, linestyle=":")
    ax.set_yscale("log")
    ax.set_xticks(depths)
    ax.set_xlabel("depth of the sea")
    ax.set_ylabel("episodes until solved (dotted: not within the limit)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)
    return figure
