"""Prediction against closed forms, scipy, and all masks; kept draws against statistics in passing."""

from __future__ import annotations

import dataclasses
import math
from itertools import product

import pytest
import torch
from scipy import optimize, stats
from torch import Tensor, nn

from bayesdrop import (
    BernoulliDropout,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Multinomial,
    Prediction,
    predict,
)
from bayesdrop.likelihoods import NumberLikelihood, Warp, WarpedGaussian
from bayesdrop.predict.statistics import RunningLogMeanExp, RunningMoments


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_moments_of_raw_outputs_are_those_of_the_draws() -> None:
    draws = normal(50, 6, 2)
    prediction = Prediction.from_draws(draws)
    torch.testing.assert_close(prediction.mean, draws.mean(0))
    torch.testing.assert_close(prediction.epistemic, draws.var(0, correction=0))
    torch.testing.assert_close(prediction.variance, draws.var(0, correction=0))
    torch.testing.assert_close(prediction.std, draws.std(0, correction=0))
    torch.testing.assert_close(prediction.standard_error, draws.std(0) / 50**0.5)
    assert not prediction.aleatoric.any()
    assert torch.equal(prediction.draws, draws)
    assert len(prediction) == 6
    assert repr(prediction) == "Prediction((6, 2), raw outputs, 50 draws, kept)"


def test_variance_is_the_law_of_total_variance() -> None:
    draws = normal(40, 5, 4)
    fixed = Prediction.from_draws(draws, Gaussian(0.5))
    torch.testing.assert_close(fixed.variance, draws.var(0, correction=0) + 0.25)
    predicted = Prediction.from_draws(draws, HeteroscedasticGaussian())
    mean, variance = draws[..., :2], draws[..., 2:].exp()
    torch.testing.assert_close(predicted.mean, mean.mean(0))
    torch.testing.assert_close(predicted.epistemic, mean.var(0, correction=0))
    torch.testing.assert_close(predicted.aleatoric, variance.mean(0))
    torch.testing.assert_close(predicted.variance, predicted.epistemic + predicted.aleatoric)
    classes = Prediction.from_draws(draws, Categorical())
    # An indicator of mean p has variance p (1 - p), whatever it is made of.
    torch.testing.assert_close(classes.variance, classes.probs * (1 - classes.probs))


def test_log_prob_is_the_log_of_the_mean_density() -> None:
    draws, y = normal(30, 5, 2), normal(5, 2, seed=1)
    prediction = Prediction.from_draws(draws, Gaussian(0.5))
    density = torch.distributions.Normal(draws, 0.5).log_prob(y).sum(-1).exp()
    torch.testing.assert_close(prediction.log_prob(y), density.mean(0).log())
    joint = density.log().sum(1).exp().mean().log()
    torch.testing.assert_close(prediction.joint_log_prob(y), joint)


def test_log_prob_far_from_all_draws_does_not_underflow() -> None:
    draws = torch.zeros(10, 1, 1)
    value = Prediction.from_draws(draws, Gaussian(1e-3)).log_prob(torch.full((1, 1), 100.0))
    exact = stats.norm(0, 1e-3).logpdf(100.0)
    assert value.item() == pytest.approx(exact, rel=1e-5)
    logits = torch.tensor([[[0.0, 500.0]]]).expand(4, 1, 2)
    assert Prediction.from_draws(logits, Categorical()).log_prob(torch.tensor([0])).item() == -500.0


def test_class_measures_are_their_definitions() -> None:
    draws = 2 * normal(25, 6, 3)
    prediction = Prediction.from_draws(draws, Categorical())
    probs = draws.softmax(-1)
    mean = probs.mean(0)
    total = -(mean * mean.log()).sum(-1)
    expected = -(probs * probs.log()).sum(-1).mean(0)
    torch.testing.assert_close(prediction.probs, mean)
    torch.testing.assert_close(prediction.entropy, total)
    torch.testing.assert_close(prediction.expected_entropy, expected)
    torch.testing.assert_close(prediction.mutual_information, total - expected)
    votes = torch.nn.functional.one_hot(draws.argmax(-1), 3).sum(0).amax(-1)
    torch.testing.assert_close(prediction.variation_ratio, 1 - votes / 25.0, check_dtype=False)
    assert torch.equal(prediction.label, mean.argmax(-1))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(prediction.log_prob(y), mean.gather(1, y.unsqueeze(1)).squeeze(1).log())


