"""The Concrete relaxation of a mask: a function of the rate that has a gradient.

    z(u) = sigmoid(-(logit p + logit u) / t),        u ~ U(0, 1)

tends to a mask that drops with chance p as the temperature t falls to 0. The input is multiplied by
z / (1 - p). Reference: Gal, Hron & Kendall (2017), Eq. 5; Maddison et al. (2017).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesdrop.functional.sums import summed_product
from bayesdrop.noise.bits import from_bits, uniform_from_bits

__all__ = [
    "apply_relaxed",
    "apply_straight_through",
    "hard_slope",
    "relaxed_keep",
    "relaxed_moments",
    "relaxed_slope",
    "with_slope",
]

_NODES = 64


def relaxed_keep(logit_p: Tensor, bits: Tensor, temperature: float) -> Tensor:
    """z(u) in [0, 1], about 1 where kept.

    Args:
        logit_p: log(p / (1 - p)) of the drop rate; must broadcast against `bits`.
        bits: from `bayesdrop.noise.bits.random_bits`.
        temperature: t, above 0.
    """
    # u = 0 and u = 1 give infinite logits and then z = 1 and z = 0: nothing is clipped.
    logistic = torch.logit(uniform_from_bits(bits)).to(logit_p.dtype)
    return torch.sigmoid((logistic + logit_p) * (-1 / temperature))


@torch.no_grad()
def _multiplier(logit_p: Tensor, bits: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """z / (1 - p), without a graph and with few passes over memory."""
    logistic = torch.logit(uniform_from_bits(bits)).to(dtype)
    keep = torch.sigmoid(-logit_p).to(dtype)
    return logistic.add_(logit_p.to(dtype)).mul_(-1 / temperature).sigmoid_().div_(keep)


class _Relaxed(torch.autograd.Function):
    """x m with m = z / (1 - p). As dm / dlogit p = m (p - (1 - z) / t), the backward pass needs m alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logit_p: Tensor, m: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward(x, logit_p, m)
        ctx.temperature = temperature
        return x * m

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, logit_p, m = ctx.saved_tensors
        grad_x = grad * m
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None, None
        p, t = torch.sigmoid(logit_p), ctx.temperature
        # sum g x m (p - (1 - z) / t) with z = m (1 - p): two sums, of g x m and of g x m^2.
        once = summed_product(grad_x, x, logit_p)
        twice = summed_product(grad_x, x * m, logit_p)
        return grad_x, once * (p - 1 / t) + twice * ((1 - p) / t), None, None


