"""Laplace noise: density, moments, quantiles and scores against scipy; learning its scale; saving it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

import bayesdrop as bd
from bayesdrop import BernoulliDropout, Laplace, NegativeELBO, Prediction, metrics, predict
from bayesdrop.calibration import ConformalRegressor


def mixture(num_draws: int = 30) -> Prediction:
    generator = torch.Generator().manual_seed(0)
    draws = 2 * torch.randn(num_draws, 4, 2, generator=generator, dtype=torch.float64)
    return Prediction.from_draws(draws, Laplace(torch.tensor([0.3, 1.7])).double())


def test_the_density_is_scipys_summed_over_outputs() -> None:
    f, y = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    likelihood = Laplace(torch.tensor([0.5, 2.0])).double()
    scale = likelihood.scale.numpy()
    expected = stats.laplace.logpdf(y.numpy(), f.numpy(), scale).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(f, y).numpy(), expected, rtol=1e-12)
    one = Laplace(0.5).double()
    expected = stats.laplace.logpdf(y[:, 0].numpy(), f[:, 0].numpy(), one.scale.item())
    np.testing.assert_allclose(one.log_prob(f[:, 0], y[:, 0]).numpy(), expected, rtol=1e-12)


def test_moments_distribution_function_and_quantiles_are_scipys() -> None:
    f = torch.randn(5, 1, dtype=torch.float64)
    likelihood = Laplace(0.7).double()
    scale = likelihood.scale.item()
    mean, variance = likelihood.moments(f)
    assert torch.equal(mean, f)
    np.testing.assert_allclose(variance.numpy(), stats.laplace.var(f.numpy(), scale), rtol=1e-12)
    assert likelihood.noise_std.item() == pytest.approx(stats.laplace.std(0, scale))
    for shift in (-30.0, -1.0, 0.0, 0.2, 4.0):
        expected = stats.laplace.cdf(f.numpy() + shift, f.numpy(), scale)
        np.testing.assert_allclose(likelihood.cdf(f, f + shift).numpy(), expected, rtol=1e-9)
    for q in (1e-9, 0.1, 0.5, 0.8, 1 - 1e-9):
        expected = stats.laplace.ppf(q, f.numpy(), scale)
        np.testing.assert_allclose(likelihood.quantile(f, q).numpy(), expected, rtol=1e-9)


def test_quantiles_of_the_mixture_have_their_share_below_them() -> None:
    prediction = mixture()
    assert isinstance(prediction.likelihood, Laplace)
    scale = prediction.likelihood.scale.numpy()
    for q in (1e-6, 0.05, 0.5, 0.9, 1 - 1e-6):
        values = prediction.quantile(q).numpy()
        below = stats.laplace.cdf(values, prediction.draws.numpy(), scale).mean(0)
        np.testing.assert_allclose(below, q, rtol=1e-7)
    lower, upper = prediction.interval(0.9)
    torch.testing.assert_close(lower, prediction.quantile(0.05))
    torch.testing.assert_close(upper, prediction.quantile(0.95))


def test_the_predictive_density_and_moments_are_those_of_the_mixture() -> None:
    prediction = mixture()
    assert isinstance(prediction.likelihood, Laplace)
    scale, draws = prediction.likelihood.scale.numpy(), prediction.draws.numpy()
    y = torch.randn(4, 2, dtype=torch.float64)
    expected = np.log(np.exp(stats.laplace.logpdf(y.numpy(), draws, scale).sum(2)).mean(0))
    np.testing.assert_allclose(prediction.log_prob(y).numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(prediction.mean.numpy(), draws.mean(0), rtol=1e-10, atol=1e-12)
    total = draws.var(0) + 2 * scale**2
    np.testing.assert_allclose(prediction.variance.numpy(), total, rtol=1e-10)


def test_samples_have_the_mean_and_the_absolute_error_of_the_noise() -> None:
    likelihood = Laplace(torch.tensor([0.3, 1.7])).double()
    f = torch.zeros(20000, 2, dtype=torch.float64)
    y = likelihood.sample(f, torch.Generator().manual_seed(3))
    assert torch.equal(y, likelihood.sample(f, torch.Generator().manual_seed(3)))
    scale = likelihood.scale
    # |y| is exponential: its mean and its standard deviation are the scale.
    assert ((y.abs().mean(0) - scale).abs() <= 5 * scale / math.sqrt(len(y))).all()
    assert (y.mean(0).abs() <= 5 * likelihood.noise_std / math.sqrt(len(y))).all()
    for column in range(2):
        assert stats.kstest(y[:, column].numpy(), stats.laplace(0, scale[column].item()).cdf).pvalue > 1e-4
    sampled = mixture().sample(50, seed=1)
    assert sampled.shape == (50, 4, 2)


def test_crps_is_the_integral() -> None:
    prediction = mixture(7)
    assert isinstance(prediction.likelihood, Laplace)
    y = torch.tensor([[0.3, -4.0], [9.0, 0.0], [-0.2, 1.0], [2.0, 2.0]], dtype=torch.float64)
    scale, draws = prediction.likelihood.scale.numpy(), prediction.draws.numpy()
    expected = []
    for row in range(4):
        for column in range(2):
            target, b, centres = y[row, column].item(), scale[column], draws[:, row, column]

            def square(v: float, step: float, b: float = b, centres: np.ndarray = centres) -> float:
                return float((stats.laplace.cdf(v, centres, b).mean() - step) ** 2)

            ends = sorted([centres.min() - 40 * b, *centres, target, centres.max() + 40 * b])
            ends = sorted([*ends, min(ends[0], target - 40 * b), max(ends[-1], target + 40 * b)])
            score = 0.0
            for a, c in itertools.pairwise(ends):
                score += integrate.quad(square, a, c, args=(float(a >= target),), epsabs=1e-12)[0]
            expected.append(score)
    assert float(metrics.crps(prediction, y)) == pytest.approx(np.mean(expected), rel=1e-8)


def test_calibration_curves_and_conformal_intervals_take_it() -> None:
    torch.manual_seed(0)
    likelihood = Laplace(0.5)
    draws = 0.3 * torch.randn(40, 600, 1)
    y = likelihood.sample(draws[0])
    prediction = Prediction.from_draws(draws, likelihood)
    ranks = likelihood.cdf(draws, y).mean(0)
    curve = metrics.calibration_curve(prediction, y, levels=[0.2, 0.7])
    assert curve.observed.tolist() == pytest.approx([(ranks <= q).double().mean().item() for q in (0.2, 0.7)])
    assert metrics.regression_calibration_error(prediction, y) < 0.05
    lower, upper = ConformalRegressor(0.8, score="quantile").fit(prediction, y).intervals(prediction)
    assert 0.8 <= float(((lower <= y) & (y <= upper)).float().mean()) <= 0.81


def test_fit_learns_the_scale_and_outliers_pull_less_than_with_gaussian_noise(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 200).unsqueeze(1)
    y = 2 * x + Laplace(0.2).sample(torch.zeros_like(x))
    y[::20] += 15.0
    slopes = {}
    for likelihood in (Laplace(), bd.Gaussian()):
        net = nn.Sequential(BernoulliDropout(nn.Linear(1, 1), p=0.01))
        objective = NegativeELBO(likelihood, num_data=len(x))
        terms = objective(net, x, y)
        assert terms.nll.item() > 0
        folder = tmp_path / type(likelihood).__name__
        history = bd.fit(net, (x, y), objective, epochs=60, batch_size=50, lr=0.05, checkpoint=folder)
        assert len(history.noise_std) == 60
        slopes[type(likelihood).__name__] = net[0].layer.bias.item()
    assert abs(slopes["Laplace"]) < 0.3 < slopes["Gaussian"]
    # The scale of greatest likelihood is the mean absolute error.
    net = nn.Sequential(BernoulliDropout(nn.Linear(1, 1), p=0.0))
    learned = Laplace()
    bd.fit(net, (x, y), NegativeELBO(learned, num_data=len(x)), epochs=150, batch_size=200, lr=0.05)
    assert learned.scale.item() == pytest.approx((y - net(x)).abs().mean().item(), rel=0.1)


def test_it_is_saved_and_says_what_it_is(tmp_path: Path) -> None:
    for likelihood in (Laplace(0.25), Laplace(torch.tensor([0.1, 0.4])), Laplace()):
        bd.save(likelihood, tmp_path / "noise.pt")
        again = bd.load(tmp_path / "noise.pt")
        assert isinstance(again, Laplace)
        assert again.noise == likelihood.noise
        assert torch.equal(again.scale, likelihood.scale)
    assert repr(Laplace(0.25)) == "Laplace(noise='fixed', scale=0.25)"


def test_predict_with_and_without_draws() -> None:
    net = nn.Sequential(BernoulliDropout(nn.Linear(2, 1), p=0.3))
    prediction = predict(net, torch.ones(3, 2), num_draws=20, likelihood=Laplace(0.5))
    assert prediction.aleatoric.flatten().tolist() == pytest.approx([0.5] * 3)
    with pytest.raises(TypeError, match=r"Gaussian or None for method='moments'.*Use method='draws'"):
        predict(net, torch.ones(3, 2), likelihood=Laplace(0.5), method="moments")


def test_bad_arguments_are_refused() -> None:
    for bad in (0.0, -1.0, math.inf, [[1.0]], torch.tensor([])):
        with pytest.raises(ValueError, match="Laplace: `scale` must be one positive number"):
            Laplace(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Laplace: `noise` must be 'fixed' or 'learned'; got 'map'"):
        Laplace(noise="map")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`y` must be of the output's shape \(3, 1\); got \(3,\)"):
        Laplace(1.0).log_prob(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match="one scale each"):
        Laplace(torch.tensor([1.0, 2.0])).log_prob(torch.zeros(3, 3), torch.zeros(3, 3))
