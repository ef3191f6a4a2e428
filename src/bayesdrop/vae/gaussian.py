"""Gaussian codes: sampling, densities, and divergences from a prior.

All log-densities of this package leave out -(L / 2) log 2 pi, as only their differences are used.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = [
    "drawn_code",
    "log_density",
    "mixture_divergence",
    "mixture_log_density",
    "shared_mixture_log_density",
    "standard_kl",
    "standard_log_density",
]


def drawn_code(mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
    """mean + exp(log_variance / 2) noise, for standard normal noise."""
    return mean + (0.5 * log_variance).exp() * noise


def standard_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL of N(mean, exp(log_variance)) from the standard normal, summed over the last axis."""
    value: Tensor = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(-1)
    return value


def standard_log_density(z: Tensor) -> Tensor:
    """log N(z; 0, I), summed over the last axis."""
    value: Tensor = -0.5 * z.square().sum(-1)
    return value


def log_density(noise: Tensor, log_variance: Tensor) -> Tensor:
    """log N(z; mean, exp(log_variance)) of the code that `drawn_code` makes of this noise."""
    value: Tensor = -0.5 * (noise.square() + log_variance).sum(-1)
    return value


def mixture_log_density(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log (1/K) sum_j N(z; mean_j, exp(log_variance_j)), with other Gaussians for every row.

    Args:
        z: (S, N, L) codes.
        mean: (K, N, L).
        log_variance: (K, N, L).

    Returns: (S, N).
    Reference: Boluki et al. (2020), Eq. 6: the density of K masks, one of which is that of the code.
    """
    precision = (-log_variance).exp()
    logs = [-0.5 * ((one - mean).square() * precision + log_variance).sum(-1) for one in z]
    return torch.stack([torch.logsumexp(one, 0) for one in logs]) - math.log(len(mean))


def shared_mixture_log_density(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log (1/C) sum_c N(z; mean_c, exp(log_variance_c)), with the same Gaussians for all rows.

    Args:
        z: (N, L) codes.
        mean: (C, L).
        log_variance: (C, L).

    Returns: (N,).
    """
    precision = (-log_variance).exp()
    # (z - m)^2 / v as three products, so that nothing of shape (N, C, L) is made.
    square = z.square() @ precision.T - 2 * z @ (mean * precision).T + (mean.square() * precision).sum(-1)
    return torch.logsumexp(-0.5 * (square + log_variance.sum(-1)), 1) - math.log(len(mean))


def mixture_divergence(z: Tensor, mean: Tensor, log_variance: Tensor, log_prior: Tensor) -> Tensor:
    """Mean over k of log h(z_k) - log p(z_k), with h the mixture of all K Gaussians: (N,).

    Args:
        z: (K, N, L) codes, z_k drawn from Gaussian k.
        mean: (K, N, L).
        log_variance: (K, N, L).
        log_prior: (K, N) log p(z_k).
    """
    return (mixture_log_density(z, mean, log_variance) - log_prior).mean(0)
