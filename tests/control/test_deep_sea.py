"""DeepSea: every sequence of actions of a small sea, and Gymnasium's checker."""

from __future__ import annotations

from itertools import product

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from bayesdrop.control import DeepSea, DeepSeaVector


@pytest.mark.parametrize("randomised", [False, True])
def test_returns_of_all_sequences(randomised: bool) -> None:
    depth = 5
    sea = DeepSea(depth=depth, randomised=randomised, mapping_seed=3)
    rights = sea._worlds.rights[0]
    if not randomised:
        assert (rights == 1).all()
    found = 0
    for choice in product([False, True], repeat=depth):
        seen, _ = sea.reset(seed=0)
        column = 0
        total = 0.0
        for row, right in enumerate(choice):
            assert seen.reshape(depth, depth)[row, column] == seen.sum() == 1
            action = rights[row, column] if right else 1 - rights[row, column]
            seen, reward, over, truncated, _ = sea.step(action)
            total += reward
            column = min(max(column + (1 if right else -1), 0), depth - 1)
            assert over == (row == depth - 1)
            assert not truncated
        assert not seen.any()
        expected = -0.01 / depth * sum(choice) + all(choice)
        assert total == pytest.approx(expected)
        found += total > 0.5
    assert found == 1


def test_gymnasium_finds_nothing_to_say() -> None:
    world = gymnasium.make("bayesdrop/DeepSea-v0", depth=4, render_mode="rgb_array")
    check_env(world.unwrapped)
    assert world.unwrapped.render().shape == (48, 48, 3)


def test_many_seas_are_single_ones_with_seeds_in_turn() -> None:
    many = DeepSeaVector(3, depth=6, mapping_seed=10)
    singles = [DeepSea(depth=6, mapping_seed=10 + place) for place in range(3)]
    seen, _ = many.reset(seed=0)
    alone = [world.reset(seed=0)[0] for world in singles]
    assert np.array_equal(seen, alone)
    source = np.random.default_rng(0)
    over = False
    for _ in range(40):
        actions = source.integers(0, 2, 3)
        seen, rewards, terminated, truncated, _ = many.step(actions)
        if over:
            results = [(world.reset()[0], 0.0, False, False) for world in singles]
        else:
            results = [world.step(action)[:4] for world, action in zip(singles, actions, strict=True)]
        for place, result in enumerate(results):
            assert np.array_equal(seen[place], result[0])
            assert (rewards[place], terminated[place], truncated[place]) == result[1:]
        over = bool(terminated.all())


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="DeepSeaVector: `depth` must be an int from 2 to 1000; got 1"):
        DeepSea(depth=1)
    with pytest.raises(TypeError, match="`randomised` must be True or False"):
        DeepSea(randomised="no")
    with pytest.raises(ValueError, match="`mapping_seed` must be an int"):
        DeepSea(mapping_seed=-1)
    with pytest.raises(ValueError, match="DeepSea: `render_mode` must be"):
        DeepSea(render_mode="human")
