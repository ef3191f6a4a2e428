"""Divergences against quadrature, Monte Carlo and torch.distributions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import (
    Categorical,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    kl_divergence,
)

from bayesdrop.functional import (
    bernoulli_dropout_kl,
    bernoulli_entropy,
    gaussian_dropout_kl,
    gaussian_kl,
    mixture_dropout_kl,
    mixture_information,
)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def mixture(mean: Tensor, p: float, sigma: float) -> MixtureSameFamily:
    """(1 - p) N(m, s^2 I) + p N(0, s^2 I)."""
    means = torch.stack([mean, torch.zeros_like(mean)])
    parts = Independent(Normal(means, torch.full_like(means, sigma)), 1)
    return MixtureSameFamily(Categorical(double(1 - p, p)), parts)


def constant(size: int, sigma: float, length_scale: float) -> float:
    """What every direction of vanishing width adds."""
    scaled = (length_scale * sigma) ** 2
    return size * 0.5 * (scaled - math.log(scaled) - 1)


def test_gaussian_kl_is_that_of_torch() -> None:
    mean, std = torch.randn(20, dtype=torch.float64), torch.rand(20, dtype=torch.float64) + 0.1
    exact = kl_divergence(Normal(mean, std), Normal(torch.zeros(20), torch.full((20,), 1 / 0.3)))
    torch.testing.assert_close(gaussian_kl(mean**2, std**2, 0.3), exact)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("distance", [0.0, 0.3, 1.0, 3.0, 7.0])
def test_mixture_information_is_the_integral(p: float, distance: float) -> None:
    def density(s: float) -> float:
        return float((1 - p) * stats.norm.pdf(s, distance) + p * stats.norm.pdf(s))

    points = np.linspace(-9, distance + 9, 8)
    entropy = sum(
        integrate.quad(lambda s: -density(s) * math.log(density(s)), a, b, epsabs=1e-12)[0]
        for a, b in itertools.pairwise(points)
    )
    exact = entropy - 0.5 * math.log(2 * math.pi * math.e)
    assert mixture_information(double(distance), double(p)).item() == pytest.approx(exact, abs=1e-7)


def test_mixture_information_runs_from_nothing_to_the_entropy_of_the_rate() -> None:
    p = double(0.0, 0.01, 0.3, 0.5, 0.99)
    distance = torch.linspace(0, 60, 200, dtype=torch.float64).unsqueeze(-1)
    information = mixture_information(distance, p)
    torch.testing.assert_close(information[0], torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(information[-1], bernoulli_entropy(p), rtol=0, atol=1e-7)
    assert (information.diff(dim=0) >= -1e-8).all()


def test_mixture_information_has_the_right_gradient() -> None:
    distance = double(0.2, 1.0, 2.5, 6.0).requires_grad_()
    p = double(0.1, 0.4, 0.7, 0.5).requires_grad_()
    assert torch.autograd.gradcheck(mixture_information, (distance, p), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "p", "sigma"), [(1, 0.3, 0.5), (3, 0.6, 0.2), (20, 0.3, 0.3), (100, 0.3, 0.9)]
)
def test_mixture_kl_agrees_with_monte_carlo(size: int, p: float, sigma: float) -> None:
    length_scale, num = 0.8, 40_000
    mean = 0.3 * torch.randn(size, dtype=torch.float64)
    posterior = mixture(mean, p, sigma)
    prior = Independent(Normal(torch.zeros(size), torch.full((size,), 1 / length_scale)), 1)
    sample = posterior.sample((num,))
    terms = posterior.log_prob(sample) - prior.log_prob(sample)
    square = ((1 - p) * mean).square().sum()
    exact = mixture_dropout_kl(square, double(p)[0], double(sigma)[0], size, length_scale)
    assert abs(terms.mean() - exact) <= 5 * terms.std() / num**0.5


def test_mixture_kl_is_proposition_1_less_the_entropy_when_components_are_apart() -> None:
    """Gal & Ghahramani (2015) leave out -H(p), and print the width term without its half."""
    size, p, sigma = 50, 0.3, 0.1
    mean = torch.ones(size, dtype=torch.float64)
    square = mean.square().sum()
    proposition = (1 - p) / 2 * square + size / 2 * (sigma**2 - math.log(sigma**2) - 1)
    exact = mixture_dropout_kl((1 - p) ** 2 * square, double(p)[0], double(sigma)[0], size, 1.0)
    torch.testing.assert_close(exact, proposition - bernoulli_entropy(double(p)[0]))
    as_printed = (1 - p) / 2 * square + size * (sigma**2 - math.log(sigma**2) - 1)
    assert as_printed - exact > size / 2


@pytest.mark.parametrize("p", [0.0, 0.05, 0.5, 0.9])
def test_bernoulli_kl_is_the_limit_of_the_mixture(p: float) -> None:
    size, length_scale, sigma = 4, 0.3, 1e-4
    square = double(0.5, 2.0)
    rate = double(p, p)
    limit = mixture_dropout_kl(square, rate, torch.full_like(rate, sigma), size, length_scale)
    exact = bernoulli_dropout_kl(square, rate, length_scale)
    torch.testing.assert_close(limit - constant(size, sigma, length_scale), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_gaussian_dropout_kl_is_the_limit_of_a_full_rank_gaussian(p: float) -> None:
    size, length_scale, sigma = 5, 0.7, 1e-4
    mean = torch.randn(size, dtype=torch.float64)
    alpha = p / (1 - p)
    covariance = alpha * torch.outer(mean, mean) + sigma**2 * torch.eye(size, dtype=torch.float64)
    prior = MultivariateNormal(
        torch.zeros(size, dtype=torch.float64), torch.eye(size).double() / length_scale**2
    )
    full = kl_divergence(MultivariateNormal(mean, covariance), prior)
    exact = gaussian_dropout_kl(mean.square().sum(), double(p)[0], length_scale)
    torch.testing.assert_close(full - constant(size - 1, sigma, length_scale), exact, rtol=0, atol=1e-5)


def test_gaussian_dropout_without_noise_is_weight_decay_and_dead_units_stay_finite() -> None:
    square = double(0.0, 3.0)
    torch.testing.assert_close(gaussian_dropout_kl(square, double(0.0, 0.0), 0.5), 0.125 * square)
    assert torch.isfinite(gaussian_dropout_kl(square, double(0.5, 0.5), 0.5)).all()
