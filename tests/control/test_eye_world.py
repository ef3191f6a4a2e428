"""EyeWorld against a second, scalar world, Gymnasium's checker and the published constants."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bayesdrop.control
from bayesdrop.control import EyeWorld, EyeWorldVector
from bayesdrop.control.worlds.eyes import FOOD, NOTHING, POISON, WALLS, Plane

sys.path.insert(0, str(Path(__file__).parent))
import plain_eyes as plain


def items_of(plane: Plane, place: int = 0) -> list[plain.Item]:
    return [
        plain.Item(x, y, kind)
        for x, y, kind in zip(
            plane.item_x[place].tolist(),
            plane.item_y[place].tolist(),
            plane.item_kind[place].tolist(),
            strict=True,
        )
        if kind != NOTHING
    ]


@pytest.mark.parametrize("doubled", [False, True])
def test_ticks_are_those_of_the_scalar_world(doubled: bool) -> None:
    plane = Plane([np.random.default_rng(seed) for seed in range(3)], doubled_proximity=doubled)
    source = np.random.default_rng(0)
    kinds, food, poison, stuck = set(), 0, 0, 0
    for _ in range(600):
        actions = source.choice(5, 3, p=[0.6, 0.15, 0.15, 0.05, 0.05])
        before = [
            ((float(plane.x[w]), float(plane.y[w])), float(plane.angle[w]), items_of(plane, w))
            for w in range(3)
        ]
        rewards = plane.step(actions)
        for w, (place, angle, items) in enumerate(before):
            seen = plain.see(place, angle, items)
            new, turned = plain.moved(place, angle, int(actions[w]))
            meal = plain.eaten(new, items)
            kinds |= {kind for kind, _ in seen}
            food += sum(item.kind == 1 for item in meal)
            poison += sum(item.kind == 2 for item in meal)
            stuck += new == place
            expected = plain.comfort(seen, int(actions[w]), doubled)
            expected += sum(5 if item.kind == 1 else -6 for item in meal)
            assert rewards[w] == pytest.approx(expected, abs=1e-9)
            assert (plane.x[w], plane.y[w]) == pytest.approx(new, abs=1e-9)
            assert math.cos(plane.angle[w] - turned) == pytest.approx(1, abs=1e-9)
            left = {item for item in items if item not in meal}
            assert left <= set(items_of(plane, w))
            now = plain.inputs(
                plain.see((float(plane.x[w]), float(plane.y[w])), float(plane.angle[w]), items_of(plane, w))
            )
            assert plane.inputs()[w].tolist() == pytest.approx(now, abs=1e-6)
    # All cases have been met.
    assert kinds == {0, 1, 2, 3}
    assert food > 2
    assert poison > 2
    assert stuck > 20
    assert plane.eaten.sum(0).tolist() == [food, poison]


def test_walls_are_ten_and_two_boxes_are_open_on_the_left() -> None:
    assert len(WALLS) == 10
    assert sorted(map(tuple, WALLS.tolist())) == sorted((*a, *b) for a, b in plain.WALLS)
    assert not any((x, other) == (100, 100) for x, _, other, _ in WALLS.tolist())
    assert not any((x, other) == (400, 400) for x, _, other, _ in WALLS.tolist())


def test_straight_on_moves_by_five_sines_of_one() -> None:
    plane = Plane([np.random.default_rng(0)])
    plane.step(np.array([0]))
    # Angle 0 looks down the picture.
    assert (plane.x[0], plane.y[0]) == pytest.approx((50, 50 + 5 * math.sin(1)))


def alone_with(x: float, y: float, kind: int, at: tuple[float, float], angle: float = 0.0) -> Plane:
    """A world with one item and the agent where it is put."""
    plane = Plane([np.random.default_rng(0)])
    for slot in range(30):
        plane._take_item(0, slot)
    plane.item_x[0, 0], plane.item_y[0, 0], plane.item_kind[0, 0] = x, y, kind
    plane.x[0], plane.y[0] = at
    plane.angle[0] = angle
    plane.look()
    return plane


def test_an_item_is_seen_at_the_foot_of_its_perpendicular() -> None:
    # Eye 3 looks straight down from (200, 430): the item is 30 below and 6 to either side.
    for side in (-6, 6):
        plane = alone_with(200 + side, 455, POISON, at=(200, 425))
        assert plane.seen_kind[0, 3] == POISON
        assert plane.seen_distance[0, 3] * 85 == pytest.approx(30)
    assert alone_with(211, 455, POISON, at=(200, 425)).seen_kind[0, 3] != POISON


def test_a_wall_hides_what_is_behind_it_and_nothing_is_eaten_through_it() -> None:
    # The lower side of the first box runs along y = 400.
    plane = alone_with(200, 407, FOOD, at=(200, 391))
    assert plane.seen_kind[0, 3] == 0
    assert plane.seen_distance[0, 3] * 85 == pytest.approx(9)
    plane.step(np.array([3]))
    assert plane.eaten.tolist() == [[0, 0]]
    plane = alone_with(200, 385, FOOD, at=(200, 375))
    reward = plane.step(np.array([3]))
    assert plane.eaten.tolist() == [[1, 0]]
    assert reward[0] > 5


def test_a_step_through_a_wall_is_not_made_but_its_turn_is() -> None:
    plane = alone_with(600, 450, FOOD, at=(200, 399))
    plane.step(np.array([1]))
    assert (plane.x[0], plane.y[0]) == (200, 399)
    assert plane.angle[0] == pytest.approx(0.2)


def test_items_come_by_tens_and_old_ones_go_by_hundreds() -> None:
    plane = Plane([np.random.default_rng(5)])
    for slot in range(20):
        plane._take_item(0, slot)
    counts = [int((plane.item_kind != NOTHING).sum())]
    while plane.tick[0] < 4000:
        plane.x[0], plane.y[0] = 5, 5  # outside the walls, where nothing is eaten
        plane.step(np.array([3]))
        counts.append(int((plane.item_kind != NOTHING).sum()))
    steps = np.diff(counts)
    assert set(steps.tolist()) == {0, 1}
    assert all(tick % 10 == 9 for tick in np.flatnonzero(steps))
    assert counts[-1] == 30
    # Twenty came, each after a geometric number of tens with chance 1/4: 800 ticks in the mean, sd 155.
    assert 300 < np.flatnonzero(steps)[-1] < 1600
    plane.item_age[:] = 5001
    goes = []
    for _ in range(300):
        old = int((plane.item_age[0] >= 5001)[plane.item_kind[0] != NOTHING].sum())
        plane.x[0], plane.y[0] = 5, 5
        plane.step(np.array([3]))
        new = int((plane.item_age[0] >= 5001)[plane.item_kind[0] != NOTHING].sum())
        goes += [int(plane.tick[0])] * (old - new)
    assert goes
    assert all(tick % 100 == 0 for tick in goes)


def test_gymnasium_finds_nothing_to_say() -> None:
    for options in ({}, {"window": 2, "doubled_proximity": True}):
        world = gymnasium.make("bayesdrop/EyeWorld-v0", render_mode="rgb_array", **options)
        check_env(world.unwrapped)


@pytest.mark.parametrize("window", [0, 1])
def test_many_worlds_are_single_ones(window: int) -> None:
    many = gymnasium.make_vec(
        "bayesdrop/EyeWorld-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        window=window,
        max_ticks=150,
    )
    assert isinstance(many.unwrapped, EyeWorldVector)
    singles = [EyeWorld(window=window, max_ticks=150) for _ in range(3)]
    seen, infos = many.reset(seed=7)
    alone = [world.reset(seed=7 + place)[0] for place, world in enumerate(singles)]
    assert np.array_equal(seen, alone)
    assert many.observation_space.contains(seen)
    source = np.random.default_rng(0)
    over = np.zeros(3, bool)
    for tick in range(400):
        actions = source.integers(0, 5, 3)
        seen, rewards, terminated, truncated, infos = many.step(actions)
        for place, world in enumerate(singles):
            if over[place]:
                expected = (world.reset()[0], 0.0, False, False)
            else:
                expected = world.step(actions[place])[:4]
            assert np.array_equal(seen[place], expected[0])
            got = (rewards[place], terminated[place], truncated[place])
            assert got == expected[1:], (tick, place)
            assert infos["food"][place] == world.plane.eaten[0, 0]
        over = truncated
    assert not many.observation_space.contains(seen + 100)


def test_a_window_shows_the_last_sight_and_action() -> None:
    world = EyeWorld(window=1)
    first, _ = world.reset(seed=0)
    assert np.array_equal(first[27:], np.zeros(32))
    second, *_ = world.step(np.int64(2))
    assert np.array_equal(second[27:54], first[:27])
    assert second[54:].tolist() == [0, 0, 27, 0, 0]
    third, *_ = world.step(np.int64(0))
    assert np.array_equal(third[27:54], second[:27])


def test_a_picture_shows_walls_items_and_agent_where_they_are() -> None:
    world = EyeWorld(render_mode="rgb_array")
    world.reset(seed=3)
    picture = world.render()
    assert picture is not None
    assert picture.shape == (500, 700, 3)
    plane = world.plane
    assert picture[10, 350].tolist() == [40, 40, 40]
    assert picture[250, 300].tolist() == [40, 40, 40]
    agent = picture[round(plane.y[0]), round(plane.x[0])].tolist()
    assert agent == [0, 114, 178]
    colors = {FOOD: [0, 158, 115], POISON: [213, 94, 0]}
    for item in items_of(plane)[-3:]:  # drawn last among the items: nothing lies over them but rays
        if math.dist((item.x, item.y), (50, 50)) > 110:
            assert picture[round(item.y), round(item.x)].tolist() == colors[item.kind]
    assert EyeWorld().render() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": -1}, "EyeWorldVector: `window` must be"),
        ({"max_ticks": 0}, "EyeWorldVector: `max_ticks` must be a positive int; got 0"),
        ({"num_envs": 0}, "EyeWorldVector: `num_envs` must be a positive int; got 0"),
        ({"render_mode": "human"}, "EyeWorldVector: `render_mode` must be 'rgb_array' or None"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EyeWorldVector(**options)


def test_actions_that_are_none_of_the_five_are_refused() -> None:
    worlds = EyeWorldVector(2)
    worlds.reset(seed=0)
    for actions in ([0, 5], [0], [0.5, 1.0], [-1, 0], [math.nan, 0]):
        with pytest.raises(ValueError, match="EyeWorldVector: `actions` must be"):
            worlds.step(actions)
    with pytest.raises(TypeError, match="`doubled_proximity` must be True or False"):
        EyeWorldVector(1, doubled_proximity="yes")
    with pytest.raises(ValueError, match="`seed` must be one number, or one for each of 2 worlds"):
        worlds.reset(seed=[1, 2, 3])


def test_control_is_asked_for_by_name() -> None:
    assert bayesdrop.control.EyeWorld is EyeWorld
