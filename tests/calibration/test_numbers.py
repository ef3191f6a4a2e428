"""Conformal intervals: the exact law of their coverage, and their scores by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

import bayesdrop as bd
from bayesdrop.calibration import ConformalRegressor, coverage_law

SCORES = ["scaled", "quantile", "absolute"]


def standard(rows: int, seed: int, *, noise: float = 0.3) -> tuple[bd.Prediction, Tensor]:
    """Targets N(0, 1); the prediction says N(0, noise^2)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    return bd.Prediction.from_draws(torch.zeros(2, rows, 1, dtype=torch.float64), bd.Gaussian(noise)), y


@pytest.mark.parametrize("score", SCORES)
def test_coverage_given_the_calibration_set_is_beta_distributed(score: Any) -> None:
    """Targets are standard normal, so the chance of covering a new one is known: Phi(upper) - Phi(lower)."""
    calibration, level, repeats = 40, 0.8, 150 if score == "quantile" else 600
    coverage = []
    for repeat in range(repeats):
        fitted = ConformalRegressor(level, score=score).fit(*standard(calibration, repeat))
        lower, upper = fitted.intervals(standard(1, 0)[0])
        coverage.append(float(stats.norm.cdf(upper.item()) - stats.norm.cdf(lower.item())))
    law = coverage_law(calibration, level)
    assert stats.kstest(coverage, stats.beta(law.a, law.b).cdf).pvalue > 1e-4


