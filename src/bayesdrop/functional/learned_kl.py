"""The divergence of dropout at a learned rate, with a gradient that costs one pass over the weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["learned_dropout_kl", "square_sum"]


class _SquareSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, weight: Tensor, columns: bool) -> Tensor:
        ctx.save_for_backward(weight)
        if columns:
            return weight.square().sum(0)
        flat = weight.reshape(-1)
        return torch.dot(flat, flat)

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return weight * (2 * grad), None


def square_sum(weight: Tensor, *, columns: bool = False) -> Tensor:
    """|W|^2 over all entries, shape (), or over those of each column, (K,)."""
    value: Tensor = _SquareSum.apply(weight, columns)  # type: ignore[no-untyped-call]
    return value


class _LearnedKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        weight: Tensor,
        logit_p: Tensor,
        units: int,
        precision: float,
        raw: bool,
    ) -> Tensor:
        keep = torch.sigmoid(-logit_p)
        scale = (keep if raw else keep.reciprocal()) * precision
        if logit_p.dim():
            squares = weight.square().sum(0)
        else:
            flat = weight.reshape(-1)
            squares = torch.dot(flat, flat) / units
        penalty = 0.5 * scale * squares
        p = 1 - keep
        entropy = torch.nn.functional.softplus(logit_p) - logit_p * p
        # The derivative of the scale is p / (1 - p) of inverted masks and -p (1 - p) of raw ones.
        slope = penalty * p * (-1 if raw else 1) + logit_p * p * keep
        ctx.save_for_backward(weight, scale, slope)
        ctx.units = units  # type: ignore[attr-defined]
        total = (penalty - entropy).sum()
        return total if logit_p.dim() else total * units

    @staticmethod
    @once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        weight, scale, slope = ctx.saved_tensors  # type: ignore[attr-defined]
        for_weight, for_rate = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        shared = 1 if slope.dim() else ctx.units  # type: ignore[attr-defined]
        return (
            weight * (grad * scale) if for_weight else None,
            slope * (grad * shared) if for_rate else None,
            None,
            None,
            None,
        )


def learned_dropout_kl(
    weight: Tensor, logit_p: Tensor, units: int, length_scale: float, *, raw: bool = False
) -> Tensor:
    """sum_k [ l^2 |W_k|^2 / (2 (1 - p_k)) - H(p_k) ], as a function of logit p. Shape ().

    The sum of `bernoulli_dropout_kl` over units, but accurate at any rate, and with a gradient that costs one
    pass over the weights.

    Args:
        weight: the weights; of shape (J, K) where every unit has its own rate, of any shape otherwise.
        logit_p: log(p / (1 - p)) of the chance of dropping: shape () or (K,).
        units: K.
        length_scale: l.
        raw: `weight` is M = W / (1 - p), as for masks without a scale: (1 - p) l^2 |M|^2 / 2 - H(p).

    Reference: Gal, Hron & Kendall (2017), Eqs 3 and 4; Boluki et al. (2020), section 2.2.
    """
    value: Tensor = _LearnedKL.apply(weight, logit_p, units, length_scale**2, raw)  # type: ignore[no-untyped-call]
    return value
