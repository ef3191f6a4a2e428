"""Noise that is set by rows which no network has seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from bayesdrop.stacked import Component, Encoder, Job, Mixture, Settings, TargetScale, draw_outputs, train
from bayesdrop.stacked.held_out import Calibration, HeldOut, calibrate, calibrated, held_out, mixture_log_prob
from bayesdrop.stacked.mixture import gamma_quantiles

ROWS = 3000


def part(errors: Tensor, log_variance: Tensor, rows: Tensor | None = None) -> HeldOut:
    """One draw that misses its targets by `errors` and says how much it expected to."""
    outputs = torch.stack([torch.zeros(len(errors)), log_variance], 1).unsqueeze(0)
    places = torch.arange(len(errors)) if rows is None else rows
    return HeldOut(places, outputs, errors.unsqueeze(1), "heteroscedastic", None)


def test_log_densities_are_those_of_scipy() -> None:
    errors, log_variance = torch.randn(20, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    one = part(errors, log_variance)
    change = Calibration(shift=0.3, slope=0.5, dof=4.0)
    scale = np.exp(0.5 * (0.5 * log_variance.numpy() + 0.3))
    expected = scipy.stats.t.logpdf(errors.numpy(), 4, 0, scale)
    np.testing.assert_allclose(one.log_prob(change), expected, rtol=1e-10)
    normal = scipy.stats.norm.logpdf(errors.numpy(), 0, scale)
    np.testing.assert_allclose(one.log_prob(Calibration(0.3, 0.5)), normal, rtol=1e-10)


@pytest.mark.parametrize(("shift", "slope"), [(0.0, 1.0), (1.2, 1.0), (-0.7, 0.5), (0.4, 0.0)])
def test_the_noise_that_made_the_errors_is_found(shift: float, slope: float) -> None:
    source = torch.Generator().manual_seed(0)
    said = torch.randn(ROWS, generator=source)
    errors = torch.randn(ROWS, generator=source) * (0.5 * (slope * said + shift)).exp()
    found = calibrate([part(errors, said)])
    # The log-variance of N normal errors is known to sqrt(2 / N), and the grid ends at 1 / 16.
    assert abs(found.shift - shift) < 5 * math.sqrt(2 / ROWS) + 1 / 16
    assert abs(found.slope - slope) < 5 * math.sqrt(2 / ROWS) + 1 / 16
    assert found.dof >= 16


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 50.0])
def test_a_noise_that_was_never_learned_is_found_however_far_it_is(scale: float) -> None:
    errors = scale * torch.randn(ROWS, 1, generator=torch.Generator().manual_seed(0))
    one = HeldOut(torch.arange(ROWS), torch.zeros(3, ROWS, 1), errors, "fixed", torch.zeros(1))
    found = calibrate([one], tails=False)
    assert abs(found.shift - 2 * math.log(scale)) < 5 * math.sqrt(2 / ROWS) + 1 / 16


def test_heavy_tails_are_found() -> None:
    errors = torch.from_numpy(scipy.stats.t.rvs(4, size=ROWS, random_state=0)).float()
    found = calibrate([part(errors, torch.zeros(ROWS))])
    assert 3 <= found.dof <= 8
    assert math.isinf(calibrate([part(errors, torch.zeros(ROWS))], tails=False).dof)


def test_a_row_is_scored_by_all_that_have_not_seen_it() -> None:
    first = part(torch.zeros(2), torch.zeros(2), torch.tensor([0, 1]))
    second = part(torch.zeros(2), torch.full((2,), 2.0), torch.tensor([1, 2]))
    scores = mixture_log_prob([first, second], [Calibration()] * 2, 4).exp()
    peak = 1 / math.sqrt(2 * math.pi)
    expected = [peak, peak * (1 + math.exp(-1)) / 2, peak * math.exp(-1), math.nan]
    torch.testing.assert_close(scores, torch.tensor(expected), equal_nan=True)


@pytest.mark.parametrize("noise", ["heteroscedastic", "learned", "classes", "labels"])
def test_a_calibrated_network_says_what_the_calibration_says(noise: str) -> None:
    x = torch.randn(40, 2)
    y = torch.randint(3, (40,)) if noise == "classes" else torch.randn(40, 2)
    if noise == "labels":
        y = (y > 0).float()
    settings = Settings(hidden=(6,), epochs=3, p=0.2, noise=noise, batch_size=16)  # type: ignore[arg-type]
    network = train([Job(x, y, settings)])[0]
    change = Calibration(shift=0.8, slope=0.6)
    before = held_out(network, x, y, torch.arange(40), num_draws=5, seed=0)
    after = held_out(calibrated(network, change), x, y, torch.arange(40), num_draws=5, seed=0)
    torch.testing.assert_close(after.log_prob(Calibration()), before.log_prob(change), rtol=1e-4, atol=1e-5)
    # Two changes after another are one.
    twice = calibrated(calibrated(network, change), Calibration(-0.2, 1.5))
    both = change.then(Calibration(-0.2, 1.5), noise)
    last = held_out(twice, x, y, torch.arange(40), num_draws=5, seed=0)
    torch.testing.assert_close(last.log_prob(Calibration()), before.log_prob(both), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noise", ["heteroscedastic", "classes"])
def test_a_mixture_of_one_width_is_calibrated_as_a_whole(noise: str) -> None:
    x = torch.randn(40, 2)
    y = torch.randint(3, (40,)) if noise == "classes" else torch.randn(40, 2)
    settings = Settings(hidden=(6,), method="mixture", epochs=3, p=0.2, noise=noise, batch_size=16)  # type: ignore[arg-type]
    network = train([Job(x, y, settings)])[0]
    change = Calibration(slope=0.6) if noise == "classes" else Calibration(shift=0.8)
    before = held_out(network, x, y, torch.arange(40), num_draws=5, seed=0)
    after = held_out(calibrated(network, change), x, y, torch.arange(40), num_draws=5, seed=0)
    torch.testing.assert_close(after.log_prob(Calibration()), before.log_prob(change), rtol=1e-4, atol=1e-5)
    if noise == "heteroscedastic":
        # Log-variances alone cannot be stretched: their noise has the width of that of the means.
        assert calibrate([before]).slope == 1
        with pytest.raises(ValueError, match=r"`calibration\.slope` must be 1"):
            calibrated(network, Calibration(slope=0.6))


def test_gamma_quantiles_are_those_of_scipy() -> None:
    for shape in (1.25, 2.0, 8.0):
        expected = scipy.stats.gamma.ppf((np.arange(50) + 0.5) / 50, shape)
        np.testing.assert_allclose(gamma_quantiles(shape, 50), expected, rtol=1e-9)


def mixture(dof: float, networks: int = 2) -> Mixture:
    """Networks without dropout, so that only the noise differs from draw to draw."""
    x = torch.randn(30, 1)
    settings = Settings(hidden=(3,), epochs=1, p=0.0, batch_size=8)
    network = train([Job(x, torch.randn(30, 1), settings)])[0]
    encoder, target = (
        Encoder.of(np.random.default_rng(0).normal(size=(30, 1))),
        TargetScale.of(np.arange(9.0)[:, None]),
    )
    return Mixture((Component(network, 0),) * networks, {0: encoder}, target, 4000, dof)


def test_draws_of_many_scales_are_a_student_t() -> None:
    model = mixture(4.0)
    x = np.array([[0.3]])
    assert model.target is not None
    output = next(
        draw_outputs(model.components[0].network, next(iter(model.encoders.values()))(x), num_draws=1)
    )
    mean, log_variance = model.target.outputs(output, heteroscedastic=True)[0, 0].tolist()
    scale = math.exp(0.5 * log_variance)
    prediction = model.predict(x)
    for z in (0.0, 1.0, -3.0, 8.0):
        y = torch.tensor([[mean + z * scale]], dtype=torch.float64)
        expected = scipy.stats.t.logpdf(z, 4) - math.log(scale)
        # Evenly spaced quantiles leave out the last 1 / 8000 of the tail.
        assert abs(float(prediction.log_prob(y)) - expected) < 0.02
    lower, upper = prediction.interval(0.95)
    ends = mean + scale * np.array(scipy.stats.t.interval(0.95, 4))
    np.testing.assert_allclose([float(lower), float(upper)], ends, rtol=0.02)


def test_draws_are_shared_out_evenly_and_scored_in_passing() -> None:
    model = mixture(math.inf, networks=3)
    assert model.counts(10) == [4, 3, 3]
    x, y = np.array([[0.3], [1.0]]), np.array([[2.0], [5.0]])
    kept = model.predict(x, num_draws=10).log_prob(torch.from_numpy(y))
    torch.testing.assert_close(model.log_prob(x, y, num_draws=10), kept)


@pytest.mark.parametrize("offset", [0.0, 0.24, 0.37, -0.2, 1.13])
def test_the_shift_is_found_to_the_last_step_of_the_search(offset: float) -> None:
    """Of Gaussian errors the best shift of the log-variances has a closed form; steps end at 1 / 16."""
    source = torch.Generator().manual_seed(0)
    said = torch.randn(ROWS, generator=source)
    errors = torch.randn(ROWS, generator=source) * (0.5 * said).exp()
    errors = errors * (offset - (errors.square() * (-said).exp()).mean().log()).mul(0.5).exp()
    found = calibrate([replace(part(errors, said), one_width=True)], tails=False)
    assert abs(found.shift - offset) <= 1 / 32 + 1e-6


def test_no_change_a_last_step_away_is_better() -> None:
    source = torch.Generator().manual_seed(1)
    said = torch.randn(ROWS, generator=source)
    errors = torch.randn(ROWS, generator=source) * (0.5 * (0.62 * said + 0.31)).exp()
    one = part(errors, said)
    found = calibrate([one], tails=False)

    def value(shift: float, slope: float) -> float:
        return float(one.log_prob(Calibration(shift, slope)).mean())

    best = value(found.shift, found.slope)
    for shift, slope in ((1 / 16, 0), (-1 / 16, 0), (0, 1 / 32), (0, -1 / 32)):
        assert value(found.shift + shift, found.slope + slope) <= best
