"""Recalibrated quantiles: the exact law of their levels, and the map by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import bayesdrop as bd
from bayesdrop.calibration import QuantileRecalibration
from bayesdrop.metrics import regression_calibration_error


def standard(rows: int, seed: int, *, noise: float = 0.3) -> tuple[bd.Prediction, Tensor]:
    """Targets N(0, 1); the prediction says N(0, noise^2)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    return bd.Prediction.from_draws(torch.zeros(2, rows, 1, dtype=torch.float64), bd.Gaussian(noise)), y


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_the_level_of_a_quantile_given_the_calibration_set_is_beta_distributed(q: float) -> None:
    """Targets are standard normal, so the chance of staying below is known: Phi(quantile)."""
    rows, new = 39, standard(1, 0)[0]
    found = [
        float(stats.norm.cdf(QuantileRecalibration().fit(*standard(rows, seed)).quantile(new, q).item()))
        for seed in range(300)
    ]
    rank = round(q * (rows + 1))
    assert stats.kstest(found, stats.beta(rank, rows + 1 - rank).cdf).pvalue > 1e-4


def test_the_map_by_hand() -> None:
    prediction, _ = standard(3, 0, noise=1.0)
    y = torch.tensor([[-1.0], [0.5], [0.0]], dtype=torch.float64)
    ranks = stats.norm.cdf([-1.0, 0.0, 0.5])
    fitted = QuantileRecalibration().fit(prediction, y)
    # k / (n + 1): 1/4, 2/4, 3/4; straight between them, and from there to 0 and 1
    wanted = [ranks[0] / 2, ranks[0], ranks[1], (ranks[1] + ranks[2]) / 2, (ranks[2] + 1) / 2]
    q = [0.125, 0.25, 0.5, 0.625, 0.875]
    np.testing.assert_allclose(fitted.levels(q)[:, 0], wanted, rtol=1e-12)
    np.testing.assert_allclose(fitted.quantile(prediction, q)[:, 0, 0], stats.norm.ppf(wanted), atol=1e-9)
    assert fitted.num_calibration == 3


def test_quantiles_and_distribution_function_invert_each_other() -> None:
    generator = torch.Generator().manual_seed(3)
    output = torch.randn(20, 40, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    prediction = bd.Prediction.from_draws(output, bd.Laplace(0.4))
    fitted = QuantileRecalibration().fit(prediction, y)
    for q in (0.07, 0.4, 0.93):
        ends = fitted.quantile(prediction, q)
        torch.testing.assert_close(
            fitted.cdf(prediction, ends), torch.full_like(ends, q), rtol=1e-9, atol=1e-9
        )


def test_a_prediction_that_is_far_off_becomes_calibrated() -> None:
    (seen, seen_y), (new, new_y) = standard(2000, 0), standard(2000, 1)
    before = float(regression_calibration_error(new, new_y))
    fitted = QuantileRecalibration().fit(seen, seen_y)
    levels = torch.arange(1, 20) / 20
    observed = (new_y[None] <= fitted.quantile(new, levels.tolist())).double().mean((1, 2))
    # Two independent samples of 2,000: five standard errors at every level.
    error = (levels * (1 - levels) * 2 / 2000).sqrt()
    assert before > 0.1
    assert ((observed - levels).abs() <= 5 * error).all()


def test_each_output_has_its_own_map() -> None:
    rows = 999
    y = torch.randn(rows, 2, dtype=torch.float64) * torch.tensor([1.0, 4.0])
    prediction = bd.Prediction.from_draws(torch.zeros(2, rows, 2, dtype=torch.float64), bd.Gaussian(1.0))
    lower, upper = QuantileRecalibration().fit(prediction, y).interval(prediction, 0.9)
    inside = ((lower < y) & (y <= upper)).sum(0)
    # Ranks 50 and 950 of 999; an end that is found by bisection may fall on either side of its target.
    assert ((inside - 900).abs() <= 1).all()
    assert (upper - lower)[0, 1] > 3 * (upper - lower)[0, 0]


def test_outside_of_all_that_the_model_thinks_possible_there_is_no_end() -> None:
    prediction, _ = standard(9, 0, noise=1e-3)
    y = torch.full((9, 1), 5.0, dtype=torch.float64)
    fitted = QuantileRecalibration().fit(prediction, y)
    assert (fitted.quantile(prediction, 0.5) == math.inf).all()
    assert (fitted.cdf(prediction, torch.zeros(9, 1)) <= 0.1).all()


def test_moments_and_raw_outputs_have_levels_too() -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1)
    )
    x = torch.randn(199, 2)
    for options in ({"method": "moments", "likelihood": bd.Gaussian(0.1)}, {"num_draws": 400}):
        prediction = bd.predict(net, x, **options)  # type: ignore[arg-type]
        y = prediction.mean + prediction.std * torch.randn(199, 1)
        lower, upper = QuantileRecalibration().fit(prediction, y).interval(prediction, 0.8)
        assert abs(int(((lower <= y) & (y <= upper)).sum()) - 160) <= 4


def test_what_was_found_can_be_kept(tmp_path: Path) -> None:
    prediction, y = standard(30, 0)
    fitted = QuantileRecalibration().fit(prediction, y)
    fitted.save(tmp_path / "levels.json")
    again = QuantileRecalibration.load(tmp_path / "levels.json")
    assert again.state() == fitted.state()
    assert torch.equal(again.quantile(prediction, 0.3), fitted.quantile(prediction, 0.3))


def test_mistakes_are_named() -> None:
    prediction, y = standard(20, 0)
    with pytest.raises(ValueError, match="call fit"):
        QuantileRecalibration().interval(prediction)
    fitted = QuantileRecalibration().fit(prediction, y)
    with pytest.raises(ValueError, match=r"`q` must be in \(0, 1\); got 1.0"):
        fitted.quantile(prediction, 1.0)
    with pytest.raises(TypeError, match="not of classes"):
        fitted.fit(bd.Prediction.from_draws(torch.randn(2, 4, 3), bd.Categorical()), y)
    with pytest.raises(ValueError, match=r"of outputs \(1,\)"):
        fitted.interval(bd.Prediction.from_draws(torch.zeros(2, 20, 3), bd.Gaussian(1.0)))
    with pytest.raises(TypeError, match="has classes, not numbers"):
        bd.Prediction.from_draws(torch.randn(2, 4, 3), bd.Categorical()).cdf(torch.zeros(4, 3))


def test_chances_are_those_of_the_mixture() -> None:
    draws = torch.tensor([[[0.0]], [[2.0]]], dtype=torch.float64)
    value = torch.tensor([[0.5]], dtype=torch.float64)
    mixture = (stats.norm.cdf(0.5) + stats.norm.cdf(-1.5)) / 2
    assert bd.Prediction.from_draws(draws, bd.Gaussian(1.0)).cdf(value).item() == pytest.approx(mixture)
    assert bd.Prediction.from_draws(draws).cdf(value).item() == 0.5
