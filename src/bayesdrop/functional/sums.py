"""Sums of products over the axes along which a parameter is shared."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["padded_shape", "summed_product"]


def padded_shape(like: Tensor, values: Tensor) -> tuple[int, ...]:
    """The shape of `like` with leading ones, as many axes as `values`."""
    return (1,) * (values.dim() - like.dim()) + tuple(like.shape)


def summed_product(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
    """Sum of a b over all axes along which `like` broadcasts. Shape and dtype of `like`.

    `b` may broadcast against `a`, as the mask of a channel against its pixels.
    """
    if like.numel() == 1:
        a = a.sum_to_size(b.shape)
        return torch.dot(a.reshape(-1), b.reshape(-1)).to(like.dtype).reshape(like.shape)
    summed = (a * b).sum_to_size(padded_shape(like, a))
    return summed.reshape(like.shape).to(like.dtype)