def test_class_measures_of_a_dropout_network_are_the_sums_over_all_masks() -> None:
    layer = BernoulliDropout(nn.Linear(6, 3), p=0.4).double()
    with torch.no_grad():
        layer.layer.weight.mul_(4)
    x = normal(4, 6)
    masks = torch.tensor(list(product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    weight = torch.where(masks > 0, 0.6, 0.4).prod(-1).reshape(-1, 1, 1)
    with torch.no_grad():
        probs = torch.stack([layer.layer(x * z / 0.6).softmax(-1) for z in masks])
    mean = (weight * probs).sum(0)
    entropies = -(probs * probs.log()).sum(-1)
    expected = (weight[..., 0] * entropies).sum(0)
    spread = (weight[..., 0] * (entropies - expected).square()).sum(0).sqrt()
    num_draws = 4000
    prediction = predict(layer, x, num_draws=num_draws, likelihood=Categorical(), keep_draws=False)
    assert ((prediction.probs - mean).abs() <= 5 * prediction.standard_error).all()
    assert ((prediction.expected_entropy - expected).abs() <= 5 * spread / num_draws**0.5).all()
    total = -(mean * mean.log()).sum(-1)
    # The entropy's error: its gradient -(log p + 1) times that of the mean, and the curvature 1 / p.
    slope = ((probs - mean) * (mean.log() + 1)).sum(-1)
    first_order = ((weight[..., 0] * slope.square()).sum(0) / num_draws).sqrt()
    curvature = 0.5 * ((weight * (probs - mean).square()).sum(0) / mean).sum(-1) / num_draws
    assert ((prediction.entropy - total).abs() <= 5 * first_order + 25 * curvature).all()
    winners = torch.nn.functional.one_hot(probs.argmax(-1), 3)
    share = (weight * winners).sum(0)
    ratio = 1 - share.amax(-1)
    assert (
        (prediction.variation_ratio - ratio).abs() <= 5 * (ratio * (1 - ratio) / num_draws).sqrt() + 1e-9
    ).all()


def test_positions_keep_their_place() -> None:
    draws = normal(9, 2, 4, 3, 5)
    prediction = Prediction.from_draws(draws, Categorical())
    assert prediction.probs.shape == (2, 4, 3, 5)
    assert prediction.entropy.shape == prediction.label.shape == prediction.variation_ratio.shape == (2, 3, 5)
    last = Prediction.from_draws(draws.movedim(2, -1), Categorical(class_axis=-1))
    torch.testing.assert_close(last.mutual_information, prediction.mutual_information)
    y = torch.randint(4, (2, 3, 5))
    torch.testing.assert_close(last.log_prob(y), prediction.log_prob(y))


@pytest.mark.parametrize("q", [0.01, 0.3, 0.5, 0.975])
def test_quantiles_invert_the_distribution_of_the_mixture(q: float) -> None:
    draws = 3 * normal(12, 4, 2)
    for likelihood, mean, std in (
        (Gaussian(0.2), draws, torch.full_like(draws, 0.2)),
        (HeteroscedasticGaussian(), draws[..., :1], (0.5 * draws[..., 1:]).exp()),
    ):
        quantile = Prediction.from_draws(draws, likelihood).quantile(q)
        for row, column in product(range(4), range(mean.shape[-1])):
            m, s = mean[:, row, column].numpy(), std[:, row, column].numpy()
            exact = optimize.brentq(
                lambda v, m=m, s=s: stats.norm.cdf(v, m, s).mean() - q, -100, 100, xtol=1e-12
            )
            assert quantile[row, column].item() == pytest.approx(exact, abs=1e-6)


def test_quantiles_without_a_likelihood_are_those_of_the_draws() -> None:
    draws = normal(101, 3, 1)
    torch.testing.assert_close(Prediction.from_draws(draws).quantile(0.5), draws.median(0).values)
    assert Prediction.from_draws(draws).quantile([0.1, 0.9]).shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("likelihood", "ends"),
    [
        (Gaussian(0.7), (-4, 5)),
        (WarpedGaussian(Warp(whole=True)), (-4, 5)),
        (WarpedGaussian(Warp(low=0.0, high=3.0)), (0, 3)),
        (WarpedGaussian(Warp("asinh", low=0.0, whole=True)), (0, 5)),
    ],
    ids=["normal", "whole", "bounded", "counts"],
)
def test_the_central_level_is_where_an_interval_begins_to_hold(
    likelihood: NumberLikelihood, ends: tuple[int, int]
) -> None:
    prediction = Prediction.from_draws(2 * normal(20, 30, 2), likelihood)
    y = torch.linspace(*ends, 30)[:, None].round().expand(prediction.mean.shape)
    found = prediction.central_level(y)
    assert torch.equal(prediction.central_level(y.long()), found), "whole numbers of any type"
    tried = 0
    for row, column in product(range(30), range(y.shape[1])):
        level = float(found[row, column])
        for shift, holds in ((-1e-4, False), (1e-4, True)):
            if 0 < level + shift < 1 and (holds or level > 0):
                lower, upper = (end[row, column] for end in prediction.interval(level + shift))
                assert bool(lower <= y[row, column] <= upper) is holds
                tried += 1
    assert tried >= 30


def test_intervals_hold_their_share_of_samples() -> None:
    prediction = Prediction.from_draws(2 * normal(20, 3, 1), Gaussian(0.7))
    lower, upper = prediction.interval(0.9)
    sample = prediction.sample(5000)
    inside = ((sample >= lower) & (sample <= upper)).double().mean(0)
    assert ((inside - 0.9).abs() <= 5 * (0.09 / 5000) ** 0.5).all()
    lowest, highest = prediction.interval()
    assert (lowest < lower).all()
    assert (highest > upper).all()


def test_samples_have_the_predictive_moments() -> None:
    prediction = Prediction.from_draws(normal(20, 3, 2), Gaussian(0.5))
    sample = prediction.sample(6000)
    assert sample.shape == (6000, 3, 2)
    assert ((sample.mean(0) - prediction.mean).abs() <= 5 * prediction.std / 6000**0.5).all()
    square = (sample - sample.mean(0)).square()
    assert ((square.mean(0) - prediction.variance).abs() <= 5 * square.std(0) / 6000**0.5).all()
    assert torch.equal(prediction.sample(5, seed=1), prediction.sample(5, seed=1))
    labels = Prediction.from_draws(normal(20, 3, 4), Categorical()).sample(10)
    assert labels.shape == (10, 3)


def test_a_prediction_is_frozen_and_does_not_follow_training() -> None:
    likelihood = Gaussian()
    prediction = Prediction.from_draws(normal(5, 3, 1), likelihood)
    before = prediction.log_prob(torch.zeros(3, 1, dtype=torch.float64))
    with torch.no_grad():
        likelihood.log_noise_std.fill_(3.0)
    assert torch.equal(prediction.log_prob(torch.zeros(3, 1, dtype=torch.float64)), before)
    with pytest.raises(dataclasses.FrozenInstanceError):
        prediction.mean = torch.zeros(3, 1)


def test_welford_does_not_cancel() -> None:
    values = 1e4 + 1e-2 * torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    running = RunningMoments()
    for value in values:
        running.update(value)
    exact = values.double().var(0, correction=0)
    torch.testing.assert_close(running.variance.double(), exact, rtol=0.1, atol=0)
    naive = values.square().mean(0) - values.mean(0).square()
    assert ((naive.double() - exact).abs() > exact).any()


def test_running_log_mean_exp_does_not_overflow() -> None:
    values = torch.tensor([-1000.0, -1001.0, 900.0, 899.0])
    running = RunningLogMeanExp()
    for value in values:
        running.update(value)
    torch.testing.assert_close(running.value, torch.logsumexp(values, 0) - math.log(4))


def test_one_draw_has_no_spread_to_report() -> None:
    prediction = Prediction.from_draws(normal(1, 3, 2), Categorical())
    assert torch.isfinite(prediction.probs).all()
    assert prediction.epistemic.isnan().all()
    assert prediction.standard_error.isnan().all()
    assert prediction.mutual_information.isnan().all()
    assert prediction.variation_ratio.isnan().all()


def test_what_was_not_kept_says_how_to_keep_it() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    prediction = predict(net, torch.ones(4, 3), num_draws=5, likelihood=Gaussian(1.0), keep_draws=False)
    for use in (
        lambda: prediction.draws,
        lambda: prediction.quantile(0.5),
        lambda: prediction.sample(3),
        lambda: prediction.log_prob(torch.zeros(4, 2)),
        lambda: prediction.joint_log_prob(torch.zeros(4, 2)),
    ):
        with pytest.raises(ValueError, match="keep_draws=True"):
            use()


def test_what_does_not_fit_the_likelihood_is_refused() -> None:
    raw = Prediction.from_draws(normal(5, 3, 2))
    classes = Prediction.from_draws(normal(5, 3, 2), Categorical())
    with pytest.raises(ValueError, match="needs a likelihood"):
        raw.log_prob(torch.zeros(3, 2))
    with pytest.raises(
        AttributeError, match=r"is for classes; call predict\(..., likelihood=Categorical\(\)\)"
    ):
        _ = raw.probs
    assert not hasattr(raw, "entropy")
    with pytest.raises(TypeError, match="a Categorical has classes, not quantiles"):
        classes.quantile(0.5)
    for bad in (0.0, 1.0, 2.0, [0.5, -0.1]):
        with pytest.raises(ValueError, match=r"`q` must be in \(0, 1\)"):
            raw.quantile(bad)
    with pytest.raises(ValueError, match=r"`level` must be in \(0, 1\)"):
        raw.interval(95)
    with pytest.raises(ValueError, match="`n` must be a positive int"):
        raw.sample(0)
    with pytest.raises(ValueError, match=r"`y` must be 3 rows; got \(4,\)"):
        classes.log_prob(torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="`y` must be finite"):
        Prediction.from_draws(normal(5, 3, 2), Gaussian(1.0)).log_prob(torch.full((3, 2), math.nan))
    with pytest.raises(ValueError, match="`draws` must be"):
        Prediction.from_draws(torch.zeros(3))
    with pytest.raises(TypeError, match="of a floating dtype"):
        Prediction.from_draws(torch.zeros(3, 2, 1, dtype=torch.long))


def test_multinomial_predictions_score_counts() -> None:
    draws, counts = normal(7, 4, 3), torch.tensor([[1, 0, 2]] * 4)
    prediction = Prediction.from_draws(draws, Multinomial())
    log_prob = torch.stack([Multinomial().log_prob(output, counts) for output in draws])
    torch.testing.assert_close(prediction.log_prob(counts), log_prob.logsumexp(0) - math.log(7))
    assert prediction.entropy.shape == (4,)


@pytest.mark.parametrize("q", [1e-12, 1 - 1e-9])
def test_quantiles_far_out_are_those_of_the_mixture_in_single_precision_too(q: float) -> None:
    """Single precision has no number between 1 - 6e-8 and 1: such quantiles were infinite."""
    draws = torch.tensor([[[0.0]], [[1.0]]])
    found = Prediction.from_draws(draws, Gaussian(0.5)).quantile(q)
    means = draws.double().flatten().numpy()
    exact = optimize.brentq(lambda v: stats.norm.cdf(v, means, 0.5).mean() - q, -9, 9, xtol=1e-12)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact, rel=1e-5)
