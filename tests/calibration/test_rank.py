"""The rank of the threshold, and the law of coverage."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayesdrop.calibration import conformal_quantile, coverage_law


@pytest.mark.parametrize(
    ("num", "level", "rank"), [(9, 0.9, 9), (99, 0.9, 90), (99, 0.55, 55), (100, 0.9, 91)]
)
def test_the_rank_is_exact(num: int, level: float, rank: int) -> None:
    """100 x 0.55 is 55.00000000000001 in floating point, whose ceiling would be 56."""
    scores = torch.arange(1, num + 1, dtype=torch.float64)[torch.randperm(num)]
    assert conformal_quantile(scores, level) == rank


def test_too_few_rows_leave_everything_in() -> None:
    assert conformal_quantile(torch.zeros(8), 0.9) == math.inf
    assert conformal_quantile(torch.zeros(9), 0.9) == 0


def test_the_law_has_the_moments_of_the_beta_distribution() -> None:
    law = coverage_law(57, 0.8)
    assert (law.a, law.b) == (47, 11)
    assert law.mean == pytest.approx(stats.beta(47, 11).mean())
    assert law.std == pytest.approx(stats.beta(47, 11).std())
    assert law.mean >= 0.8


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="`num_calibration` must be at least 9"):
        coverage_law(5, 0.9)
    with pytest.raises(ValueError, match=r"`level` must be in \(0, 1\)"):
        coverage_law(50, 1.0)
