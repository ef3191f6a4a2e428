"""Likelihoods against torch.distributions, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import distributions

from bayesdrop import Categorical, Gaussian, HeteroscedasticGaussian, Multinomial


def test_gaussian_log_prob_is_torchs_summed_over_outputs() -> None:
    output, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    std = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    for noise in (torch.tensor(0.3, dtype=torch.float64), std):
        likelihood = Gaussian(noise).double()
        exact = distributions.Normal(output, noise).log_prob(y).sum(1)
        torch.testing.assert_close(likelihood.log_prob(output, y), exact, rtol=1e-6, atol=1e-6)
    assert Gaussian(0.3).log_prob(output[:, 0], y[:, 0]).shape == (6,)


def test_gaussian_moments_samples_and_distribution_function() -> None:
    output = torch.randn(4, 2, dtype=torch.float64)
    likelihood = Gaussian(0.5)
    mean, variance = likelihood.moments(output)
    assert torch.equal(mean, output)
    torch.testing.assert_close(variance, torch.full_like(output, 0.25))
    generator = torch.Generator().manual_seed(0)
    sample = torch.stack([likelihood.sample(output, generator) for _ in range(4000)])
    assert ((sample.mean(0) - output).abs() < 5 * 0.5 / 4000**0.5).all()
    assert ((sample.var(0) - 0.25).abs() < 5 * 0.25 * (2 / 4000) ** 0.5).all()
    exact = distributions.Normal(output, 0.5).cdf(torch.zeros(4, 2, dtype=torch.float64))
    torch.testing.assert_close(likelihood.cdf(output, torch.zeros_like(output)), exact)


def test_the_kind_of_noise_decides_what_is_a_parameter() -> None:
    assert Gaussian(0.1).noise == "fixed"
    assert not list(Gaussian(0.1).parameters())
    assert Gaussian().noise == "learned"
    assert len(list(Gaussian().parameters())) == 1
    assert not list(Gaussian(noise="map").parameters())
    assert Gaussian(0.1, noise="learned").noise_std.item() == pytest.approx(0.1)
    assert Gaussian(0.1).precision.item() == pytest.approx(100)


def test_the_m_step_is_the_mode_of_the_posterior_of_the_precision() -> None:
    """Against a search over Gamma(a, b) prior times the likelihood of residuals."""
    residuals = torch.randn(40, dtype=torch.float64) * 0.3
    likelihood = Gaussian(noise="map", prior_shape=2.0, prior_rate=0.5).double()
    likelihood.m_step(residuals.square().sum(), 40)
    grid = torch.linspace(0.5, 40, 200_001, dtype=torch.float64)
    log_posterior = (
        distributions.Gamma(*torch.tensor([2.0, 0.5]).double()).log_prob(grid)
        + 20 * grid.log()
        - 0.5 * grid * residuals.square().sum()
    )
    assert likelihood.precision.item() == pytest.approx(grid[log_posterior.argmax()].item(), abs=2e-4)


def test_the_m_step_with_the_papers_prior() -> None:
    likelihood = Gaussian(noise="map").double()
    likelihood.m_step(torch.tensor(8.0, dtype=torch.float64), 100)
    assert likelihood.precision.item() == pytest.approx((50 + 0.1 - 1) / (4 + 0.01))
    several = Gaussian(torch.ones(2), noise="map")
    several.m_step(torch.tensor([8.0, 2.0]), 100)
    torch.testing.assert_close(several.precision, torch.tensor([49.1 / 4.01, 49.1 / 1.01]))


def test_heteroscedastic_log_prob_is_torchs() -> None:
    output, y = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    mean, log_variance = output[:, :2], output[:, 2:]
    normal = distributions.Normal(mean, (0.5 * log_variance).exp())
    likelihood = HeteroscedasticGaussian()
    torch.testing.assert_close(likelihood.log_prob(output, y), normal.log_prob(y).sum(1))
    torch.testing.assert_close(likelihood.moments(output)[1], normal.variance)
    torch.testing.assert_close(likelihood.cdf(output, y), normal.cdf(y))
    generator = torch.Generator().manual_seed(0)
    sample = torch.stack([likelihood.sample(output, generator) for _ in range(4000)])
    assert ((sample.mean(0) - mean).abs() < 5 * normal.stddev / 4000**0.5).all()
    assert ((sample.var(0) - normal.variance).abs() < 5 * normal.variance * (2 / 4000) ** 0.5).all()


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3), (6, 4, 3, 2)])
def test_categorical_log_prob_is_the_cross_entropy(shape: tuple[int, ...]) -> None:
    output = torch.randn(shape, dtype=torch.float64)
    y = torch.randint(4, (6, *shape[2:]))
    expected = -F.cross_entropy(output, y, reduction="none")
    torch.testing.assert_close(Categorical(class_axis=1).log_prob(output, y), expected)
    last = Categorical(class_axis=-1).log_prob(output.movedim(1, -1), y)
    torch.testing.assert_close(last, expected)


def test_categorical_moments_and_samples() -> None:
    output = torch.randn(5, 3, dtype=torch.float64)
    probs, variance = Categorical().moments(output)
    torch.testing.assert_close(probs, output.softmax(1))
    torch.testing.assert_close(variance, probs * (1 - probs))
    generator = torch.Generator().manual_seed(0)
    labels = torch.stack([Categorical().sample(output, generator) for _ in range(4000)])
    share = F.one_hot(labels, 3).double().mean(0)
    assert ((share - probs).abs() <= 5 * (variance / 4000).sqrt()).all()


def test_multinomial_log_prob_is_torchs() -> None:
    output = torch.randn(5, 4, dtype=torch.float64)
    y = torch.tensor([[1, 2, 0, 3]] * 5).double()
    exact = distributions.Multinomial(6, logits=output).log_prob(y)
    torch.testing.assert_close(Multinomial().log_prob(output, y), exact)
    bare = Multinomial(coefficient=False).log_prob(output, y)
    torch.testing.assert_close(bare, (y * output.log_softmax(1)).sum(1))
    torch.testing.assert_close(exact - bare, torch.full((5,), math.log(60.0), dtype=torch.float64))


def test_one_count_is_a_category() -> None:
    output, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    counts = F.one_hot(y, 4)
    torch.testing.assert_close(Multinomial().log_prob(output, counts), Categorical().log_prob(output, y))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(5, 1\); got \(5,\)\. Pass y.unsqueeze\(-1\)"):
        Gaussian(1.0).log_prob(torch.zeros(5, 1), torch.zeros(5))
    with pytest.raises(ValueError, match="one noise level each"):
        Gaussian(torch.ones(3)).log_prob(torch.zeros(5, 2), torch.zeros(5, 2))
    with pytest.raises(ValueError, match="D means, then D log-variances"):
        HeteroscedasticGaussian().log_prob(torch.zeros(5, 3), torch.zeros(5, 1))
    with pytest.raises(ValueError, match="`y` must be of the output's shape"):
        HeteroscedasticGaussian().log_prob(torch.zeros(5, 2), torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"labels of shape \(5,\)"):
        Categorical().log_prob(torch.zeros(5, 3), torch.zeros(5, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="in 0 to 2, the model's classes; got 0 to 3"):
        Categorical().log_prob(torch.zeros(5, 3), torch.tensor([0, 1, 2, 3, 0]))
    with pytest.raises(TypeError, match="integer labels"):
        Categorical().log_prob(torch.zeros(5, 3), torch.zeros(5))
    with pytest.raises(ValueError, match="logits with classes on axis 1"):
        Categorical().log_prob(torch.zeros(5), torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match="counts of shape"):
        Multinomial().log_prob(torch.zeros(5, 3), torch.zeros(5, 2))
    with pytest.raises(ValueError, match="counts of at least 0"):
        Multinomial().log_prob(torch.zeros(1, 2), torch.tensor([[-1.0, 2.0]]))


def test_bad_options_are_refused() -> None:
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="`noise_std` must be one positive number"):
            Gaussian(bad)
    with pytest.raises(ValueError, match="`noise` must be 'fixed', 'learned' or 'map'"):
        Gaussian(noise="fitted")
    with pytest.raises(ValueError, match="`prior_rate` must be a positive number"):
        Gaussian(noise="map", prior_rate=0.0)
    with pytest.raises(ValueError, match="`class_axis` must be an axis other than 0"):
        Categorical(class_axis=0)
    with pytest.raises(ValueError, match="`noise` must be 'map'; got 'fixed'"):
        Gaussian(1.0).m_step(torch.tensor(1.0), 10)
    with pytest.raises(ValueError, match="`squared_error` must be finite"):
        Gaussian(noise="map").m_step(torch.tensor(math.nan), 10)
    with pytest.raises(ValueError, match="`num_data` must be at least 2"):
        Gaussian(noise="map").m_step(torch.tensor(1.0), 1)
    with pytest.raises(ValueError, match="of the noise's shape"):
        Gaussian(noise="map").m_step(torch.ones(2), 10)
