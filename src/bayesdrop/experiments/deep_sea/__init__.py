"""Osband (2016) on the dangers of dropout: how many episodes until a deep sea is solved, by depth.

A diver who goes right at every one of N steps finds a treasure; every step right costs a little, and random
actions find it once in 2^N episodes. Exploration that is consistent over an episode scales far better: each
episode's function either goes all the way or does not. Osband's criticism is that the noise of dropout at a
fixed rate does not fall with the data and so is no posterior to draw such functions from.

The kinds of agents differ in nothing but how they explore. All have one hidden layer of 50 units and learn by
plain Q-learning without a target network, with an update after every step; there are ten seeds, and in each
sea it differs from cell to cell which action goes right. A sea counts as solved when the treasure was found
ten times within a hundred episodes.

Why dropout fails here is shown too: how far its functions differ over the first 200 episodes, in the first
cell, which every episode visits, and in the treasure's, which hardly any reaches. The noise of dropout
multiplies what the network says. As long as no treasure is found, the network learns that every value is 0,
also in cells that were never seen, as all cells share the last layer; there is then nothing left to multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.experiments.deep_sea.dives import FADING, KINDS, dive, fade
from bayesdrop.experiments.deep_sea.picture import draw
from bayesdrop.experiments.deep_sea.report import report
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import all_but

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All agents at all depths."""

    agents: tuple[str, ...] = tuple(KINDS)
    depths: tuple[int, ...] = (4, 6, 8, 10)
    num_seeds: int = 10
    episodes: int = 1_500  #: at most
    epsilon_episodes: int = 300  #: epsilon falls from 1 to 0.05 within so many
    hidden: int = 50
    lr: float = 0.1
    gamma: float = 0.99
    replay_size: int = 10_000
    looks: tuple[int, ...] = (0, 10, 30, 100, 200)  #: episodes after which functions are compared
    seed: int = 0


SMOKE = Config(depths=(3,), num_seeds=2, episodes=30, epsilon_episodes=20, looks=(0, 10))
PRESETS = {"quick": Config(depths=(4, 6), num_seeds=5, episodes=500)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """One piece for every kind of agent and depth, in which all seeds run side by side."""
    shared = all_but(config, "agents", "depths", "looks")
    dives = {
        (agent, depth): [{"agent": agent, "depth": depth, **shared}]
        for depth in config.depths
        for agent in config.agents
    }
    found = run_groups(dives, dive, cache=cache, progress=progress, label="Dives")
    deepest = {"part": "fading", "depth": max(config.depths), "looks": config.looks, **shared}
    shown = {agent: [{"agent": agent, **deepest}] for agent in FADING if agent in config.agents}
    fading = run_groups(shown, fade, cache=cache, progress=progress, label="Functions")
    return report(
        {place: piece for place, (piece,) in found.items()},
        {agent: piece for agent, (piece,) in fading.items()},
        config,
    )
