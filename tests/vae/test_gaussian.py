"""Densities and divergences of codes against torch's own and sampling."""

from __future__ import annotations

import math

import torch
from torch.distributions import Normal, kl_divergence

from bayesdrop.vae.gaussian import (
    drawn_code,
    log_density,
    mixture_divergence,
    mixture_log_density,
    shared_mixture_log_density,
    standard_kl,
    standard_log_density,
)


def _codes(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _constant(size: int) -> float:
    return 0.5 * size * math.log(2 * math.pi)


def test_the_divergence_from_the_standard_normal_is_torchs() -> None:
    mean, log_variance = _codes(5, 3), _codes(5, 3, seed=1)
    exact = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, 1.0)).sum(-1)
    torch.testing.assert_close(standard_kl(mean, log_variance), exact)


def test_densities_are_torchs_but_for_the_constant() -> None:
    mean, log_variance, noise = _codes(5, 3), _codes(5, 3, seed=1), _codes(5, 3, seed=2)
    z = drawn_code(mean, log_variance, noise)
    exact = Normal(mean, (0.5 * log_variance).exp()).log_prob(z).sum(-1)
    torch.testing.assert_close(log_density(noise, log_variance) - _constant(3), exact)
    torch.testing.assert_close(standard_log_density(z) - _constant(3), Normal(0.0, 1.0).log_prob(z).sum(-1))


def test_mixtures_are_means_of_densities() -> None:
    z, mean, log_variance = _codes(4, 2, 3), _codes(6, 2, 3, seed=1), _codes(6, 2, 3, seed=2)
    parts = Normal(mean, (0.5 * log_variance).exp())
    exact = torch.stack([parts.log_prob(one).sum(-1).exp().mean(0).log() for one in z])
    torch.testing.assert_close(mixture_log_density(z, mean, log_variance) - _constant(3), exact)
    shared = Normal(mean[:, 0], (0.5 * log_variance[:, 0]).exp()).log_prob(z[:, :1]).sum(-1)
    found = shared_mixture_log_density(z[:, 0], mean[:, 0], log_variance[:, 0])
    torch.testing.assert_close(found - _constant(3), shared.exp().mean(1).log())


def test_several_masks_are_judged_by_their_mixture() -> None:
    z, mean, log_variance = (_codes(3, 2, 4, seed=seed) for seed in range(3))
    parts = Normal(mean, (0.5 * log_variance).exp())
    total = torch.zeros(2, dtype=torch.float64)
    for one in z:
        log_h = torch.logsumexp(parts.log_prob(one).sum(-1), 0) - math.log(3)
        total += (log_h - Normal(0.0, 1.0).log_prob(one).sum(-1)) / 3
    found = mixture_divergence(z, mean, log_variance, standard_log_density(z))
    torch.testing.assert_close(found, total)


def test_one_mask_is_the_sampled_divergence_of_a_vae() -> None:
    mean, log_variance = _codes(1, 3, 4), _codes(1, 3, 4, seed=1)
    z = drawn_code(mean, log_variance, _codes(4000, 3, 4, seed=2))
    sampled = torch.stack(
        [mixture_divergence(one[None], mean, log_variance, standard_log_density(one[None])) for one in z]
    )
    error = sampled.std(0) / 4000**0.5
    assert bool(((sampled.mean(0) - standard_kl(mean[0], log_variance[0])).abs() < 5 * error).all())
