"""The two kinds of multiplicative noise, each of mean one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["gaussian_multiplier", "keep_mask"]


def keep_mask(p: Tensor, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """z / (1 - p) with z = 0 with probability p, else 1.

    Args:
        p: chance of dropping; must broadcast against `shape`.
        shape: of the mask.
        generator: where the randomness comes from; the global generator of p's device if None.

    p is resolved to 2^-24, the spacing of the single-precision uniforms that are compared with it.
    """
    uniform = torch.rand(tuple(shape), generator=generator, device=p.device, dtype=torch.float32)
    keep = 1 - p
    # p = 1 never keeps anything; its scale is irrelevant, and 0 * inf would be NaN.
    scale = torch.where(keep > 0, keep, 1).reciprocal()
    return (uniform >= p) * scale


def gaussian_multiplier(p: Tensor, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """N(1, p / (1 - p)) noise: the first two moments of `keep_mask`.

    Reference: Gal & Ghahramani (2015), section 4.1; Srivastava et al. (2014).
    """
    normal = torch.randn(tuple(shape), generator=generator, device=p.device, dtype=p.dtype)
    return 1 + (p / (1 - p)).sqrt() * normal
