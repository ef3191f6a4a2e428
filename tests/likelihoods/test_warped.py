"""A Gaussian behind a map: densities integrate to one, whole numbers add up to one, bounds hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from bayesdrop.likelihoods import Warp, WarpedGaussian
from bayesdrop.metrics import crps
from bayesdrop.predict import Prediction

MAPS = [
    Warp("asinh", centre=1.0, scale=2.0),
    Warp("asinh", centre=0.0, scale=0.5, low=0.0, high=90.0),
    Warp("logit", low=0.0, high=1.0),
    Warp(low=0.0),
]
COUNTS = [
    Warp(whole=True),
    Warp(whole=True, low=0.0),
    Warp("asinh", scale=0.5, low=0.0, high=80.0, whole=True),
    Warp("logit", low=1.0, high=5.0, whole=True),
]


def outputs(draws: int = 3, rows: int = 2, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    mean = 0.5 * torch.randn(draws, rows, 1, generator=source, dtype=torch.float64) + 0.3
    return torch.cat([mean, 0.3 * torch.randn(mean.shape, generator=source, dtype=torch.float64) - 1], -1)


def sampled(output: Tensor, warp: Warp, each: int) -> Tensor:
    """(T * each, N) samples of a mixture, as many of each draw, in random order."""
    source = torch.Generator().manual_seed(1)
    repeated = output.repeat_interleave(each, 0)
    made = WarpedGaussian(warp).sample(repeated, source)[..., 0]
    return made[torch.randperm(len(made), generator=source)]


@pytest.mark.parametrize("warp", [*MAPS, *COUNTS], ids=str)
def test_a_map_has_an_inverse_and_a_slope(warp: Warp) -> None:
    y = torch.linspace(max(warp.low, -3) + 0.01, min(warp.high, 5) - 0.01, 40, dtype=torch.float64)
    torch.testing.assert_close(warp.inverse(warp(y)), y, rtol=1e-9, atol=1e-9)
    step = 1e-6
    slope = (warp(y + step) - warp(y - step)) / (2 * step)
    torch.testing.assert_close(warp.log_slope(y), slope.log(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("warp", MAPS, ids=str)
def test_densities_of_numbers_integrate_to_one(warp: Warp) -> None:
    output = outputs()[0, :1]
    # Over g, evenly: no part of y is left out.
    z = torch.linspace(-12, 12, 20001, dtype=torch.float64)
    y = warp.inverse(z)
    density = WarpedGaussian(warp).log_prob(output.expand(len(z), -1), y[:, None]).exp()
    assert abs(float(torch.trapezoid(density, y)) - 1) < 1e-4


def test_a_logarithm_of_a_gaussian_is_log_normal() -> None:
    # Far from its centre asinh is the logarithm of twice its argument.
    warp = Warp("asinh", scale=1e-9)
    y = np.array([0.5, 2.0, 30.0])
    output = torch.tensor([[1.3 + math.log(2 / 1e-9), 2 * math.log(0.6)]], dtype=torch.float64).expand(3, -1)
    found = WarpedGaussian(warp).log_prob(output, torch.from_numpy(y)[:, None])
    np.testing.assert_allclose(found, scipy.stats.lognorm.logpdf(y, 0.6, scale=math.exp(1.3)), rtol=1e-9)
    mean, variance = WarpedGaussian(warp).moments(output[:1])
    law = scipy.stats.lognorm(0.6, scale=math.exp(1.3))
    assert abs(float(mean) / law.mean() - 1) < 1e-6
    assert abs(float(variance) / law.var() - 1) < 1e-4


@pytest.mark.parametrize("warp", COUNTS, ids=str)
def test_whole_numbers_have_probabilities_that_add_up_to_one(warp: Warp) -> None:
    prediction = Prediction.from_draws(outputs(), WarpedGaussian(warp))
    values = range(-30, 90)
    logs = torch.stack(
        [prediction.log_prob(torch.full((2, 1), float(k), dtype=torch.float64)) for k in values]
    )
    probs = logs.exp()
    torch.testing.assert_close(probs.sum(0), torch.ones(2, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    numbers = torch.tensor(list(values), dtype=torch.float64)[:, None]
    mean = (numbers * probs).sum(0)
    torch.testing.assert_close(prediction.mean[:, 0], mean, rtol=1e-6, atol=1e-6)
    variance = ((numbers - mean).square() * probs).sum(0)
    torch.testing.assert_close(prediction.variance[:, 0], variance, rtol=1e-5, atol=1e-6)
    # Any number of a cell has the density of the cell.
    inside = prediction.log_prob(torch.full((2, 1), 2.3, dtype=torch.float64))
    torch.testing.assert_close(inside, logs[32])


def test_far_cells_keep_their_digits() -> None:
    output = torch.tensor([[0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    found = WarpedGaussian(Warp(whole=True)).log_prob(output, torch.tensor([[20.0], [-20.0]]).double())
    expected = scipy.stats.norm.logsf(19.5) + math.log1p(
        -math.exp(scipy.stats.norm.logsf(20.5) - scipy.stats.norm.logsf(19.5))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("warp", [*MAPS, *COUNTS], ids=str)
def test_predictions_stay_within_the_bounds_and_agree_with_samples(warp: Warp) -> None:
    prediction = Prediction.from_draws(outputs(), WarpedGaussian(warp))
    samples = sampled(outputs(), warp, 15_000)
    quantiles = prediction.quantile([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])[..., 0]
    for values in (samples, quantiles, prediction.mean):
        assert float(values.min()) >= warp.low
        assert float(values.max()) <= warp.high
    if warp.whole:
        assert bool((quantiles == quantiles.round()).all())
    error = samples.std(0) / math.sqrt(len(samples))
    assert bool(((samples.mean(0) - prediction.mean[:, 0]).abs() < 5 * error + 1e-6).all())
    for level, ends in zip((0.1, 0.5, 0.9), quantiles[1:4], strict=True):
        # The smallest value with at least so much probability at or below it.
        below = (samples <= ends + 1e-12).double().mean(0)
        assert bool((below > level - 0.015).all())
        assert bool(((samples < ends - 1e-12).double().mean(0) < level + 0.015).all())


@pytest.mark.parametrize("warp", [*MAPS, *COUNTS], ids=str)
def test_the_ranked_score_is_that_of_samples(warp: Warp) -> None:
    prediction = Prediction.from_draws(outputs(), WarpedGaussian(warp))
    y = torch.tensor([[1.0], [2.0]]).double() if warp.whole else torch.tensor([[0.2], [0.7]]).double()
    samples = sampled(outputs(), warp, 20_000)
    away = (samples - y[:, 0]).abs()
    apart = (samples[:30_000] - samples[30_000:]).abs()
    expected = float(away.mean() - apart.mean() / 2)
    error = float(away.std() / 200 + apart.std() / 200)
    assert abs(float(crps(prediction, y)) - expected) < 4 * error + 0.01 * expected


def test_a_bound_that_a_row_sits_on_is_inside_its_interval() -> None:
    prediction = Prediction.from_draws(outputs() - torch.tensor([1.0, 0.0]), WarpedGaussian(Warp(low=0.0)))
    lower, _ = prediction.interval(0.9)
    assert bool((lower == 0).all())


def test_maps_that_make_no_sense_are_told_of() -> None:
    with pytest.raises(ValueError, match="`kind` must be 'none', 'asinh' or 'logit'"):
        Warp("log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`scale` must be above 0"):
        Warp("asinh", scale=0.0)
    with pytest.raises(ValueError, match="`low` must be below high"):
        Warp(low=1.0, high=1.0)
    with pytest.raises(ValueError, match="`low` must be finite"):
        Warp("logit", low=0.0)
    assert Warp.from_dict(Warp("logit", low=0.0, high=1.0).as_dict()) == Warp("logit", low=0.0, high=1.0)
