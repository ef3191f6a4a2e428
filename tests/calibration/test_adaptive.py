"""Adaptive conformal inference: the bound of its coverage holds for every sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import bayesdrop as bd
from bayesdrop.calibration import AdaptiveConformal, AdaptiveThreshold, ConformalRegressor


def bound(level: float, rate: float, rows: int, late: int = 0) -> float:
    return (max(level, 1 - level) + (late + 1) * rate) / (rows * rate)


def just_outside(threshold: AdaptiveThreshold, row: int) -> float:
    """An adversary who always picks a score that is not covered."""
    value = threshold.value
    return 1e9 if math.isinf(value) else value + 1


def just_inside(threshold: AdaptiveThreshold, row: int) -> float:
    value = threshold.value
    return 0.0 if math.isinf(value) else value


def waves(threshold: AdaptiveThreshold, row: int) -> float:
    """An adversary who lets the level rise for long, and then strikes."""
    return (just_inside if (row // 150) % 2 else just_outside)(threshold, row)


def growing(threshold: AdaptiveThreshold, row: int) -> float:
    return float(row)


@pytest.mark.parametrize("adversary", [just_outside, just_inside, waves, growing])
@pytest.mark.parametrize("rate", [0.005, 0.05, 0.7])
@pytest.mark.parametrize("level", [0.9, 0.3])
def test_no_adversary_breaks_the_bound(
    adversary: Callable[[AdaptiveThreshold, int], float], rate: float, level: float
) -> None:
    threshold = AdaptiveThreshold(level, rate=rate, window=100, scores=[0.1 * k for k in range(60)])
    misses = 0
    for row in range(1, 601):
        misses += not threshold.observe(adversary(threshold, row))
        assert abs(misses / row - (1 - level)) <= bound(level, rate, row) + 1e-9
        assert -rate - 1e-9 <= threshold.alpha <= 1 + rate + 1e-9


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False), max_size=60),
    st.floats(0.01, 0.99),
    st.floats(0.001, 2.0),
    st.integers(1, 30),
)
def test_the_bound_holds_for_any_numbers(scores: list[float], level: float, rate: float, window: int) -> None:
    threshold = AdaptiveThreshold(level, rate=rate, window=window, scores=scores[:5])
    covered = [threshold.observe(score) for score in scores]
    if covered:
        share = sum(covered) / len(covered)
        assert abs(share - level) <= bound(level, rate, len(covered)) + 1e-9
    assert threshold.scores == tuple([*scores[:5], *scores][-window:])


@pytest.mark.parametrize("late", [1, 7, 40])
def test_targets_that_come_late_widen_the_bound_by_their_delay(late: int) -> None:
    level, rate = 0.9, 0.05
    threshold = AdaptiveThreshold(level, rate=rate, window=50, scores=[1.0] * 30)
    waiting: list[tuple[float, bool]] = []
    misses = rows = 0
    for row in range(2500):
        alpha, value = threshold.alpha, threshold.value
        score = waves(threshold, row)
        waiting.append((score, alpha < 1 and score <= value))
        if len(waiting) > late:
            score, covered = waiting.pop(0)
            misses += not threshold.observe(score, covered=covered)
            rows += 1
    assert abs(misses / rows - (1 - level)) <= bound(level, rate, rows, late) + 1e-9


def test_the_first_step_is_that_of_the_paper() -> None:
    threshold = AdaptiveThreshold(0.9, rate=0.05, scores=range(1, 100))
    assert threshold.value == 90
    assert threshold.observe(90.0)
    assert threshold.alpha == pytest.approx(0.1 + 0.05 * 0.1)
    assert not threshold.observe(99.5)
    assert threshold.alpha == pytest.approx(0.1 + 0.05 * 0.1 - 0.05 * 0.9)


def drifting(rows: int, seed: int, outputs: int = 1) -> tuple[bd.Prediction, Tensor]:
    """Targets whose noise grows from 1 to 5, and a prediction that says 1."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, outputs, generator=generator, dtype=torch.float64)
    y = noise * torch.linspace(1, 5, rows, dtype=torch.float64)[:, None]
    zeros = torch.zeros(2, rows, outputs, dtype=torch.float64)
    return bd.Prediction.from_draws(zeros, bd.Gaussian(1.0)), y


