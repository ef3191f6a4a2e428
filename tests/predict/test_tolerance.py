"""Draws that stop once the Monte Carlo error is small enough."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayesdrop import BernoulliDropout, Categorical, Gaussian, predict

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        BernoulliDropout(nn.Linear(6, 32), p=0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 2)
    )


@pytest.mark.parametrize("likelihood", [None, Gaussian(0.5), Categorical()])
@pytest.mark.parametrize("tolerance", [0.05, 0.2])
def test_the_error_is_below_the_tolerance_and_fewer_draws_are_used(
    likelihood: object, tolerance: float
) -> None:
    prediction = predict(network(), X, num_draws=5000, likelihood=likelihood, tolerance=tolerance)
    assert (prediction.standard_error <= tolerance * prediction.std * (1 + 1e-5)).all()
    assert 2 <= prediction.num_draws < 5000
    assert str(prediction.num_draws) in prediction.plan
    # The draws are the first ones of the same sequence.
    fixed = predict(network(), X, num_draws=prediction.num_draws, likelihood=likelihood)
    torch.testing.assert_close(prediction.mean, fixed.mean)
    torch.testing.assert_close(prediction.draws, fixed.draws)


def test_without_noise_of_its_own_the_number_of_draws_is_known() -> None:
    """The error is 1 / sqrt(T - 1) of the spread, looked at after one draw and at every multiple of 16."""
    assert predict(network(), X, num_draws=5000, tolerance=0.1).num_draws == 112


def test_num_draws_is_the_ceiling() -> None:
    assert predict(network(), X, num_draws=20, tolerance=0.001).num_draws == 20


def test_batches_stop_on_their_own() -> None:
    net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
    with torch.no_grad():
        net[0].bias.zero_()
    x = torch.cat([torch.full((4, 1), 1e-3), torch.full((4, 1), 100.0)])
    y = torch.zeros(8, 1)
    options = {"num_draws": 3000, "likelihood": Gaussian(1.0), "batch_size": 4, "tolerance": 0.05}
    prediction = predict(net, x, targets=y, **options)
    first, second = prediction.draws_used[:4], prediction.draws_used[4:]
    assert (first == first[0]).all()
    assert (second == second[0]).all()
    assert first[0] < second[0] == prediction.num_draws
    assert (prediction.standard_error <= 0.05 * prediction.std * (1 + 1e-5)).all()
    assert prediction.log_prob(y).shape == (8,)
    with pytest.raises(ValueError, match="not kept"):
        prediction.joint_log_prob(y)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.0, float("nan")])
def test_bad_tolerances_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"`tolerance` must be in \(0, 1\), or None"):
        predict(network(), X, tolerance=bad)
