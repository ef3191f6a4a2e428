"""CRPS by its definition: quadrature of the squared distance of distribution functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from bayesdrop import Categorical, Gaussian, HeteroscedasticGaussian, Prediction
from bayesdrop.metrics import crps
from bayesdrop.metrics.ranked import _by_pairs, _by_quadrature, half_mean_distance


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def _by_definition(mean: np.ndarray, std: np.ndarray, y: float) -> float:
    def below(v: float) -> float:
        return float(stats.norm.cdf(v, mean, std).mean() ** 2)

    def above(v: float) -> float:
        return float(stats.norm.sf(v, mean, std).mean() ** 2)

    # The integrand is flat far away, where adaptive quadrature over an infinite range sees nothing.
    reach = 10 * std.max()
    low, high = min(mean.min(), y) - reach, max(mean.max(), y) + reach
    options = {"epsabs": 1e-12, "limit": 400}
    left = integrate.quad(below, low, y, **options)[0]
    return left + integrate.quad(above, y, high, **options)[0]


def test_crps_of_a_mixture_is_the_integral_that_defines_it() -> None:
    output, y = _normal(6, 8, 4), 2 * _normal(8, 2, seed=1)
    mean, std = output[..., :2].numpy(), output[..., 2:].div(2).exp().numpy()
    expected = [
        _by_definition(mean[:, n, d], std[:, n, d], float(y[n, d])) for n in range(8) for d in range(2)
    ]
    value = crps(Prediction.from_draws(output, HeteroscedasticGaussian()), y)
    assert float(value) == pytest.approx(np.mean(expected), rel=1e-9)


def test_crps_of_one_gaussian_has_the_known_closed_form() -> None:
    y = _normal(20, 1)
    prediction = Prediction.from_draws(torch.zeros(3, 20, 1, dtype=torch.double), Gaussian(1.0))
    z = y.numpy()
    expected = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi)
    assert float(crps(prediction, y)) == pytest.approx(expected.mean(), rel=1e-12)


def test_crps_of_draws_without_noise_is_that_of_their_step_function() -> None:
    draws, y = _normal(9, 15, 1), _normal(15, 1, seed=1)
    values = draws[..., 0].numpy()
    away = np.abs(values - y[:, 0].numpy()).mean(0)
    apart = np.abs(values[:, None] - values[None]).mean((0, 1))
    assert float(crps(Prediction.from_draws(draws), y)) == pytest.approx((away - apart / 2).mean(), rel=1e-12)


def test_crps_of_a_point_is_its_absolute_error() -> None:
    prediction = Prediction.from_draws(torch.full((4, 1, 1), 2.0))
    assert float(crps(prediction, torch.tensor([[5.0]]))) == 3


def test_crps_tends_to_the_noiseless_one() -> None:
    draws, y = _normal(9, 15, 1), _normal(15, 1, seed=1)
    noiseless = crps(Prediction.from_draws(draws), y)
    torch.testing.assert_close(
        crps(Prediction.from_draws(draws, Gaussian(1e-7)), y), noiseless, rtol=0, atol=1e-6
    )


def test_a_component_without_noise_among_others_is_a_step() -> None:
    mean, std = np.array([0.0, 1.0]), np.array([1.0, 1e-9])
    output = torch.tensor([[[0.0, 0.0]], [[1.0, -math.inf]]], dtype=torch.double)
    value = crps(Prediction.from_draws(output, HeteroscedasticGaussian()), torch.tensor([[1.0]]))
    pair = math.sqrt(2 / math.pi) * math.exp(-0.5) + math.erf(1 / math.sqrt(2))  # E|N(1, 1)|
    expected = pair / 2 - (std[0] / math.sqrt(math.pi) + pair) / 4 + mean[0]
    assert float(value) == pytest.approx(expected, rel=1e-7)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(spread=st.floats(0, 20), ratio=st.floats(1, 5), seed=st.integers(0, 1000))
def test_quadrature_and_pairs_agree_to_the_last_digits(spread: float, ratio: float, seed: int) -> None:
    mean = spread * _normal(12, 3, seed=seed)
    std = 1 + (ratio - 1) * torch.rand(12, 3, dtype=torch.double)
    lower, upper = (mean - 9 * std).amin(0), (mean + 9 * std).amax(0)
    steps = math.ceil(float((2 * (upper - lower) / std.amin(0)).amax()))
    pairs = _by_pairs(mean, std)
    torch.testing.assert_close(_by_quadrature(mean, std, lower, upper, steps), pairs, rtol=1e-13, atol=0)


def test_many_draws_are_integrated_and_few_are_paired() -> None:
    mean, std = _normal(300, 2), torch.ones(300, 2, dtype=torch.double)
    value = half_mean_distance(mean, std)
    assert not torch.equal(value, _by_pairs(mean, std))
    torch.testing.assert_close(value, _by_pairs(mean, std), rtol=1e-13, atol=0)
    assert torch.equal(half_mean_distance(mean[:20], std[:20]), _by_pairs(mean[:20], std[:20]))


def test_blocks_of_columns_do_not_change_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    draws, y = _normal(5, 33, 2), _normal(33, 2, seed=1)
    prediction = Prediction.from_draws(draws, Gaussian(0.7))
    whole = crps(prediction, y)
    monkeypatch.setattr("bayesdrop.metrics.ranked._BLOCK", 5 * 7)
    torch.testing.assert_close(crps(prediction, y), whole)


def test_the_true_distribution_scores_best() -> None:
    y = _normal(4000, 1)
    scores = [
        float(crps(Prediction.from_draws(torch.zeros(2, 4000, 1, dtype=torch.double), Gaussian(std)), y))
        for std in (0.5, 1.0, 2.0)
    ]
    assert scores[1] < min(scores[0], scores[2])


def test_crps_says_what_it_needs() -> None:
    classes = Prediction.from_draws(torch.zeros(2, 3, 4), Categorical())
    with pytest.raises(TypeError, match="crps: `prediction` must be a prediction of numbers"):
        crps(classes, torch.zeros(3, dtype=torch.long))
