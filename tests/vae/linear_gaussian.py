"""Autoencoders whose marginal likelihood is known: x = W z + b + noise, z ~ N(0, I)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import bayesdrop as bd

SIGMA = 0.6


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(inputs: int, outputs: int, seed: int, scale: float = 1.0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs).double()
    with torch.no_grad():
        layer.weight.copy_(scale * torch.randn(outputs, inputs, generator=seeded(seed)))
        layer.bias.copy_(0.3 * torch.randn(outputs, generator=seeded(seed + 1)))
    return layer


def decoder(latent: int, outputs: int, seed: int = 5, *, orthogonal: bool = False) -> nn.Linear:
    layer = linear(latent, outputs, seed)
    if orthogonal:
        with torch.no_grad():
            columns = torch.linalg.qr(layer.weight).Q
            layer.weight.copy_(columns * torch.linspace(0.7, 1.5, latent))
    return layer


def exact_log_likelihood(layer: nn.Linear, x: Tensor) -> Tensor:
    """(N,) log N(x; b, W W' + sigma^2 I)."""
    cov = layer.weight @ layer.weight.T + SIGMA**2 * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.distributions.MultivariateNormal(layer.bias, cov).log_prob(x).detach()


def best_encoder(layer: nn.Linear) -> nn.Linear:
    """The true posterior N(M^-1 W' (x - b), sigma^2 M^-1), M = W' W + sigma^2 I, for orthogonal columns."""
    latent, inputs = layer.in_features, layer.out_features
    encoder = nn.Linear(inputs, 2 * latent).double()
    with torch.no_grad():
        inverse = 1 / (layer.weight.square().sum(0) + SIGMA**2)
        weight = inverse.unsqueeze(1) * layer.weight.T
        encoder.weight.copy_(torch.cat([weight, torch.zeros_like(weight)]))
        encoder.bias.copy_(torch.cat([-weight @ layer.bias, (SIGMA**2 * inverse).log()]))
    return encoder


def rows(num: int, size: int, seed: int = 9) -> Tensor:
    return torch.randn(num, size, dtype=torch.float64, generator=seeded(seed))


def noise() -> bd.Gaussian:
    return bd.Gaussian(SIGMA).double()


def estimates(method: Callable[..., Tensor], x: Tensor, times: int, **options: Any) -> Tensor:
    """(times, N) independent estimates of every row, in one call: rows have noise of their own."""
    found: Tensor = method(x.repeat(times, 1), batch_size=times * len(x), **options)
    return found.view(times, len(x))


def near(found: Tensor, exact: Tensor) -> bool:
    """Whether the mean over axis 0 is within five standard errors of the truth, everywhere."""
    error = found.std(0) / len(found) ** 0.5
    return bool(((found.mean(0) - exact).abs() < 5 * error + 1e-12).all())
