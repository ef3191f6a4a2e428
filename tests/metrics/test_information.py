"""Entropies and mutual information, against the sum over all masks of a small network."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, Categorical, Gaussian, Prediction, predict
from bayesdrop.metrics import expected_entropy, mutual_information, predictive_entropy, variation_ratio


def _network(p: float) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(BernoulliDropout(nn.Linear(4, 3), p=p), nn.Tanh(), nn.Linear(3, 3)).double()


def _all_masks(net: nn.Sequential, x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Logits (2^4, N, K) of every mask of the four inputs, and the probability of each mask."""
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.double)
    with torch.no_grad():
        linear = net[0].layer
        hidden = (x * (masks / (1 - p)).unsqueeze(1)) @ linear.weight.T + linear.bias
        logits = 2 * net[2](net[1](hidden))
    weights = ((1 - p) ** masks * p ** (1 - masks)).prod(-1)
    return logits, weights


@pytest.mark.parametrize("p", [0.5, 0.25])
def test_information_is_the_weighted_sum_over_all_masks(p: float) -> None:
    x = torch.randn(6, 4, dtype=torch.double)
    logits, weights = _all_masks(_network(p), x, p)
    probs = logits.softmax(-1).numpy()
    mean = (weights.numpy()[:, None, None] * probs).sum(0)
    total = stats.entropy(mean, axis=-1).mean()
    within = (weights.numpy()[:, None] * stats.entropy(probs, axis=-1)).sum(0).mean()
    votes = nn.functional.one_hot(logits.argmax(-1), 3) * weights[:, None, None]
    ratio = (1 - votes.sum(0).amax(-1)).mean()

    # At p = 1/4 a mask of k kept units is as probable as 3^k of the 4^4 equal parts of the whole.
    repeats = (weights * 4**4).round().long()
    prediction = Prediction.from_draws(logits.repeat_interleave(repeats, 0), Categorical())
    assert prediction.num_draws == 256
    assert float(predictive_entropy(prediction)) == pytest.approx(total, rel=1e-10)
    assert float(expected_entropy(prediction)) == pytest.approx(within, rel=1e-10)
    assert float(mutual_information(prediction)) == pytest.approx(total - within, rel=1e-8)
    assert float(variation_ratio(prediction)) == pytest.approx(float(ratio), rel=1e-10)
    assert total - within > 0.01


def test_expected_entropy_of_sampled_masks_is_within_its_standard_error() -> None:
    p, draws = 0.3, 3000
    net = _network(p)
    x = torch.randn(6, 4, dtype=torch.double)
    logits, weights = _all_masks(net, x, p)
    exact = (weights.unsqueeze(1) * (-(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1))).sum(0).mean()
    with torch.no_grad():
        net[2].weight.mul_(2)
        net[2].bias.mul_(2)
    prediction = predict(net, x, num_draws=draws, likelihood=Categorical(), keep_draws=True)
    log_probs = prediction.draws.log_softmax(-1)
    each = -(log_probs.exp() * log_probs).sum(-1).mean(1)  # a draw's entropy, averaged over rows
    value = expected_entropy(prediction)
    torch.testing.assert_close(value, each.mean())
    assert (value - exact).abs() <= 5 * each.std() / draws**0.5


def test_draws_that_agree_have_no_mutual_information() -> None:
    draws = torch.randn(1, 20, 3, dtype=torch.double).expand(8, -1, -1)
    prediction = Prediction.from_draws(draws, Categorical())
    assert float(mutual_information(prediction)) == pytest.approx(0, abs=1e-12)
    assert float(variation_ratio(prediction)) == 0
    torch.testing.assert_close(expected_entropy(prediction), predictive_entropy(prediction))


def test_sure_draws_that_disagree_have_nothing_but_mutual_information() -> None:
    draws = 1000 * torch.eye(4, dtype=torch.double).unsqueeze(1)
    prediction = Prediction.from_draws(draws, Categorical())
    assert float(mutual_information(prediction)) == pytest.approx(math.log(4), rel=1e-12)
    assert float(expected_entropy(prediction)) == 0
    assert float(variation_ratio(prediction)) == 0.75


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000), draws=st.integers(2, 6), classes=st.integers(2, 5), scale=st.floats(0, 50)
)
def test_information_lies_within_its_bounds(seed: int, draws: int, classes: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(draws, 5, classes, 2, dtype=torch.double, generator=generator)
    prediction = Prediction.from_draws(logits, Categorical(class_axis=1))
    entropy, information = float(predictive_entropy(prediction)), float(mutual_information(prediction))
    slack = 1e-12
    assert 0 <= information <= entropy + slack <= math.log(classes) + 2 * slack
    assert information <= math.log(draws) + slack
    assert float(expected_entropy(prediction)) == pytest.approx(entropy - information, abs=1e-9)
    assert 0 <= float(variation_ratio(prediction)) <= 1 - 1 / min(classes, draws) + slack


@pytest.mark.parametrize("metric", [mutual_information, variation_ratio])
def test_one_draw_has_no_disagreement_to_measure(metric: object) -> None:
    assert callable(metric)
    prediction = Prediction.from_draws(torch.zeros(1, 3, 2), Categorical())
    with pytest.raises(ValueError, match="`prediction` must be of at least 2 draws"):
        metric(prediction)


@pytest.mark.parametrize(
    "metric", [predictive_entropy, expected_entropy, mutual_information, variation_ratio]
)
def test_information_is_for_classes(metric: object) -> None:
    assert callable(metric)
    prediction = Prediction.from_draws(torch.zeros(2, 3, 2), Gaussian(1.0))
    with pytest.raises(TypeError, match=f"{metric.__name__}: `prediction` must be a prediction of classes"):
        metric(prediction)
