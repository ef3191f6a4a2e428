"""A linear map of a masked input, with the gradient in the rate taken from the gradient of the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesdrop.functional.products import linear, matmul

__all__ = ["masked_linear"]


class _MaskedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, logit_p: Tensor, m: Tensor, inverted: bool
    ) -> Tensor:
        masked = x * m
        ctx.save_for_backward(masked, weight, logit_p, m)
        ctx.inverted = inverted
        return linear(masked, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        masked, weight, logit_p, m = ctx.saved_tensors
        for_x, for_weight, for_bias, for_rate = ctx.needs_input_grad[:4]
        for_rate = for_rate and ctx.inverted
        grad_x = matmul(grad, weight).mul_(m) if for_x else None
        grad_weight = matmul(grad.t(), masked) if for_weight or for_rate else None
        grad_logit = None
        if for_rate and grad_weight is not None:
            # dh / dlogit p = p (h - b), and sum_n grad_n W_k x_nk m_nk is W_k times its own gradient.
            product = weight * grad_weight
            per_rate = product.sum(0) if logit_p.dim() else product.sum()
            grad_logit = per_rate * torch.sigmoid(logit_p)
        return (
            grad_x,
            grad_weight if for_weight else None,
            grad.sum(0) if for_bias else None,
            grad_logit,
            None,
            None,
        )


def masked_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, logit_p: Tensor, m: Tensor, *, inverted: bool
) -> Tensor:
    """W (x m) + b for masks m = z / (1 - p), or m = z if not `inverted`.

    The gradient in logit p is only the part through the scale: p_k sum_j W_jk dL/dW_jk. It needs no further
    matrix product.

    Args:
        x: (N, K).
        weight: (J, K).
        bias: (J,) or None.
        logit_p: shape () or (K,).
        m: (N, K), without a graph.
        inverted: whether m is divided by 1 - p.

    Returns: (N, J).
    """
    out: Tensor = _MaskedLinear.apply(x, weight, bias, logit_p, m, inverted)  # type: ignore[no-untyped-call]
    return out
