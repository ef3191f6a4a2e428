"""Calibration of predictive quantiles, against the quantiles themselves."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from bayesdrop import Gaussian, HeteroscedasticGaussian, Likelihood, Prediction
from bayesdrop.metrics import CalibrationCurve, calibration_curve, regression_calibration_error

LEVELS = (0.1, 0.25, 0.5, 0.9)


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("likelihood", [Gaussian(0.5), HeteroscedasticGaussian(), None])
def test_the_curve_counts_targets_below_each_quantile(likelihood: Likelihood | None) -> None:
    draws, y = _normal(8, 40, 2), _normal(40, 2, seed=1)
    y = y[:, :1] if isinstance(likelihood, HeteroscedasticGaussian) else y
    prediction = Prediction.from_draws(draws, likelihood)
    curve = calibration_curve(prediction, y, levels=LEVELS)
    expected = [float((y <= prediction.quantile(q)).double().mean()) for q in LEVELS]
    assert curve.nominal.tolist() == list(LEVELS)
    assert curve.observed.tolist() == pytest.approx(expected, abs=1e-12)


def test_the_curve_of_one_gaussian_is_scipys() -> None:
    y = 1.5 * _normal(200, 1)
    prediction = Prediction.from_draws(torch.zeros(2, 200, 1, dtype=torch.double), Gaussian(1.0))
    curve = calibration_curve(prediction, y)
    expected = [(y.numpy() <= stats.norm.ppf(q)).mean() for q in curve.nominal.tolist()]
    assert curve.observed.tolist() == pytest.approx(expected, abs=1e-12)
    assert len(curve.nominal) == 19
    error = sum((a - q) ** 2 for a, q in zip(expected, curve.nominal.tolist(), strict=True)) / 19
    assert float(regression_calibration_error(prediction, y)) == pytest.approx(error**0.5, rel=1e-10)


def test_a_true_model_is_calibrated_and_a_narrow_one_is_not() -> None:
    rows = 4000
    y = _normal(rows, 1)
    mean = torch.zeros(2, rows, 1, dtype=torch.double)
    curve = calibration_curve(Prediction.from_draws(mean, Gaussian(1.0)), y)
    standard_error = (curve.nominal * (1 - curve.nominal) / rows).sqrt()
    assert ((curve.observed - curve.nominal).abs() <= 5 * standard_error).all()
    narrow = regression_calibration_error(Prediction.from_draws(mean, Gaussian(0.3)), y)
    assert float(narrow) > 5 * float(standard_error.max())


def test_a_target_on_a_quantile_is_not_above_it() -> None:
    for likelihood in (Gaussian(1.0), None):
        prediction = Prediction.from_draws(torch.tensor([[[-1.0]], [[0.0]], [[1.0]]]), likelihood)
        assert calibration_curve(prediction, torch.zeros(1, 1), levels=[0.5]).observed.tolist() == [1.0]


def test_targets_below_everything_are_below_every_quantile() -> None:
    prediction = Prediction.from_draws(_normal(4, 5, 1), Gaussian(0.1))
    assert calibration_curve(prediction, torch.full((5, 1), -50.0)).observed.tolist() == [1.0] * 19
    assert calibration_curve(prediction, torch.full((5, 1), 50.0)).observed.tolist() == [0.0] * 19


@pytest.mark.parametrize("levels", [(), (0.0, 0.5), (1.0,), (float("nan"),), ((0.1, 0.2), (0.3, 0.4))])
def test_levels_are_numbers_in_0_to_1(levels: tuple[float, ...]) -> None:
    prediction = Prediction.from_draws(torch.zeros(2, 3, 1), Gaussian(1.0))
    with pytest.raises(ValueError, match="calibration_curve: `levels` must be one or more numbers"):
        calibration_curve(prediction, torch.zeros(3, 1), levels=levels)
    with pytest.raises(ValueError, match="regression_calibration_error: `levels` must be"):
        regression_calibration_error(prediction, torch.zeros(3, 1), levels=levels)


def test_the_curve_of_ranks_is_the_curve_of_the_prediction_in_parts() -> None:
    generator = torch.Generator().manual_seed(5)
    draws = torch.randn(7, 50, 1, generator=generator, dtype=torch.double)
    y = torch.randn(50, 1, generator=generator, dtype=torch.double)
    whole = calibration_curve(Prediction.from_draws(draws, Gaussian(0.5)), y)
    parts = [
        Prediction.from_draws(draws[:, rows], Gaussian(0.5)).cdf(y[rows])
        for rows in (slice(20), slice(20, 50))
    ]
    curve = CalibrationCurve.from_ranks(torch.cat(parts))
    assert torch.equal(curve.observed, whole.observed)
    expected = (whole.observed - whole.nominal).square().mean().sqrt()
    assert float(curve.rms_error()) == pytest.approx(float(expected), rel=1e-12)
    with pytest.raises(ValueError, match="`rank` must be at least one value"):
        CalibrationCurve.from_ranks(torch.empty(0))
