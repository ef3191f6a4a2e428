"""Replay: random overwrite, uniform samples, the draw's index kept, agents apart."""

from __future__ import annotations

import numpy as np
import pytest

from bayesdrop.control import LinearDecay, QLearning, Replay, Thompson


def filled(capacity: int, count: int, seeds: list[int], batch_size: int = 8) -> Replay:
    """Transition t has reward t and was made by function 3 t."""
    replay = Replay(capacity, 2, seeds=seeds, batch_size=batch_size)
    agents = len(seeds)
    for t in range(count):
        seen = np.full((agents, 2), t, np.float32)
        numbers = np.full(agents, t)
        replay.add(seen, numbers % 5, numbers.astype(float), seen + 1, numbers % 2 == 0, 3 * numbers)
    return replay


def test_a_sample_holds_whole_transitions() -> None:
    batch = filled(50, 30, [0, 1]).sample()
    t = batch.rewards
    assert t.shape == (2, 8)
    assert (batch.observations == t[..., None]).all()
    assert (batch.next_observations == t[..., None] + 1).all()
    assert (batch.actions == t.long() % 5).all()
    assert (batch.terminated == (t % 2 == 0)).all()
    assert (batch.draws == 3 * t.long()).all()


def test_samples_are_uniform_with_replacement() -> None:
    replay = filled(10, 10, [0], batch_size=5000)
    counts = np.bincount(replay.sample().rewards.flatten().long(), minlength=10)
    # Binomial with n = 5000 and chance 0.1: standard deviation 21.
    assert (np.abs(counts - 500) < 5 * 21.3).all()


def test_a_full_memory_is_overwritten_at_random() -> None:
    agents, capacity, more = 400, 20, 30
    replay = filled(capacity, capacity + more, list(range(agents)), batch_size=1)
    held = replay._rewards.reshape(agents, capacity)
    assert len(replay) == capacity
    assert (held == capacity + more - 1).any(1).all(), "the newest is always there"
    for age in (1, 10, 25):
        # Survives `age` overwrites, each of which spares it with chance 19/20.
        share = (held == capacity + more - 1 - age).any(1).mean()
        expected = (1 - 1 / capacity) ** age
        assert abs(share - expected) < 5 * (expected * (1 - expected) / agents) ** 0.5


def test_an_agent_does_not_depend_on_its_neighbours() -> None:
    together, alone = filled(20, 60, [4, 9]), filled(20, 60, [9])
    for _ in range(300):
        assert (together.sample().rewards[1] == alone.sample().rewards[0]).all()


def test_bad_rewards_and_empty_memories_are_refused() -> None:
    replay = Replay(4, 2, seeds=[0], batch_size=2)
    with pytest.raises(ValueError, match="nothing to sample from yet"):
        replay.sample()
    one = np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match="Replay: `rewards` must be finite"):
        replay.add(one, np.array([0]), np.array([np.nan]), one, np.array([False]))
    with pytest.raises(ValueError, match="Replay: `capacity` must be a positive int; got 0"):
        Replay(0, 2, seeds=[0], batch_size=2)


def test_the_schedule_is_the_printed_one() -> None:
    epsilon = LinearDecay(3_000, 200_000)
    for age in (0, 2_999, 3_000, 40_000, 120_000, 190_150, 199_000, 10**6):
        expected = min(1, max(0.05, 1 - (age - 3000) / (200_000 - 3000)))
        assert epsilon(age) == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"LinearDecay: `end` must be above start \(10\); got 10"):
        LinearDecay(10, 10)
    with pytest.raises(ValueError, match=r"`last` must be at most first"):
        LinearDecay(0, 10, first=0.1, last=0.2)


def test_bad_settings_are_refused() -> None:
    for options, name in (({"gamma": 1.5}, "gamma"), ({"lr": 0}, "lr"), ({"batch_size": 0}, "batch_size")):
        with pytest.raises(ValueError, match=f"QLearning: `{name}` must be"):
            QLearning(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Thompson: `hold` must be a positive int; got 0"):
        Thompson(hold=0)
