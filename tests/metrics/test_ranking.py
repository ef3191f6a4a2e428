"""Ranking metrics against a second implementation, written from their definitions, and scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

from bayesdrop.metrics import coverage_at, ndcg_at, novelty_at, precision_at, recall_at
from bayesdrop.metrics.ranking import Ranked, UserMean


def example(users: int = 30, items: int = 25) -> tuple[torch.Tensor, torch.Tensor]:
    source = np.random.default_rng(0)
    scores = source.normal(size=(users, items))
    right = source.random((users, items)) < source.random((users, 1)) * 0.4
    right[3] = False
    return torch.from_numpy(scores), torch.from_numpy(right)


@pytest.mark.parametrize("k", [1, 5, 25])
def test_one_user_after_another(k: int) -> None:
    scores, right = example()
    ranked = Ranked.of(scores, right, 25)
    for place in range(len(scores)):
        order = sorted(range(25), key=lambda item: -float(scores[place, item]))
        wanted = {item for item in range(25) if right[place, item]}
        hits = [item in wanted for item in order[:k]]
        if not wanted:
            assert math.isnan(recall_at(ranked, k).values[place])
            continue
        assert recall_at(ranked, k).values[place] == pytest.approx(sum(hits) / min(k, len(wanted)))
        assert precision_at(ranked, k).values[place] == pytest.approx(sum(hits) / k)
        gain = sum(1 / math.log2(rank + 2) for rank, hit in enumerate(hits) if hit)
        best = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(wanted))))
        assert ndcg_at(ranked, k).values[place] == pytest.approx(gain / best)


def test_ndcg_is_that_of_scikit_learn() -> None:
    scores, right = example()
    some = right.any(1)
    theirs = ndcg_score(right[some].numpy(), scores[some].numpy(), k=10)
    assert ndcg_at(Ranked.of(scores, right), 10).mean == pytest.approx(theirs)


def test_items_that_may_not_be_listed_are_no_hits() -> None:
    scores = torch.tensor([[3.0, -math.inf, 1.0, -math.inf]])
    right = torch.tensor([[False, True, True, True]])
    ranked = Ranked.of(scores, right)
    assert ranked.items.tolist() == [[0, 2, -1, -1]]
    assert recall_at(ranked, 4).mean == pytest.approx(1 / 3)
    assert coverage_at(ranked, 4, 4) == 0.5


def test_standard_errors_and_differences_are_of_users() -> None:
    first, second = UserMean(torch.tensor([1.0, 2.0, math.nan, 6.0])), UserMean(torch.tensor([0.0, 1, 2, 5]))
    assert first.mean == 3
    assert first.standard_error == pytest.approx(np.std([1, 2, 6]) / 3**0.5)
    assert (first - second).mean == 1
    assert (first - second).standard_error == 0


def test_novelty_is_in_bits() -> None:
    ranked = Ranked.of(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[True, False, False]]))
    assert novelty_at(ranked, 2, torch.tensor([0.5, 0.125, 1.0])).mean == pytest.approx((1 + 3) / 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: recall_at(r, 9), r"recall_at: `k` must be at most 3"),
        (lambda r: ndcg_at(r, 0), r"ndcg_at: `k` must be a positive int"),
        (lambda r: novelty_at(r, 1, torch.zeros(3)), r"`popularity` must be in \(0, 1\]"),
        (lambda _: Ranked.of(torch.zeros(2, 3), torch.zeros(2, 3)), r"`right` must be bool"),
        (lambda _: Ranked.of(torch.full((1, 3), math.nan), torch.ones(1, 3).bool()), "NaN"),
    ],
)
def test_bad_lists_are_refused(call: object, message: str) -> None:
    ranked = Ranked.of(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[True, False, False]]))
    with pytest.raises(ValueError, match=message):
        call(ranked)  # type: ignore[operator]
