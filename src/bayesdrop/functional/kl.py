"""Kullback-Leibler divergences from dropout posteriors to the prior N(0, I / l^2), in nats.

A dropout posterior is the limit of one with a small width sigma in every direction that its noise does
not reach (Gal & Ghahramani 2015, eqs 9 to 13). Each such direction adds the same constant,
(l^2 sigma^2 - log l^2 sigma^2 - 1) / 2, which depends on no parameter and grows without bound as sigma
falls. The functions for dropout leave that constant out, and only that.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesdrop.functional.entropy import bernoulli_entropy

__all__ = [
    "bernoulli_dropout_kl",
    "component_information",
    "gaussian_dropout_kl",
    "gaussian_kl",
    "low_rank_kl",
    "mean_field_kl",
    "mixture_dropout_kl",
    "mixture_information",
]


def gaussian_kl(mean_square: Tensor, variance: Tensor, length_scale: float | Tensor) -> Tensor:
    """KL( N(m, s^2) || N(0, 1/l^2) ) = (l^2 (m^2 + s^2) - log(l^2 s^2) - 1) / 2, element by element.

    Args:
        mean_square: m^2.
        variance: s^2, above zero.
        length_scale: l.
    """
    precision = length_scale**2
    return 0.5 * (precision * (mean_square + variance) - (precision * variance).log() - 1)


def mean_field_kl(mean: Tensor, log_std: Tensor, length_scale: float | Tensor) -> Tensor:
    """`gaussian_kl` of N(m, s^2) from m and log s, element by element; finite for any small s.

    Args:
        mean: m.
        log_std: log s.
        length_scale: l.
    """
    squares = mean.square() + (2 * log_std).exp()
    log_scale = length_scale.log() if isinstance(length_scale, Tensor) else math.log(length_scale)
    return 0.5 * (length_scale**2 * squares - 1) - log_std - log_scale


def bernoulli_dropout_kl(mean_square: Tensor, p: Tensor, length_scale: float | Tensor) -> Tensor:
    """KL of a point that is dropped with chance p: l^2 |W|^2 / (2 (1 - p)) - H(p), element by element.

    W is the mean, (1 - p) M in the papers' letters, so that (1 - p) |M|^2 is |W|^2 / (1 - p).

    Args:
        mean_square: |W_k|^2 of every unit k (all weights that leave it).
        p: chance of dropping.
        length_scale: l.

    Reference: Gal, Hron & Kendall (2017), Eq. 3.
    """
    return 0.5 * length_scale**2 * mean_square / (1 - p) - bernoulli_entropy(p)


def gaussian_dropout_kl(mean_square: Tensor, p: Tensor, length_scale: float | Tensor) -> Tensor:
    """KL of m (1 + sqrt(a) e), e ~ N(0, 1), a = p / (1 - p): one random coordinate, along m.

        (l^2 (1 + a) |m|^2 - log(l^2 a |m|^2) - 1) / 2          and l^2 |m|^2 / 2 where p = 0

    All weights that leave a unit share its noise, so the posterior lies on a line; this is the
    divergence of the coordinate along that line. It is infinite for a unit without weights, and is cut
    off at the smallest normal number there.

    Args:
        mean_square: |m_k|^2 of every unit k.
        p: the drop rate whose variance the noise matches.
        length_scale: l.
    """
    alpha = p / (1 - p)
    random = alpha > 0
    variance = (torch.where(random, alpha, 1) * mean_square).clamp_min(torch.finfo(mean_square.dtype).tiny)
    precision = length_scale**2
    still = 0.5 * precision * mean_square
    return torch.where(random, gaussian_kl(mean_square, variance, length_scale), still)


# The trapezoidal rule on a grid of step h integrates log(q + p exp(-d e - d^2 / 2)) against a normal
# density with an error of order exp(-2 pi^2 / (d h)): below 1e-7 at d = 12, the widest that is used.
_GRID = torch.linspace(-12.0, 12.0, 241, dtype=torch.float64)
_WEIGHT = torch.exp(-0.5 * _GRID.square()) / (2 * torch.pi) ** 0.5 * (_GRID[1] - _GRID[0])
_FAR = 12.0


def mixture_information(distance: Tensor, p: Tensor) -> Tensor:
    """Nats that a sample of (1 - p) N(d, 1) + p N(0, 1) carries about its component.

    0 at d = 0, H(p) for components far apart. It is the entropy of the mixture minus that of one component.
    It depends on d and p alone in any number of dimensions, because the mixture differs from a single
    Gaussian only along the line through the two means.

    Args:
        distance: d, distance of the means in units of the common standard deviation.
        p: weight of the component at zero.

    By quadrature: the error is below 1e-7.
    """
    near = distance.to(torch.float64).clamp_max(_FAR).unsqueeze(-1)
    drop = p.to(torch.float64).unsqueeze(-1)
    grid, weight = _GRID.to(near.device), _WEIGHT.to(near.device)
    log_keep, log_drop = (1 - drop).log(), drop.log()
    half = 0.5 * near.square()
    kept = -torch.logaddexp(log_keep, log_drop - near * grid - half)
    dropped = -torch.logaddexp(log_drop, log_keep + near * grid - half)
    # p = 0 has no second component: 0 * log 0 is 0 by continuity.
    dropped = torch.where(drop > 0, drop * dropped, 0)
    information = (((1 - drop) * kept + dropped) * weight).sum(-1)
    value: Tensor = information.clamp_min(0).to(distance.dtype)
    return value


def mixture_dropout_kl(
    mean_square: Tensor, p: Tensor, sigma: Tensor, size: int, length_scale: float | Tensor
) -> Tensor:
    """KL of (1 - p) N(m, s^2 I) + p N(0, s^2 I), in D dimensions, element by element. Exact.

        (l^2 |W|^2 / (1 - p) + D (l^2 s^2 - log l^2 s^2 - 1)) / 2 - I(|m| / s, p),    W = (1 - p) m

    I is `mixture_information`: H(p) for well separated components. Proposition 1 of Gal &
    Ghahramani (2015) leaves I out, and its section 3.3 lacks the factor 1/2 before D.

    Args:
        mean_square: |W_k|^2 of every unit k.
        p: chance of dropping.
        sigma: s, above zero.
        size: D, the number of weights that leave a unit.
        length_scale: l.
    """
    width = gaussian_kl(torch.zeros_like(mean_square), sigma.square(), length_scale)
    # |m| has no derivative at m = 0, where the information is flat: the tiny number keeps it finite.
    norm = (mean_square + torch.finfo(mean_square.dtype).tiny).sqrt() / (1 - p)
    shift = 0.5 * length_scale**2 * mean_square / (1 - p)
    return shift + size * width - mixture_information(norm / sigma, p)


def component_information(square_distance: Tensor, chance: Tensor) -> Tensor:
    """A lower bound of the nats that a sample of a mixture of C Gaussians carries about its component.

        -sum_i w_i log sum_j w_j exp(-d_ij^2 / 8)

    It is exact where all means coincide (0) and where they are far apart (H(w)). With d^2 / 2 instead of
    d^2 / 8 it would be an upper bound.

    Args:
        square_distance: d_ij^2 between the means, in units of their common covariance. (..., C, C).
        chance: w, the weights of the components. (..., C).

    Returns: shape (...).
    Reference: Kolchinsky & Tracey (2017), "Estimating mixture entropy with pairwise distances", Eq. 10
    with the Chernoff divergence at 1/2.
    """
    overlap = ((-0.125 * square_distance).exp() * chance.unsqueeze(-2)).sum(-1)
    # A component of no weight that is far from all others overlaps with none: 0 log 0 is 0.
    some = torch.where(chance > 0, overlap, 1)
    value: Tensor = -(chance * some.log()).sum(-1)
    return value


def low_rank_kl(factors: Tensor | None, sigma: Tensor, size: int, length_scale: float | Tensor) -> Tensor:
    """KL( N(0, s^2 I + U U^T) || N(0, I / l^2) ) in D dimensions. Exact. Shape ().

        (D (l^2 s^2 - log l^2 s^2 - 1) + l^2 |U|^2 - log det(I + U^T U / s^2)) / 2

    Args:
        factors: the columns of U, (R, ...) with D entries each; None for no factors.
        sigma: s, above zero.
        size: D.
        length_scale: l.
    """
    still = size * gaussian_kl(torch.zeros_like(sigma), sigma.square(), length_scale)
    if factors is None:
        return still
    flat = factors.flatten(1) / sigma
    inner = flat @ flat.T + torch.eye(len(flat), dtype=flat.dtype, device=flat.device)
    return still + 0.5 * (length_scale**2 * factors.square().sum() - torch.logdet(inner))