def uneven(rows: int, seed: int) -> tuple[bd.Prediction, Tensor]:
    """Noise that grows along x, known up to a factor of three."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    y = (0.1 + x) * torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    output = torch.cat([torch.zeros_like(x), 2 * ((0.1 + x) / 3).log()], 1)
    return bd.Prediction.from_draws(output.expand(2, -1, -1), bd.HeteroscedasticGaussian()), y


def test_scaled_intervals_cover_easy_and_hard_rows_alike() -> None:
    seen, new = uneven(4000, 0), uneven(4000, 1)
    narrow = new[0].std[:, 0] < new[0].std.median()
    gaps = {}
    for score in ("scaled", "absolute"):
        lower, upper = ConformalRegressor(0.9, score=score).fit(*seen).intervals(new[0])  # type: ignore[arg-type]
        covered = ((lower <= new[1]) & (new[1] <= upper)).double()[:, 0]
        assert abs(covered.mean() - 0.9) <= 5 * math.sqrt(0.09 / 4000 + coverage_law(4000, 0.9).std ** 2)
        gaps[score] = float((covered[narrow].mean() - covered[~narrow].mean()).abs())
    assert gaps["scaled"] <= 5 * math.sqrt(2 * 0.09 / 2000)
    assert gaps["absolute"] > 0.1


def test_ends_by_hand() -> None:
    prediction, _ = standard(9, 0, noise=0.5)
    y = torch.arange(-4, 5, dtype=torch.float64).unsqueeze(1) / 2
    # ranks: (9 + 1) x 0.8 = 8 of |y| = 0, .5, .5, 1, 1, 1.5, 1.5, 2, 2
    for score, threshold in (("absolute", 2.0), ("scaled", 4.0)):
        fitted = ConformalRegressor(0.8, score=score).fit(prediction, y)  # type: ignore[arg-type]
        assert fitted.threshold.tolist() == pytest.approx([threshold])
        lower, upper = fitted.intervals(prediction)
        torch.testing.assert_close(lower, torch.full_like(lower, -2.0))
        torch.testing.assert_close(upper, torch.full_like(upper, 2.0))
    edge = 0.5 * stats.norm.ppf(0.9)
    fitted = ConformalRegressor(0.8, score="quantile").fit(prediction, y)
    assert fitted.threshold.item() == pytest.approx(2 - edge, abs=1e-6)
    assert fitted.intervals(prediction)[1][0].item() == pytest.approx(2.0, abs=1e-6)


def test_quantile_intervals_may_shrink_but_not_turn_inside_out() -> None:
    wide, y = standard(50, 0, noise=10.0)
    fitted = ConformalRegressor(0.8, score="quantile").fit(wide, y)
    assert fitted.threshold.item() < 0
    narrow, _ = standard(3, 0, noise=0.01)
    lower, upper = fitted.intervals(narrow)
    torch.testing.assert_close(lower, upper)
    # As narrow as the threshold takes away, and a little less and more: |c| = half the model's interval.
    edge = -fitted.threshold.item() / stats.norm.ppf(0.9)
    for factor in (0.97, 0.999, 1.001, 1.03):
        near, _ = standard(3, 0, noise=factor * edge)
        lower, upper = fitted.intervals(near)
        width = 2 * max(0.0, (factor - 1) * -fitted.threshold.item())
        torch.testing.assert_close(upper - lower, torch.full_like(lower, width), rtol=1e-3, atol=1e-4)


def test_each_output_has_its_own_coverage_or_all_have_one() -> None:
    rows = 4000
    y = torch.randn(rows, 2, dtype=torch.float64) * torch.tensor([1.0, 20.0])
    prediction = bd.Prediction.from_draws(torch.zeros(2, rows, 2, dtype=torch.float64), bd.Gaussian(1.0))
    apart = ConformalRegressor(0.9, score="absolute").fit(prediction, y)
    assert apart.threshold.shape == (2,)
    lower, upper = apart.intervals(prediction)
    inside = (lower <= y) & (y <= upper)
    # on the calibration set itself, as many as the rank says
    assert inside.sum(0).tolist() == [math.ceil(0.9 * (rows + 1))] * 2
    together = ConformalRegressor(0.9, score="absolute", joint=True).fit(prediction, y)
    lower, upper = together.intervals(prediction)
    assert int(((lower <= y) & (y <= upper)).all(1).sum()) == math.ceil(0.9 * (rows + 1))


def test_too_few_rows_give_the_whole_line() -> None:
    prediction, y = standard(8, 0)
    lower, upper = ConformalRegressor(0.9).fit(prediction, y).intervals(prediction)
    assert (lower == -math.inf).all()
    assert (upper == math.inf).all()


def test_a_prediction_by_moments_has_intervals_too() -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1)
    )
    x = torch.randn(200, 2)
    prediction = bd.predict(net, x, method="moments", likelihood=bd.Gaussian(0.1))
    y = prediction.mean + 2 * torch.randn(200, 1)
    for score in SCORES:
        lower, upper = ConformalRegressor(0.9, score=score).fit(prediction, y).intervals(prediction)  # type: ignore[arg-type]
        assert int(((lower <= y) & (y <= upper)).sum()) in (180, 181)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_what_was_found_can_be_kept(score: Any, joint: bool, tmp_path: Path) -> None:
    prediction, y = standard(30, 0)
    fitted = ConformalRegressor(0.9, score=score, joint=joint).fit(prediction, y)
    fitted.save(tmp_path / "intervals.json")
    again = ConformalRegressor.load(tmp_path / "intervals.json")
    assert again.state() == fitted.state()
    for ours, theirs in zip(again.intervals(prediction), fitted.intervals(prediction), strict=True):
        assert torch.equal(ours, theirs)


def test_mistakes_are_named() -> None:
    prediction, y = standard(20, 0)
    with pytest.raises(ValueError, match="one of scaled, quantile, absolute"):
        ConformalRegressor(score="std")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="call fit"):
        ConformalRegressor().intervals(prediction)
    with pytest.raises(ValueError, match=r"Pass y.unsqueeze\(-1\)"):
        ConformalRegressor().fit(prediction, y[:, 0])
    with pytest.raises(TypeError, match="not of classes"):
        ConformalRegressor().fit(bd.Prediction.from_draws(torch.randn(2, 4, 3), bd.Categorical()), y)
    with pytest.raises(ValueError, match="score='absolute'"):
        ConformalRegressor().fit(bd.Prediction.from_draws(torch.zeros(2, 20, 1)), y)
    other = bd.Prediction.from_draws(torch.zeros(2, 20, 3), bd.Gaussian(1.0))
    with pytest.raises(ValueError, match=r"of outputs \(1,\)"):
        ConformalRegressor().fit(prediction, y).intervals(other)
