"""BatchBALD against the sum over all joint labels."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
import torch
from torch import Tensor

import bayesdrop as bd
from bayesdrop import acquire
from bayesdrop.acquire.batch import _conditional_information, _sampled


def example(draws: int = 8, rows: int = 6, classes: int = 3, seed: int = 0) -> tuple[bd.Prediction, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(draws, rows, classes, generator=generator, dtype=torch.float64)
    return bd.Prediction.from_draws(logits, bd.Categorical()), logits.softmax(-1)


def joint_information(probs: Tensor, rows: tuple[int, ...]) -> float:
    """I(y_1 ... y_b; w), label by label."""
    entropy = 0.0
    for labels in product(range(probs.shape[2]), repeat=len(rows)):
        joint = torch.ones(probs.shape[0], dtype=torch.float64)
        for row, label in zip(rows, labels, strict=True):
            joint = joint * probs[:, row, label]
        chance = joint.mean()
        entropy -= float(torch.xlogy(chance, chance))
    expected = -torch.xlogy(probs, probs).sum(-1).mean(0)[list(rows)].sum()
    return entropy - float(expected)


@pytest.mark.parametrize("seed", range(4))
def test_gains_sum_to_the_joint_information(seed: int) -> None:
    prediction, probs = example(seed=seed)
    batch = acquire.batch_bald(prediction, 4)
    assert batch.exact.all()
    for size in range(1, 5):
        exact = joint_information(probs, tuple(batch.rows[:size].tolist()))
        assert float(batch.gains[:size].sum()) == pytest.approx(exact, abs=1e-12)
    assert float(batch.information) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_the_best_that_can_be_added(seed: int) -> None:
    prediction, probs = example(seed=seed)
    rows = tuple(acquire.batch_bald(prediction, 3).rows.tolist())
    for size in range(3):
        others = [row for row in range(6) if row not in rows[:size]]
        best = max(others, key=lambda row: joint_information(probs, (*rows[:size], row)))
        assert rows[size] == best


def test_the_first_is_bald_and_the_batch_is_near_the_best() -> None:
    prediction, probs = example()
    batch = acquire.batch_bald(prediction, 2)
    assert int(batch.rows[0]) == int(acquire.bald(prediction).argmax())
    assert float(batch.gains[0]) == pytest.approx(float(acquire.bald(prediction).max()))
    best = max(joint_information(probs, pair) for pair in combinations(range(6), 2))
    assert float(batch.information) >= (1 - 1 / 2.718281828) * best


def test_two_copies_of_a_row_are_not_both_asked_for() -> None:
    """Confident, contradicting draws: a second copy tells nothing new, and single scores cannot see that."""
    logits = torch.zeros(16, 3, 2, dtype=torch.float64)
    sign = torch.tensor([1.0, -1.0]).repeat(8)
    other = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(4)
    logits[..., 0] = torch.stack([9 * sign, 9 * sign, 3 * other], 1)
    prediction = bd.Prediction.from_draws(logits, bd.Categorical())
    assert sorted(acquire.select(acquire.bald(prediction), 2).tolist()) == [0, 1]
    assert sorted(acquire.batch_bald(prediction, 2).rows.tolist()) == [0, 2]


def test_sampled_labels_give_the_conditional_information() -> None:
    """Samples are kept apart in groups, whose spread is the standard error."""
    _, probs = example(rows=7)
    chosen, number, groups = [0, 3, 5], 60, 200
    weight = torch.ones(1, 8, dtype=torch.float64) / 8
    for row in chosen:
        weight = (weight.unsqueeze(1) * probs[:, row].T).flatten(0, 1)
    exact = _conditional_information(weight, weight.sum(1), probs)
    estimates = torch.stack(
        [
            _conditional_information(
                _sampled(probs[:, chosen], number, torch.Generator().manual_seed(seed)),
                torch.full((number,), 1 / number, dtype=torch.float64),
                probs,
            )
            for seed in range(groups)
        ]
    )
    error = (estimates.mean(0) - exact).abs()
    assert (error <= 5 * estimates.std(0) / groups**0.5).all()


def test_past_the_limit_gains_are_estimates_of_the_exact_ones() -> None:
    prediction, _ = example(draws=20, rows=15)
    exact = acquire.batch_bald(prediction, 5)
    sampled = acquire.batch_bald(prediction, 5, max_configurations=30)
    assert exact.exact.tolist() == [True] * 5
    assert sampled.exact.tolist() == [True] * 4 + [False]
    assert sampled.rows[:4].tolist() == exact.rows[:4].tolist()
    close = acquire.batch_bald(prediction, 5, max_configurations=80, seed=1)
    assert float(close.information) == pytest.approx(float(exact.information), rel=0.05)


def test_a_large_batch_stays_finite_and_has_no_row_twice() -> None:
    prediction, _ = example(draws=30, rows=60, classes=10)
    batch = acquire.batch_bald(prediction, 50, max_configurations=200)
    assert len(set(batch.rows.tolist())) == 50
    assert torch.isfinite(batch.gains).all()
    # The draws are 30 functions: no label can tell more than which of them it is.
    assert float(batch.information) <= 1.02 * math.log(30)


def test_only_allowed_rows_are_chosen() -> None:
    prediction, _ = example()
    allowed = torch.tensor([False, True, False, True, True, False])
    assert set(acquire.batch_bald(prediction, 3, among=allowed).rows.tolist()) == {1, 3, 4}


def test_mistakes_are_named() -> None:
    prediction, _ = example()
    with pytest.raises(ValueError, match="an int from 1 to 6"):
        acquire.batch_bald(prediction, 7)
    with pytest.raises(ValueError, match="`max_configurations` must be"):
        acquire.batch_bald(prediction, 2, max_configurations=0)
    with pytest.raises(TypeError, match="a prediction of classes"):
        acquire.batch_bald(bd.Prediction.from_draws(torch.randn(3, 4, 1)), 1)
    with pytest.raises(ValueError, match="of draws that are functions"):
        acquire.batch_bald(bd.Prediction.from_draws(torch.randn(3, 4, 2), bd.Categorical(), shared=False), 1)
    with pytest.raises(ValueError, match="of at least 2 draws"):
        acquire.batch_bald(bd.Prediction.from_draws(torch.randn(1, 4, 2), bd.Categorical()), 1)
    with pytest.raises(ValueError, match=r"probabilities \(N, K\)"):
        acquire.batch_bald(bd.Prediction.from_draws(torch.randn(3, 4, 2, 5), bd.Categorical(class_axis=1)), 1)


def test_a_row_is_not_asked_for_twice() -> None:
    """Repeated rows of `among` came back several times, and a batch of them told nothing new."""
    prediction, _ = example()
    with pytest.raises(ValueError, match="`among` must be rows that differ; got 'row 2 3 times'"):
        acquire.select(torch.rand(6), 2, among=torch.tensor([2, 2, 2, 1]))
    with pytest.raises(ValueError, match="batch_bald: `among` must be rows that differ"):
        acquire.batch_bald(prediction, 2, among=torch.tensor([0, -6]))
    with pytest.raises(ValueError, match="indices of 6 rows; got '0 to 6'"):
        acquire.select(torch.rand(6), 1, among=torch.tensor([0, 6]))
    with pytest.raises(TypeError, match="`among` must be 6 booleans, or indices of rows"):
        acquire.select(torch.rand(6), 1, among=[0, 1])  # type: ignore[arg-type]
