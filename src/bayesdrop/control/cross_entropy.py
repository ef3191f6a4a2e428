"""The cross-entropy method: maximise a function by sampling around its best arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, must_be_tensor, real_number, whole_number

__all__ = ["Best", "maximise"]

Score = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Best:
    """The result of a search for R problems.

    Attributes:
        arguments: (R, ...), the best that were tried.
        values: (R,), the values of these arguments.
        mean: (R, ...), mean of the Gaussian after the last iteration.
    """

    arguments: Tensor
    values: Tensor
    mean: Tensor


def maximise(
    score: Score,
    mean: Tensor,
    std: float,
    *,
    samples: int = 150,
    elites: int = 15,
    iterations: int = 35,
    limit: float | None = None,
    least_std: float = 0.05,
    smooth: float = 0.0,
    generator: torch.Generator | None = None,
) -> Best:
    """Maximise a function in R problems at once, each by a Gaussian that is refitted to its best samples.

    The best sample so far is one of the next samples, so that the value found never falls.

    Args:
        score: from (R, samples, ...) to values (R, samples); values that are not finite count as the worst.
        mean: (R, ...), where the search starts.
        std: standard deviation of the first samples.
        samples: number of samples in each iteration.
        elites: how many of the best samples the Gaussian is fitted to.
        iterations: how often the Gaussian is fitted.
        limit: arguments are kept between -limit and limit; None for no limit.
        least_std: lower bound of the standard deviations.
        smooth: correlation length l of the samples along the first axis of an argument, time in a plan:
            entries i and j of the standard normal noise have correlation exp(-(i - j)^2 / (2 l^2)). With
            white noise (0), pushes on a heavy body cancel each other, and it hardly moves.
        generator: of the samples.

    Reference: Rubinstein & Kroese (2004); with a network that knows its uncertainty, Chua et al. (2018).
    """
    owner = "maximise"
    must_be_tensor(owner, "mean", mean, floating=True)
    must_be_finite(owner, "mean", mean)
    if mean.dim() < 2:
        raise ValueError(must(owner, "mean", "of shape (R, ...), R problems", tuple(mean.shape)))
    std = real_number(owner, "std", std, "a positive number", above=0)
    samples = whole_number(owner, "samples", samples, at_least=2)
    elites = whole_number(owner, "elites", elites, at_least=1, at_most=samples)
    iterations = whole_number(owner, "iterations", iterations, at_least=1)
    smooth = real_number(owner, "smooth", smooth, "a number of steps, 0 or more", at_least=0)
    size = mean.shape[1:]
    factor = _factor(size[0], smooth).to(mean) if smooth else None
    deviation = torch.full_like(mean, std)
    problem = torch.arange(len(mean))
    best = mean.clone() if limit is None else mean.clamp(-limit, limit)
    best_value = torch.full((len(mean),), -torch.inf, dtype=mean.dtype)
    for _ in range(iterations):
        normal = torch.randn(len(mean), samples, *size, generator=generator, dtype=mean.dtype)
        if factor is not None:
            normal = torch.einsum("ij,rsj...->rsi...", factor, normal)
        tried = mean.unsqueeze(1) + deviation.unsqueeze(1) * normal
        tried[:, 0] = best
        if limit is not None:
            tried = tried.clamp_(-limit, limit)
        values = torch.nan_to_num(score(tried), nan=-torch.inf, posinf=-torch.inf)
        top, places = values.topk(elites, dim=1)
        chosen = tried[problem.unsqueeze(1), places]
        better = top[:, 0] > best_value
        best[better], best_value[better] = chosen[better, 0], top[better, 0]
        mean = chosen.mean(1)
        deviation = chosen.std(1, correction=0).clamp_min(least_std)
    return Best(best, best_value, mean)


def _factor(length: int, smooth: float) -> Tensor:
    """A factor of the correlations of `length` steps. Shape (length, length)."""
    steps = torch.arange(length, dtype=torch.float64)
    correlation = torch.exp(-0.5 * ((steps.unsqueeze(1) - steps) / smooth).square())
    # The matrix of very smooth noise is singular to rounding.
    jitter = 1e-4
    correlation = (correlation + jitter * torch.eye(length, dtype=torch.float64)) / (1 + jitter)
    factor: Tensor = torch.linalg.cholesky(correlation)
    return factor
