"""Quantiles of a mixture of draws."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.likelihoods import NumberLikelihood

__all__ = ["mixture_quantile"]


def mixture_quantile(likelihood: NumberLikelihood, draws: Tensor, q: float) -> Tensor:
    """The v with (1/T) sum_t P(y <= v | f_t) = q, by bisection, to the last bits of the dtype.

    Args:
        likelihood: gives quantile and distribution function of y for every draw.
        draws: (T, N, ...) raw outputs.
        q: in (0, 1).

    Returns: (N, D).
    """
    # In double precision: single has no number between 1 - 6e-8 and 1, where a 1 - 1e-9 quantile is told.
    dtype, draws = draws.dtype, draws.to(torch.float64)
    lower: Tensor
    upper: Tensor
    # The mixture's quantile lies between the smallest and the largest of its components' quantiles.
    ends = likelihood.quantile(draws, q)
    lower, upper = ends.amin(0), ends.amax(0)
    for _ in range(60 if dtype == torch.float64 else 32):
        middle = 0.5 * (lower + upper)
        below = likelihood.cdf(draws, middle).mean(0) < q
        lower = torch.where(below, middle, lower)
        upper = torch.where(below, upper, middle)
    value: Tensor = 0.5 * (lower + upper)
    return value.to(dtype)
