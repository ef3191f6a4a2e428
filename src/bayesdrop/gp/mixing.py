"""tanh as a mixture of error functions of known scales."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

__all__ = ["tanh_scales"]

# In z = log k the density of k, and any kernel built on it, is analytic in a strip of half-width pi / 4
# or more, whatever the variances: the trapezoidal rule errs by exp(-pi^2 / (2 h)), 1e-12 for this step.
_STEP = 0.175
_LOWEST, _HIGHEST = -1.925, 1.575


@cache
def tanh_scales() -> tuple[Tensor, Tensor]:
    """Nodes k_i and weights w_i with tanh(u) = sum_i w_i erf(u / (sqrt(2) k_i)), in double precision.

    A logistic variable is a normal one whose standard deviation is random: twice a variable k of
    Kolmogorov's distribution (Andrews & Mallows 1974). Its distribution function is (1 + tanh(u / 2)) / 2,
    so tanh is the mean of erf(u / (sqrt(2) k)) over k.
    """
    log_k = torch.arange(_LOWEST, _HIGHEST + _STEP / 2, _STEP, dtype=torch.float64)
    k = log_k.exp()
    weight = kolmogorov_density(k) * k
    return k, weight / weight.sum()


def kolmogorov_density(k: Tensor) -> Tensor:
    """Density of the limit of sqrt(n) sup |F_n - F|, at k > 0."""
    number = torch.arange(1, 9, dtype=k.dtype).unsqueeze(-1)
    sign = 1 - 2 * ((number - 1) % 2)
    series = 8 * k * (sign * number.square() * torch.exp(-2 * number.square() * k.square())).sum(0)
    # The same function by the other theta series: for small k the first sum loses all digits.
    rate = ((2 * number - 1) * math.pi).square() / 8
    small = k.clamp_max(1.0)
    dual = torch.exp(-rate / small.square()) * (2 * rate / small**4 - 1 / small.square())
    return torch.where(k < 0.9, math.sqrt(2 * math.pi) * dual.sum(0), series)
