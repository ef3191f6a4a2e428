"""Experiments on exploring: times on the paper's axis, what counts as solved, the film."""

from __future__ import annotations

import numpy as np
import pytest

from bayesdrop.control.worlds import EyeWorld
from bayesdrop.experiments.deep_sea import Config
from bayesdrop.experiments.deep_sea.dives import KINDS as DIVERS
from bayesdrop.experiments.deep_sea.dives import is_solved, make_agents
from bayesdrop.experiments.gal2016_thompson.claims import time_to_reach
from bayesdrop.experiments.gal2016_thompson.film import film
from bayesdrop.experiments.gal2016_thompson.lives import FILM_SEED, KINDS, SETTINGS
from bayesdrop.experiments.gal2016_thompson.lives import make_agents as make_eyed
from bayesdrop.experiments.row import Outcome


def test_time_counts_batches_from_the_random_start() -> None:
    ticks = 200 * np.arange(1, 6)
    reward = np.array([[2, 0, 0], [0, 0, 0], [1, 1.1, 0], [1.2, 0, 0], [2, 0, 1]])
    # What is above 1 before the start, or 1 itself, does not count.
    assert time_to_reach(ticks, reward, 400).tolist() == [2, 1, np.inf]


def test_solved_is_ten_within_a_hundred() -> None:
    assert not is_solved(list(range(9)))
    assert is_solved(list(range(10)))
    assert is_solved([5, *range(100, 1000, 100), *range(1000, 1100, 11)])
    assert not is_solved([0, 1, 2, 3, 4, 5, 6, 7, 8, 100])


def test_networks_are_those_of_both_descriptions() -> None:
    for name, inputs in (("paper", 27), ("demo", 59)):
        made = {
            kind: make_eyed(SETTINGS[name], kind, seeds=range(2), random_steps=9, fast_ticks=50)
            for kind in KINDS
        }
        assert {agents.inputs for agents in made.values()} == {inputs}
        assert made["thompson"].settings.rates == (0.0, *SETTINGS[name].p)
        assert made["epsilon"].settings.rates == (0.0, 0.0, 0.0)
        assert made["concrete"].settings.method == "concrete"
        epsilon = made["epsilon"].explore.epsilon  # type: ignore[union-attr]
        assert epsilon(40_000) == pytest.approx(1 - 37_000 / 197_000)
        assert made["fast"].explore.epsilon(59) == 0.05  # type: ignore[union-attr]


def test_divers_differ_in_how_they_explore_alone() -> None:
    key = {**vars(Config(num_seeds=2)), "depth": 4}
    made = {kind: make_agents({**key, "agent": kind}) for kind in DIVERS}
    first = made["epsilon"].parameters["weight0"]
    for kind, agents in made.items():
        assert agents.learning == made["epsilon"].learning
        if kind != "ensemble":
            assert (agents.parameters["weight0"] == first).all()
    assert made["ensemble"].parameters["weight0"].shape[0] == 20


def test_the_film_does_the_actions_again() -> None:
    actions = [0, 0, 1, 3, 0, 0, 0]
    frames = film(Outcome((), arrays={"film": actions}))
    assert frames.shape == (3, 250, 350, 3)
    world = EyeWorld(render_mode="rgb_array")
    world.reset(seed=FILM_SEED)
    for action in actions[:6]:
        world.step(np.int64(action))
    picture = world.render()
    assert picture is not None
    small = picture.reshape(250, 2, 350, 2, 3).mean((1, 3)).round()
    assert (frames[2] == small).all()
