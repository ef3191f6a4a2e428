"""Unbiased gradients of an expected loss in the logits of Bernoulli masks.

A mask b keeps with chance 1 - p = sigmoid(a). Every estimator sees losses of a few passes and the random
numbers u behind their masks (b = 1 where u >= p), and gives d E[loss] / d logit p with logit p = -a.

    ARM         (f(1[u > 1 - s]) - f(1[u < s])) (u - 1/2)              s = sigmoid(a)
    DisARM      (f(b) - f(b')) (b - b') sigmoid(|a|) / 2               ARM with u integrated out
    LOO         sum_j (f_j - mean f) (b_j - s) / (n - 1)               n independent passes
    REINFORCE   f(b) (b - s)

Reference: Boluki et al. (2020), Eqs 7 and 8 (ARM: Yin & Zhou, 2019); Dong, Mnih & Tucker (2020) and Yin et
al. (2020) for DisARM / U2G; Kool, van Hoof & Welling (2019) for LOO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesdrop.errors import is_one_of, must, whole_number
from bayesdrop.functional.sums import padded_shape, summed_product
from bayesdrop.noise.bits import uniform_from_bits

__all__ = [
    "Estimator",
    "PathGradient",
    "UsedMask",
    "apply_learned",
    "check_passes",
    "disarm_slope",
    "is_antithetic",
    "rate_gradient",
]

Estimator = Literal["disarm", "arm", "loo", "reinforce"]
PathGradient = Literal["scale", "none", "missing"]


@dataclass(frozen=True, eq=False)
class UsedMask:
    """The mask that multiplied an input in one pass, and its random numbers."""

    bits: Tensor  #: the random numbers u, rows first
    mask: Tensor  #: kept (1 or 1 / (1 - p)) where u >= p, or 1 - u >= p in a mirrored pass


#: losses and masks of every pass, the rate and the scale of a mask -> d loss / d logit p, of the shape of p
_Formula = Callable[[Sequence[Tensor], Sequence[UsedMask], Tensor, Tensor], Tensor]


def is_antithetic(estimator: Estimator) -> bool:
    """Whether the second pass uses 1 - u of the first."""
    return estimator in ("arm", "disarm")


def check_passes(owner: str, estimator: str, num_passes: int | None) -> int:
    """How many passes the estimator makes; raise for a number that it cannot use."""
    least = {"disarm": 2, "arm": 2, "loo": 2, "reinforce": 1}
    if not is_one_of(estimator, least):
        raise ValueError(must(owner, "estimator", f"one of {', '.join(map(repr, least))}", estimator))
    fewest = least[estimator]
    if num_passes is None:
        return fewest
    # Only "loo" takes more than it needs.
    most, words = (None, f"at least {fewest}") if estimator == "loo" else (fewest, f"{fewest}")
    want = f"{words} for {estimator!r}"
    return whole_number(owner, "num_passes", num_passes, at_least=fewest, at_most=most, want=want)


def rate_gradient(
    estimator: Estimator, losses: Sequence[Tensor], used: Sequence[UsedMask], p: Tensor, *, inverted: bool
) -> Tensor:
    """The estimate of d sum_i E[loss_i] / d logit p.

    Args:
        estimator: its name.
        losses: of each pass: shape (N,), one loss a row; or shape (), one loss of all rows together.
        used: the masks of each pass, rows first; with (N,) losses, row i belongs to loss i. The second pass
            of an antithetic estimator is the mirrored one.
        p: chance of dropping; broadcasts against the masks.
        inverted: whether the masks are divided by 1 - p.

    Returns: shape of p.
    """
    return _FORMULAS[estimator](losses, used, p, 1 - p if inverted else torch.ones_like(p))


def disarm_slope(change: Tensor, p: Tensor) -> Tensor:
    """DisARM's estimate of d E[loss] / d logit p, from (f(b) - f(b')) (b - b') of a pair of mirrored masks.

    Args:
        change: that product for one mask, or its sum over the masks that share a rate.
        p: chance of dropping.
    """
    # sigmoid(|a|) is the larger of p and 1 - p; the sign turns d / da into d / dlogit p.
    return change * torch.maximum(p, 1 - p) * -0.5


def _contract(weights: Tensor, values: Tensor, p: Tensor) -> Tensor:
    """sum_i weights_i values_i, then over all positions that share a rate."""
    flat = values.flatten(1) if values.dim() > 1 else values.unsqueeze(0)
    summed = weights.to(flat.dtype) @ flat if weights.dim() else flat.sum(0) * weights
    if p.shape == values.shape[1:] and summed.dtype == p.dtype:
        return summed.reshape(p.shape)
    shape = padded_shape(p, values)
    return summed.reshape(1, *values.shape[1:]).sum_to_size(shape).reshape(p.shape).to(p.dtype)


def _disarm(losses: Sequence[Tensor], used: Sequence[UsedMask], p: Tensor, scale: Tensor) -> Tensor:
    difference = losses[0] - losses[1]
    kept, mirrored = (_contract(difference, one.mask, p) for one in used)
    return disarm_slope((kept - mirrored) * scale, p)


def _arm(losses: Sequence[Tensor], used: Sequence[UsedMask], p: Tensor, scale: Tensor) -> Tensor:
    return -_contract(losses[0] - losses[1], uniform_from_bits(used[0].bits).sub_(0.5), p)


def _loo(losses: Sequence[Tensor], used: Sequence[UsedMask], p: Tensor, scale: Tensor) -> Tensor:
    # The centred losses sum to zero, so that the masks need not be centred too.
    centre = torch.stack(list(losses)).mean(0)
    parts = [_contract(loss - centre, one.mask, p) for loss, one in zip(losses, used, strict=True)]
    return -torch.stack(parts).sum(0) * scale / (len(losses) - 1)


def _reinforce(losses: Sequence[Tensor], used: Sequence[UsedMask], p: Tensor, scale: Tensor) -> Tensor:
    return -_contract(losses[0], used[0].mask * scale - (1 - p), p)


_FORMULAS: dict[str, _Formula] = {"disarm": _disarm, "arm": _arm, "loo": _loo, "reinforce": _reinforce}


class _Learned(torch.autograd.Function):
    """x m, m = b / (1 - p): the path-wise part, through the scale; dm / dlogit p = m p."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logit_p: Tensor, m: Tensor, gradient: PathGradient) -> Tensor:
        ctx.save_for_backward(x, logit_p, m)
        ctx.gradient = gradient
        return x * m

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, logit_p, m = ctx.saved_tensors
        grad_x = grad * m
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None, None
        if ctx.gradient == "missing":
            raise RuntimeError(
                "LearnableDropout: a backward pass needs the gradient of the rates, but a mask has none. "
                "Use NegativeELBO or arm_loss, which estimate it from two passes, or switch the rates off: "
                "layer.logit_p.requires_grad_(False)."
            )
        if ctx.gradient == "none":
            return grad_x, None, None, None
        return grad_x, summed_product(grad_x, x, logit_p) * torch.sigmoid(logit_p), None, None


def apply_learned(x: Tensor, logit_p: Tensor, mask: Tensor, *, gradient: PathGradient) -> Tensor:
    """x m for a mask m without a graph; gradients in x, and in logit p through the scale of m.

    Args:
        x: the input.
        logit_p: of the drop rate; must broadcast against `x`.
        mask: z / (1 - p) or z; must broadcast against `x`.
        gradient: what backward passes give for logit p. "scale": the gradient through the division by 1 - p.
            "none": nothing, as the mask depends on the rate through z alone, which an estimator handles.
            "missing": an error, as there is no estimator for z.
    """
    out: Tensor = _Learned.apply(x, logit_p, mask, gradient)  # type: ignore[no-untyped-call]
    return out
