"""Mean and joint log-likelihood, against scipy, scikit-learn and sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.metrics import log_loss
from torch import nn

from bayesdrop import Categorical, Gaussian, HeteroscedasticGaussian, Multinomial, Prediction, predict
from bayesdrop.metrics import joint_log_likelihood, mean_log_likelihood


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def test_mean_log_likelihood_is_equation_8() -> None:
    draws, y, std = _normal(7, 30, 2), _normal(30, 2, seed=1), 0.6
    logs = stats.norm.logpdf(y.numpy(), draws.numpy(), std).sum(-1)
    expected = (special.logsumexp(logs, axis=0) - math.log(7)).mean()
    value = float(mean_log_likelihood(Prediction.from_draws(draws, Gaussian(std)), y))
    assert value == pytest.approx(expected, rel=1e-6)  # noise_std is kept in single precision


def test_joint_log_likelihood_multiplies_over_points_within_a_draw() -> None:
    output, y = _normal(7, 30, 2), _normal(30, 1, seed=1)
    mean, log_variance = output.numpy()[..., :1], output.numpy()[..., 1:]
    logs = stats.norm.logpdf(y.numpy(), mean, np.exp(0.5 * log_variance)).sum((1, 2))
    expected = (special.logsumexp(logs) - math.log(7)) / 30
    prediction = Prediction.from_draws(output, HeteroscedasticGaussian())
    assert float(joint_log_likelihood(prediction, y)) == pytest.approx(expected, rel=1e-12)


def test_mean_and_joint_agree_for_one_point_and_for_one_draw() -> None:
    for draws, y in ((_normal(7, 1, 2), _normal(1, 2)), (_normal(1, 30, 2), _normal(30, 2, seed=1))):
        prediction = Prediction.from_draws(draws, Gaussian(0.5))
        torch.testing.assert_close(joint_log_likelihood(prediction, y), mean_log_likelihood(prediction, y))


def test_mean_log_likelihood_of_labels_is_minus_the_log_loss() -> None:
    draws, y = 2 * _normal(6, 50, 4), torch.arange(50) % 4
    probs = draws.softmax(-1).mean(0)
    value = float(mean_log_likelihood(Prediction.from_draws(draws, Categorical()), y))
    assert value == pytest.approx(-log_loss(y.numpy(), probs.numpy()), rel=1e-12)


def test_every_label_of_an_image_is_a_point() -> None:
    draws, y = _normal(5, 3, 4, 2, 6), torch.randint(4, (3, 2, 6))
    flat = Prediction.from_draws(draws.movedim(2, -1).reshape(5, -1, 4), Categorical())
    image = Prediction.from_draws(draws, Categorical())
    for metric in (mean_log_likelihood, joint_log_likelihood):
        torch.testing.assert_close(metric(image, y), metric(flat, y.flatten()))


@pytest.mark.parametrize("void", [3, 4, 255, -100])
def test_void_labels_do_not_count(void: int) -> None:
    draws, y = _normal(5, 40, 4), torch.arange(40) % 4
    keep = torch.arange(40) % 3 > 0
    if void == 3:
        keep = y != 3
    expected = mean_log_likelihood(Prediction.from_draws(draws[:, keep], Categorical()), y[keep])
    y = torch.where(keep, y, void)
    value = mean_log_likelihood(Prediction.from_draws(draws, Categorical()), y, ignore_index=void)
    torch.testing.assert_close(value, expected)


def test_labels_scored_in_passing_need_no_kept_draws() -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    x, y = _normal(20, 2), torch.arange(20) % 3
    kept = predict(net, x, num_draws=9, likelihood=Categorical(), keep_draws=True)
    scored = predict(net, x, num_draws=9, likelihood=Categorical(), keep_draws=False, targets=y)
    torch.testing.assert_close(mean_log_likelihood(scored, y), mean_log_likelihood(kept, y))
    torch.testing.assert_close(joint_log_likelihood(scored, y), joint_log_likelihood(kept, y))
    other = 2 - y
    torch.testing.assert_close(mean_log_likelihood(scored, other), mean_log_likelihood(kept, other))


def test_counts_are_scored_as_the_multinomial_scores_them() -> None:
    draws, counts = _normal(5, 6, 3), torch.tensor([[1, 2, 0], [0, 0, 1], [4, 1, 1]] * 2)
    probs = draws.softmax(-1).numpy()
    logs = stats.multinomial.logpmf(counts.numpy(), counts.sum(1).numpy(), probs)
    expected = (special.logsumexp(logs, axis=0) - math.log(5)).mean()
    value = mean_log_likelihood(Prediction.from_draws(draws, Multinomial()), counts)
    assert float(value) == pytest.approx(expected, rel=1e-10)


def test_an_impossible_label_has_minus_infinite_log_likelihood() -> None:
    draws = torch.tensor([[[0.0, -math.inf]]]).expand(3, 2, 2)
    value = mean_log_likelihood(Prediction.from_draws(draws, Categorical()), torch.tensor([0, 1]))
    assert float(value) == -math.inf


def test_raw_outputs_have_no_likelihood() -> None:
    prediction = Prediction.from_draws(torch.zeros(3, 2, 1))
    for metric in (mean_log_likelihood, joint_log_likelihood):
        with pytest.raises(ValueError, match="`prediction` must be one with a likelihood"):
            metric(prediction, torch.zeros(2, 1))


def test_numbers_have_no_void() -> None:
    prediction = Prediction.from_draws(torch.zeros(3, 2, 1), Gaussian(1.0))
    with pytest.raises(ValueError, match="`ignore_index` must be None unless the targets are labels"):
        mean_log_likelihood(prediction, torch.zeros(2, 1), ignore_index=0)


def test_an_undefined_density_is_an_error_and_not_a_score() -> None:
    output = torch.zeros(2, 3, 2)
    output[:, 1, 1] = -math.inf  # no noise at all, at the very target
    prediction = Prediction.from_draws(output, HeteroscedasticGaussian())
    with pytest.raises(ValueError, match="must be a density at every target; got 'NaN at 1 of 3 points'"):
        mean_log_likelihood(prediction, torch.zeros(3, 1))