def steady(rows: int, seed: int, outputs: int = 1) -> tuple[bd.Prediction, Tensor]:
    prediction, y = drifting(rows, seed, outputs)
    return prediction, y / torch.linspace(1, 5, rows, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("score", ["scaled", "quantile", "absolute"])
def test_coverage_is_kept_where_split_conformal_loses_it(score: str) -> None:
    fixed = ConformalRegressor(0.9, score=score).fit(*steady(500, 0))  # type: ignore[arg-type]
    online = AdaptiveConformal(0.9, rate=0.02, score=score).fit(*steady(500, 0))  # type: ignore[arg-type]
    prediction, y = drifting(1500, 1)
    lower, upper = fixed.intervals(prediction)
    assert float(((lower <= y) & (y <= upper)).double().mean()) < 0.6
    covered = online.update(prediction, y)
    assert abs(float(covered.double().mean()) - 0.9) <= bound(0.9, 0.02, 1500)


def test_it_begins_as_split_conformal() -> None:
    seen, new = steady(300, 0, 2), steady(20, 1, 2)[0]
    for joint in (False, True):
        fixed = ConformalRegressor(0.8, joint=joint).fit(*seen)
        online = AdaptiveConformal(0.8, joint=joint).fit(*seen)
        assert torch.equal(online.threshold(), fixed.threshold)
        for ours, theirs in zip(online.intervals(new), fixed.intervals(new), strict=True):
            assert torch.equal(ours, theirs)


def test_what_is_said_to_be_covered_is_inside_the_interval() -> None:
    online = AdaptiveConformal(0.9, rate=0.05).fit(*steady(100, 0, 2))
    prediction, y = drifting(150, 1, 2)
    for row in range(150):
        one = bd.Prediction.from_draws(prediction.draws[:, row : row + 1], prediction.likelihood)
        lower, upper = online.intervals(one)
        inside = (lower <= y[row : row + 1]) & (y[row : row + 1] <= upper)
        assert torch.equal(online.update(one, y[row : row + 1]), inside)


def test_outputs_are_covered_each_or_all_at_once() -> None:
    seen, (prediction, y) = steady(300, 0, 3), drifting(1200, 1, 3)
    each = AdaptiveConformal(0.9, rate=0.05).fit(*seen).update(prediction, y)
    assert each.shape == (1200, 3)
    assert bool(((each.double().mean(0) - 0.9).abs() <= bound(0.9, 0.05, 1200)).all())
    assert float(each.all(1).double().mean()) < 0.85
    together = AdaptiveConformal(0.9, rate=0.05, joint=True).fit(*seen).update(prediction, y)
    assert together.shape == (1200,)
    assert abs(float(together.double().mean()) - 0.9) <= bound(0.9, 0.05, 1200)


def test_every_group_keeps_its_own_promise() -> None:
    prediction, y = steady(2000, 1)
    groups = ["wild" if row % 4 == 0 else "calm" for row in range(2000)]
    wild = torch.tensor([name == "wild" for name in groups])
    y = torch.where(wild[:, None], 6 * y, y)
    start, start_y = steady(400, 2)
    as_one = AdaptiveConformal(0.9, rate=0.05).fit(start, start_y)
    mixed = as_one.update(prediction, y)[:, 0].double()
    assert float(mixed[wild].mean()) < 0.8
    # "wild" was not in the calibration set: it begins with the scores of all.
    online = AdaptiveConformal(0.9, rate=0.05).fit(start, start_y, groups=["calm"] * 400)
    assert torch.equal(online.threshold("wild"), online.threshold("calm"))
    covered = online.update(prediction, y, groups=groups)[:, 0].double()
    assert online.groups == ("calm", "wild")
    for rows in (wild, ~wild):
        assert abs(float(covered[rows].mean()) - 0.9) <= bound(0.9, 0.05, int(rows.sum()))
    assert float(online.threshold("wild")) > 3 * float(online.threshold("calm"))
    lower, upper = online.intervals(prediction, groups=groups)
    assert float((upper - lower)[wild].mean()) > 3 * float((upper - lower)[~wild].mean())


def test_a_question_about_an_unknown_group_changes_nothing() -> None:
    online = AdaptiveConformal().fit(*steady(50, 0))
    before = online.state()
    online.intervals(steady(2, 1)[0], groups=["new", "newer"])
    assert online.state() == before


def test_it_goes_on_from_a_file(tmp_path: Path) -> None:
    online = AdaptiveConformal(0.9, rate=0.05, window=40).fit(*steady(60, 0), groups=["a", "b"] * 30)
    online.update(*drifting(50, 1), groups=["a", "b"] * 25)
    online.save(tmp_path / "online.json")
    again = AdaptiveConformal.load(tmp_path / "online.json")
    more = drifting(50, 2)
    assert torch.equal(again.update(*more, groups=["b"] * 50), online.update(*more, groups=["b"] * 50))
    assert again.state() == online.state()


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="`rate` must be a positive number"):
        AdaptiveConformal(rate=0)
    with pytest.raises(ValueError, match="call fit"):
        AdaptiveConformal().intervals(steady(2, 0)[0])
    online = AdaptiveConformal().fit(*steady(50, 0))
    with pytest.raises(ValueError, match="one for each of 2 rows"):
        online.intervals(steady(2, 0)[0], groups=["a"])
    with pytest.raises(TypeError, match="texts or whole numbers"):
        online.intervals(steady(2, 0)[0], groups=[0.5, 0.5])
    with pytest.raises(ValueError, match="as the calibration set's"):
        online.update(*steady(2, 0, 2))
    with pytest.raises(ValueError, match="booleans of shape"):
        online.update(*steady(2, 0), covered=torch.ones(2, 1))
    with pytest.raises(ValueError, match="`score` must be a number"):
        AdaptiveThreshold().observe(math.nan)