class _StraightThrough(torch.autograd.Function):
    """x h / (1 - p) with the hard mask h = 1[z > 1/2] and the gradient of the relaxed one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logit_p: Tensor, m: Tensor, temperature: float) -> Tensor:
        keep = torch.sigmoid(-logit_p).to(m.dtype)
        hard = (m * keep > 0.5) / keep
        ctx.save_for_backward(x, logit_p, m, hard)
        ctx.temperature = temperature
        return x * hard

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, logit_p, m, hard = ctx.saved_tensors
        grad_x = grad * hard
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None, None
        p = torch.sigmoid(logit_p)
        z = m * torch.sigmoid(-logit_p).to(m.dtype)
        relaxed = summed_product(grad * x, m * (1 - z), logit_p) * (-1 / ctx.temperature)
        return grad_x, relaxed + summed_product(grad_x, x, logit_p) * p, None, None


def apply_relaxed(x: Tensor, logit_p: Tensor, bits: Tensor, temperature: float) -> Tensor:
    """x z / (1 - p), with gradients in x and in logit p.

    Args:
        x: the input.
        logit_p: of the drop rate; must broadcast against `x`.
        bits: from `random_bits`; must broadcast against `x`.
        temperature: t, above 0.
    """
    return _applied(_Relaxed.apply, x, logit_p, bits, temperature)


def apply_straight_through(x: Tensor, logit_p: Tensor, bits: Tensor, temperature: float) -> Tensor:
    """x 1[z > 1/2] / (1 - p): hard masks, with the gradient that the relaxed ones have in logit p."""
    return _applied(_StraightThrough.apply, x, logit_p, bits, temperature)


def _applied(
    function: Callable[..., Any], x: Tensor, logit_p: Tensor, bits: Tensor, temperature: float
) -> Tensor:
    m = _multiplier(logit_p, bits, temperature, x.dtype)
    out: Tensor = function(x, logit_p, m, temperature)
    return out


# held masks, which are made once with their derivative and used many times


@torch.no_grad()
def relaxed_slope(logit_p: Tensor, bits: Tensor, temperature: float) -> Tensor:
    """d m / d logit p of m = z / (1 - p), which is m (p - (1 - z) / t). Shape of `bits`."""
    z = relaxed_keep(logit_p, bits, temperature)
    p = torch.sigmoid(logit_p)
    return z / torch.sigmoid(-logit_p) * (p - (1 - z) / temperature)


@torch.no_grad()
def hard_slope(logit_p: Tensor, bits: Tensor, temperature: float) -> Tensor:
    """The straight-through derivative in logit p of hard masks h / (1 - p), h being that of `keep_mask`.

        dz(1 - u) / dlogit p / (1 - p) + h p / (1 - p)

    `keep_mask` keeps where u is at least p, and z(u) is large where u is small: the relaxed mask of the same
    u is z(1 - u).
    """
    logistic = torch.logit(uniform_from_bits(bits)).to(logit_p.dtype)
    z = torch.sigmoid((logistic - logit_p) / temperature)
    p, keep = torch.sigmoid(logit_p), torch.sigmoid(-logit_p)
    hard = from_bits(bits, p, scaled=False).to(logit_p.dtype)
    return (hard * p - z * (1 - z) / temperature) / keep


class _WithSlope(torch.autograd.Function):
    # The slope is not a saved tensor: a backward pass frees these, and the mask of a draw is used in many.

    @staticmethod
    def forward(ctx: Any, logit_p: Tensor, noise: Tensor, slope: Tensor) -> Tensor:
        ctx.slope, ctx.shape, ctx.dtype = slope, logit_p.shape, logit_p.dtype
        return noise.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return (grad * ctx.slope).sum_to_size(ctx.shape).to(ctx.dtype), None, None


def with_slope(noise: Tensor, logit_p: Tensor, slope: Tensor) -> Tensor:
    """The noise, with a gradient in logit p; any number of backward passes can go through it.

    Args:
        noise: any shape.
        logit_p: broadcasts against it.
        slope: the derivative of every element of the noise.
    """
    if torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
        return noise + slope * (logit_p - logit_p.detach())
    with_gradient: Tensor = _WithSlope.apply(logit_p, noise, slope)  # type: ignore[no-untyped-call]
    return with_gradient


@cache
def _legendre() -> tuple[Tensor, Tensor]:
    """Nodes and weights for the integral over (0, 1), denser at both ends."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # v = s^2 (3 - 2 s) flattens what is steep at the ends.
    s, w = (nodes + 1) / 2, weights / 2
    return torch.from_numpy(s * s * (3 - 2 * s)), torch.from_numpy(w * 6 * s * (1 - s))


def relaxed_moments(logit_p: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Mean and variance of z / (1 - p), by quadrature.

    By parts, E z = E F(t logit v - logit p) and E z^2 = E 2 (1 - v) F(t logit v - logit p) with v ~ U(0, 1)
    and F the sigmoid: integrals of smooth functions at any temperature.

    Args:
        logit_p: of the drop rate, any shape.
        temperature: t, above 0.

    Returns: two tensors of the shape of `logit_p`.
    """
    v, w = (values.to(logit_p.device) for values in _legendre())
    inner = torch.sigmoid(temperature * torch.logit(v) - logit_p.to(torch.float64).unsqueeze(-1))
    keep = torch.sigmoid(-logit_p.to(torch.float64))
    first = (inner * w).sum(-1) / keep
    second = (inner * (2 * (1 - v) * w)).sum(-1) / keep.square()
    return first.to(logit_p.dtype), (second - first.square()).clamp_min(0).to(logit_p.dtype)
