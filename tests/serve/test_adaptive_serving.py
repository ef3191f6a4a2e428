"""Intervals that the server stretches: as the model's at first, kept under drift, each group for itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serve.conftest import Clock

from bayesdrop.serve.adaptive import Adaptive, stretched, stretched_as
from bayesdrop.serve.store import NewItem, NewRequest, Store
from bayesdrop.serve.store.ids import new_id

LEVEL = 0.9
OWN = {"mean": 0.0, "lower": -1.6449, "upper": 1.6449}


class World:
    """A model that says N(0, 1), whatever happens; answers, labels and what came of them."""

    def __init__(self, store: Store, clock: Clock, **options: Any) -> None:
        self.store, self.clock = store, clock
        self.adaptive = Adaptive(store, **options)
        self.adaptive.refresh()
        self.model = store.versions.add(
            name="m", kind="table", task="regression", digest="0" * 64, source="origin", about={}
        )
        self.person = store.people.local("ada", "labeller")

    def answered(self, row: dict[str, Any], own: dict[str, Any] = OWN) -> tuple[str, dict[str, Any]]:
        answer = stretched(own, self.adaptive.factor(self.model.id, LEVEL, row))
        self.clock.now += 1
        item = NewItem(new_id(self.clock.now), row, answer, 0.5, False, "", random=True)
        one = NewRequest(new_id(self.clock.now), "predict", self.model.id, 10, 0, LEVEL, (item,), 1)
        self.store.add([one])
        return item.id, answer

    def told(self, item: str, truth: Any) -> None:
        self.store.queue.label(item, self.person.id, truth, needs_lease=False)


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> Iterator[World]:
    with Store(f"sqlite:///{tmp_path / 'desk.sqlite'}", clock=clock) as store:
        yield World(store, clock)


def inside(answer: dict[str, Any], truth: float) -> bool:
    low, high = answer["lower"], answer["upper"]
    return (low is None or low <= truth) and (high is None or truth <= high)


def test_the_first_interval_is_the_models_own(world: World) -> None:
    answer = world.answered({})[1]
    assert answer["upper"] == pytest.approx(OWN["upper"], rel=0.03)
    assert answer["model_upper"] == OWN["upper"]
    assert answer["stretched"] == pytest.approx(answer["upper"] / OWN["upper"])


def test_the_promise_is_kept_when_the_noise_grows(world: World) -> None:
    source = np.random.default_rng(0)
    kept = own = 0
    for _ in range(100):
        truth = float(source.normal(0, 3))
        item, answer = world.answered({})
        kept += inside(answer, truth)
        own += inside(OWN, truth)
        world.told(item, truth)
        world.adaptive.refresh()
    rate = 0.02
    assert own / 100 < 0.6
    assert abs(kept / 100 - LEVEL) <= (LEVEL + rate) / (100 * rate)
    assert kept / 100 > 0.8
    # Nothing is kept elsewhere: another process comes to the same factor.
    again = Adaptive(world.store)
    assert again.refresh()
    assert again.factor(world.model.id, LEVEL, {}) == world.adaptive.factor(world.model.id, LEVEL, {})
    assert not again.refresh()


def test_a_label_that_is_taken_back_is_unlearned(world: World) -> None:
    before = world.adaptive.factor(world.model.id, LEVEL, {})
    item, _ = world.answered({})
    world.told(item, 50.0)
    assert world.adaptive.refresh()
    assert world.adaptive.factor(world.model.id, LEVEL, {}) > before
    world.store.queue.undo(world.person.id)
    assert world.adaptive.refresh()
    assert world.adaptive.factor(world.model.id, LEVEL, {}) == before


def test_groups_learn_apart(tmp_path: Path, clock: Clock) -> None:
    with Store(f"sqlite:///{tmp_path / 'desk.sqlite'}", clock=clock) as store:
        world = World(store, clock, group="site")
        for place in range(30):
            item, _ = world.answered({"site": "north"})
            world.told(item, 9.0 + place)
        world.adaptive.refresh()
        factors = [
            world.adaptive.factor(world.model.id, LEVEL, {"site": name}) for name in ("north", "south")
        ]
        assert factors[0] > 3 * factors[1]


def test_several_outputs_are_covered_together(world: World) -> None:
    own = {"mean": [0.0, 5.0], "lower": [-1.0, 3.0], "upper": [1.0, 7.0]}
    answer = stretched(own, 2.0)
    assert (answer["lower"], answer["upper"]) == ([-2.0, 1.0], [2.0, 9.0])
    assert stretched(own, math.inf)["upper"] == [None, None]
    assert stretched(OWN, math.inf)["lower"] is None
    assert stretched({"label": "a"}, 2.0) == {"label": "a"}


def test_an_answer_is_stretched_again_as_it_was() -> None:
    for factor in (1.7, math.inf):
        given = stretched(OWN, factor)
        assert stretched_as(given, OWN) == given
    assert stretched_as(OWN, OWN) == OWN
