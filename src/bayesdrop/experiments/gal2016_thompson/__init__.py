"""Gal & Ghahramani (2016), figures 5 and 6: Thompson sampling by dropout among food and poison.

An agent with nine eyes learns by Q-learning to keep away from walls, to eat food and to leave poison. The
paper lets it act under one drawn function at a time (Thompson sampling: one pass with dropout) and finds it
faster than epsilon-greedy. Five seeds, every agent in a world of its own, the same worlds for all kinds.

Two settings are published: that of the first text of the paper (27 inputs, dropout 0.1 after both hidden
layers, 5,000 random steps) and that of the demo page (also what the eyes saw and the agent did one tick ago,
59 inputs; dropout 0.2 after the first hidden layer, 3,000 random steps, ten times the weight decay). Both are
run.

We add what the paper leaves out: how every agent does when it acts greedily, at every checkpoint and in
worlds that none has learned in; an epsilon that falls within 5,000 ticks instead of 200,000; learned
(Concrete) rates; and how much food and poison is eaten, as an agent that eats nothing and keeps off the walls
has a reward of 1.1 already.

The film shows the first Thompson agent of the paper's setting after training, under its mean weights: food is
green, poison orange, and each eye's ray has the colour of what it sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.experiments.gal2016_thompson.film import film
from bayesdrop.experiments.gal2016_thompson.lives import live
from bayesdrop.experiments.gal2016_thompson.picture import draw
from bayesdrop.experiments.gal2016_thompson.report import report
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import all_but

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "film", "run"]


@dataclass(frozen=True)
class Config:
    """All agents of both settings, for the 200,000 ticks of the paper's figures."""

    settings: tuple[str, ...] = ("paper", "demo")
    agents: tuple[str, ...] = ("thompson", "epsilon", "fast", "concrete")
    num_seeds: int = 5
    ticks: int = 200_000
    early: int = 10_000  #: ticks at which agents are compared for the first time
    fast_ticks: int = 5_000  #: the fast epsilon falls within so many after the random start
    checkpoint_every: int = 10_000  #: ticks from one greedy evaluation to the next
    evaluation_worlds: int = 5  #: for every agent
    evaluation_ticks: int = 1_000
    film_ticks: int = 360
    random_steps: int | None = None  #: at the start; those of the setting if None
    seed: int = 0


SMOKE = Config(
    num_seeds=2, ticks=1100, early=1000, fast_ticks=100, checkpoint_every=550, evaluation_worlds=2,
    evaluation_ticks=30, film_ticks=8, random_steps=1020,
)  # fmt: skip
PRESETS = {"quick": Config(settings=("paper",), ticks=12_000, checkpoint_every=2_000)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """One piece for every setting and kind of agent, in which all seeds run side by side."""
    shared = all_but(config, "settings", "agents", "early")
    groups = {
        (setting, agent): [{"setting": setting, "agent": agent, **shared}]
        for agent in config.agents
        for setting in config.settings
    }
    found = run_groups(groups, live, cache=cache, progress=progress, label="Agents")
    lives = {place: life for place, (life,) in found.items()}
    return report(lives, early=config.early, random_steps=config.random_steps)
