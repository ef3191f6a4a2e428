from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from bayesdrop.functional import (
    bernoulli_entropy,
    entropy,
    expected_entropy,
    mutual_information,
    predictive_entropy,
    variation_ratio,
)


def test_bernoulli_entropy_is_scipys_and_zero_at_the_ends() -> None:
    p = torch.linspace(0, 1, 21, dtype=torch.float64)
    expected = [stats.bernoulli(q).entropy() for q in p.tolist()]
    np.testing.assert_allclose(bernoulli_entropy(p), expected, atol=1e-15)
    assert bernoulli_entropy(torch.tensor([0.0, 1.0])).tolist() == [0.0, 0.0]


def test_class_entropies_are_scipys_on_any_axis() -> None:
    draws = torch.softmax(2 * torch.randn(7, 5, 4, 3, dtype=torch.float64), dim=2)  # T, N, K, positions
    table = draws.numpy()
    total = stats.entropy(table.mean(0), axis=1)
    expected = stats.entropy(table, axis=2).mean(0)
    np.testing.assert_allclose(entropy(draws, 2), stats.entropy(table, axis=2))
    np.testing.assert_allclose(predictive_entropy(draws, 2), total)
    np.testing.assert_allclose(expected_entropy(draws, 2), expected)
    np.testing.assert_allclose(mutual_information(draws, 2), total - expected, atol=1e-12)
    np.testing.assert_allclose(predictive_entropy(draws.movedim(2, -1)), total)


def test_variation_ratio_counts_votes() -> None:
    votes = torch.tensor([[0, 1], [0, 1], [1, 1], [2, 1]])
    probs = torch.nn.functional.one_hot(votes, 3).double()
    assert variation_ratio(probs).tolist() == [0.5, 0.0]
    assert variation_ratio(probs.movedim(-1, 1), dim=1).tolist() == [0.5, 0.0]


def test_certain_classes_have_no_entropy() -> None:
    assert entropy(torch.tensor([[1.0, 0.0, 0.0]])).tolist() == [0.0]
