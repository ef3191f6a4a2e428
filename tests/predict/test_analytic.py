"""method="moments": a prediction without draws."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import nn

from bayesdrop import BernoulliDropout, Categorical, Gaussian, HeteroscedasticGaussian, NoRandomness, predict

X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 40), nn.Tanh(), BernoulliDropout(nn.Linear(40, outputs), p=0.3)
    ).double()


def test_one_masked_layer_is_exact() -> None:
    net = network(2)
    analytic = predict(net, X, method="moments")
    drawn = predict(net, X, num_draws=4000)
    h = net[1](net[0](X))
    exact = 0.3 / 0.7 * h.square() @ net[2].layer.weight.square().T
    torch.testing.assert_close(analytic.mean, net.eval()(X))
    torch.testing.assert_close(analytic.epistemic, exact)
    assert ((drawn.mean - analytic.mean).abs() <= 5 * drawn.standard_error).all()
    assert not analytic.standard_error.any()
    assert analytic.num_draws == 0
    assert "moments" in analytic.plan
    torch.testing.assert_close(predict(net, X, method="moments", seed=5, batch_size=2).mean, analytic.mean)


def test_likelihoods_add_their_noise() -> None:
    raw = predict(network(2), X, method="moments")
    fixed = predict(network(2), X, method="moments", likelihood=Gaussian(0.5))
    torch.testing.assert_close(fixed.variance, raw.epistemic + 0.25)
    own = predict(network(2), X, method="moments", likelihood=HeteroscedasticGaussian())
    torch.testing.assert_close(own.mean, raw.mean[:, :1])
    torch.testing.assert_close(own.epistemic, raw.epistemic[:, :1])
    # The mean of a log-normal variable.
    scale = raw.epistemic[:, 1:].sqrt()
    exact = torch.from_numpy(stats.lognorm(s=scale.detach(), scale=raw.mean[:, 1:].detach().exp()).mean())
    torch.testing.assert_close(own.aleatoric, exact)


def test_the_prediction_is_gaussian() -> None:
    prediction = predict(network(2), X, method="moments", likelihood=Gaussian(0.5))
    mean, std = prediction.mean.numpy(), prediction.std.numpy()
    y = torch.zeros(9, 2, dtype=torch.float64)
    expected = torch.from_numpy(stats.norm(mean, std).logpdf(0).sum(1))
    torch.testing.assert_close(prediction.log_prob(y), expected)
    lower, upper = prediction.interval(0.9)
    torch.testing.assert_close(lower, torch.from_numpy(stats.norm(mean, std).ppf(0.05)))
    torch.testing.assert_close(upper, torch.from_numpy(stats.norm(mean, std).ppf(0.95)))
    torch.testing.assert_close(prediction.quantile(0.5), prediction.mean)
    sample = prediction.sample(4000)
    assert ((sample.mean(0) - prediction.mean).abs() <= 5 * prediction.std / 4000**0.5).all()
    with pytest.raises(ValueError, match="not kept"):
        _ = prediction.draws


def test_what_has_no_closed_form_is_refused() -> None:
    with pytest.raises(TypeError, match="must be Gaussian or None for method='moments'; got Categorical"):
        predict(network(2), X, method="moments", likelihood=Categorical())
    with pytest.raises(ValueError, match="`method` must be 'draws' or 'moments'"):
        predict(network(2), X, method="guess")
    with pytest.raises(NoRandomness):
        predict(nn.Linear(4, 2).double(), X, method="moments")
    softmax = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3), nn.Softmax(-1)).double()
    with pytest.raises(ValueError, match="softmax"):
        predict(softmax, X, method="moments")
