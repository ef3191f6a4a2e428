"""Continuous ranked probability score of a mixture of draws."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite
from bayesdrop.likelihoods import Gaussian, HeteroscedasticGaussian, Laplace, WarpedGaussian
from bayesdrop.metrics.targets import regression_targets
from bayesdrop.predict import Prediction

__all__ = ["crps", "half_mean_distance"]

#: draws x points that are worked on at a time: 8 MiB in double precision
_BLOCK = 2**20
#: values of a grid at which a distribution function is looked at
_LEVELS = 400


def crps(prediction: Prediction, y: Tensor) -> Tensor:
    """Continuous ranked probability score, over all rows and outputs.

        integral (F(v) - 1[v >= y])^2 dv  =  E|Y - y| - E|Y - Y'| / 2,    Y, Y' ~ F independent

    F is the predictive distribution of one output: the mixture of T Gaussian or Laplace distributions, for
    which both expectations are known, or the T draws themselves if there is no likelihood. A point
    forecast scores its absolute error. Of other likelihoods of numbers the integral is taken over a grid of
    their quantiles.

    Args:
        prediction: with its draws kept; a likelihood of numbers, or none.
        y: (N, D) targets.

    Returns: shape (). In units of y; lower is better.
    Reference: Gneiting & Raftery (2007); Grimit et al. (2006), Eq. 5 (the mixture).
    """
    target = regression_targets("crps", prediction, y).reshape(-1)
    if isinstance(prediction.likelihood, WarpedGaussian):
        with torch.no_grad():
            return _warped_scores(prediction, y).mean().to(prediction.mean.dtype)
    mean, std = _components(prediction)
    total = torch.zeros((), dtype=torch.float64)
    columns = max(1, _BLOCK // mean.shape[0])
    for start in range(0, target.shape[0], columns):
        block = slice(start, start + columns)
        centre, width = mean[:, block].to(torch.float64), std[:, block].to(torch.float64)
        if isinstance(prediction.likelihood, Laplace):
            total += _laplace_scores(target[block], centre, width[0] / 2**0.5).sum()
            continue
        away = _mean_absolute(target[block] - centre, width).mean(0)
        total += (away - half_mean_distance(centre, width)).sum()
    return (total / target.shape[0]).to(prediction.mean.dtype)


def _warped_scores(prediction: Prediction, y: Tensor) -> Tensor:
    """(N, D) integrals of (F(v) - 1[v >= y])^2: a sum over whole numbers, or over a grid of quantiles."""
    likelihood = prediction.likelihood
    assert isinstance(likelihood, WarpedGaussian)
    found = []
    rows = max(1, _BLOCK // prediction.draws.shape[0])
    levels = torch.special.ndtr(torch.linspace(-5, 5, 41, dtype=torch.float64))
    for start in range(0, len(y), rows):
        draws = prediction.draws[:, start : start + rows].to(torch.float64)
        target = y[start : start + rows].to(torch.float64)
        some = draws if likelihood.warp.whole else draws[:: max(1, len(draws) // 50)]
        ends = torch.cat([likelihood.quantile(some, float(level)) for level in levels])
        if likelihood.warp.whole:
            first, last = torch.minimum(ends.amin(), target.amin()), torch.maximum(ends.amax(), target.amax())
            total = torch.zeros_like(target)
            for value in range(math.floor(first), math.ceil(last) + 1):
                below = likelihood.cdf(draws, torch.full_like(target, value)).mean(0)
                # F is constant from one whole number to the next.
                length = (target - value).clamp(0, 1)
                total += length * below.square() + (1 - length) * (1 - below).square()
            found.append(total)
            continue
        places = torch.linspace(0, len(ends) - 1, _LEVELS).round().long()
        # With the target among them, every piece lies on one side of it.
        grid = torch.cat([ends.sort(0).values[places], target[None]]).sort(0).values
        below = torch.stack([likelihood.cdf(draws, value).mean(0) for value in grid])
        left = grid[1:] <= target
        pieces = [torch.where(left, part, 1 - part).square() for part in (below[:-1], below[1:])]
        found.append((0.5 * (pieces[0] + pieces[1]) * grid.diff(dim=0)).sum(0))
    return torch.cat(found)


def _laplace_scores(y: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """The score of a mixture of T Laplace distributions of one scale b, column by column. Shape (M,).

    With d the distance, E|Y - y| = d + b exp(-d / b); and E|Y - Y'| = d + (d + 3 b) exp(-d / b) / 2, which is
    3 b / 2 for a component and itself.

    Args:
        y: (M,) targets.
        centre: (T, M) centres.
        scale: (M,) b.
    """
    count = centre.shape[0]
    away = (y - centre).abs()
    total = 0.75 * scale * count
    for shift in range(1, count):
        apart = (centre[shift:] - centre[:-shift]).abs()
        total = total + (apart + 0.5 * (apart + 3 * scale) * (-apart / scale).exp()).sum(0)
    score: Tensor = (away + scale * (-away / scale).exp()).mean(0) - total / count**2
    return score


def half_mean_distance(mean: Tensor, std: Tensor) -> Tensor:
    """E|Y - Y'| / 2 for independent Y, Y' of a mixture of T Gaussians, column by column.

    In closed form over all pairs of components, or as the integral of F (1 - F), whichever needs fewer
    evaluations; they agree to the last digits. Without noise it is a sort.

    Args:
        mean: (T, M) means of the components.
        std: (T, M) their standard deviations.

    Returns: (M,).
    """
    count = mean.shape[0]
    if not bool(std.any()):
        rank = torch.arange(1 - count, count, 2, dtype=mean.dtype, device=mean.device)
        ordered = (rank.unsqueeze(1) * mean.sort(0).values).sum(0)
        return ordered / count**2
    # F (1 - F) is analytic and its Fourier transform falls as exp(-(std w)^2 / 4): at a step of half the
    # smallest std the trapezoidal rule errs by about exp(-4 pi^2), below double precision.
    lower, upper = (mean - 9 * std).amin(0), (mean + 9 * std).amax(0)
    steps = float((2 * (upper - lower) / std.amin(0)).amax())
    if steps < count / 2:
        return _by_quadrature(mean, std, lower, upper, math.ceil(steps))
    return _by_pairs(mean, std)


def _by_pairs(mean: Tensor, std: Tensor) -> Tensor:
    count, variance = mean.shape[0], std.square()
    total: Tensor = std.sum(0) / math.pi**0.5  # a component with itself: E|Y - Y'| / 2 = std / sqrt(pi)
    for shift in range(1, count):
        spread = (variance[shift:] + variance[:-shift]).sqrt()
        total = total + _mean_absolute(mean[shift:] - mean[:-shift], spread).sum(0)
    return total / count**2


def _by_quadrature(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor, steps: int) -> Tensor:
    total = torch.zeros_like(lower)
    for index in range(1, steps):
        value = torch.lerp(lower, upper, index / steps)
        below = torch.special.ndtr((value - mean) / std).mean(0)
        total += below * (1 - below)
    return total * (upper - lower) / steps


def _mean_absolute(mean: Tensor, std: Tensor) -> Tensor:
    """E|N(mean, std^2)|, which is |mean| where there is no noise."""
    scaled = mean / std.clamp_min(torch.finfo(std.dtype).tiny)
    density = torch.exp(-0.5 * scaled.square()) * (2 / math.pi) ** 0.5
    value: Tensor = std * density + mean * torch.erf(scaled / 2**0.5)
    return value


def _components(prediction: Prediction) -> tuple[Tensor, Tensor]:
    """(T, M) means and standard deviations of the components of the mixture."""
    likelihood = prediction.likelihood
    if likelihood is not None and not isinstance(likelihood, Gaussian | HeteroscedasticGaussian | Laplace):
        want = "one with a Gaussian or Laplace likelihood, or none"
        raise TypeError(must("crps", "prediction", want, prediction))
    draws = prediction.draws
    if likelihood is None:
        return draws.flatten(1), torch.zeros_like(draws).flatten(1)
    must_be_finite("crps", "prediction.aleatoric", prediction.aleatoric)
    with torch.no_grad():
        mean, variance = likelihood.moments(draws)
    return mean.flatten(1), variance.sqrt().flatten(1)
