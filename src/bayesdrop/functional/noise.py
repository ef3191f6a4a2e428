"""Noise: how it is sampled, and its mean and variance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "GaussianNoise",
    "KeepNoise",
    "Noise",
    "NormalNoise",
    "gaussian_multiplier",
    "keep_mask",
    "standard_normal",
]

_RESOLUTION = 2**32


def keep_mask(p: Tensor, shape: Sequence[int], generator: np.random.Generator | None = None) -> Tensor:
    """z / (1 - p) with z = 0 with probability p, else 1.

    Args:
        p: chance of dropping; must broadcast against `shape`.
        shape: of the mask.
        generator: where the randomness comes from (the mask is then on the CPU); the global generator
            of p's device if None.

    With a generator, p is resolved to 2^-32: 32 random bits are compared with round(p 2^32). Without
    one it is resolved to 2^-24, the spacing of the single-precision uniforms that are compared with p.
    """
    if generator is None:
        uniform = torch.rand(tuple(shape), device=p.device, dtype=torch.float32)
        keep = 1 - p
        # p = 1 never keeps anything; its scale is irrelevant, and 0 * inf would be NaN.
        scale = torch.where(keep > 0, keep, 1).reciprocal()
        return (uniform >= p) * scale
    count = math.prod(shape)
    words = generator.bit_generator.random_raw((count + 1) // 2)
    bits = words.view(np.uint32)[:count].reshape(tuple(shape))
    threshold, scale = _threshold_and_scale(p)
    return torch.from_numpy(np.multiply(bits >= threshold, scale))


def _threshold_and_scale(p: Tensor) -> tuple[Any, Any]:
    """The smallest word that is kept, and 1 / (1 - p) in single precision unless p has more."""
    kind: Any = np.float64 if p.dtype == torch.float64 else np.float32
    if p.dim() == 0:
        # Python numbers: arrays of no dimension take ten times as long.
        rate = p.item()
        keep = kind(1) - kind(rate)
        scale = kind(1) / keep if keep > 0 else kind(0)
        return np.uint32(min(round(rate * _RESOLUTION), _RESOLUTION - 1)), scale
    rates = p.detach().cpu().to(torch.float64).numpy()
    words = np.minimum(np.rint(rates * _RESOLUTION), _RESOLUTION - 1).astype(np.uint32)
    keeps = (1 - rates).astype(kind)
    return words, np.divide(kind(1), keeps, out=np.zeros_like(keeps), where=keeps > 0)


def standard_normal(
    shape: Sequence[int], generator: np.random.Generator | None, device: torch.device
) -> Tensor:
    """N(0, 1) in single precision: on the CPU from `generator`, on `device` from the global one if None."""
    if generator is None:
        return torch.randn(tuple(shape), device=device, dtype=torch.float32)
    return torch.from_numpy(generator.standard_normal(tuple(shape), dtype=np.float32))


def gaussian_multiplier(
    p: Tensor, shape: Sequence[int], generator: np.random.Generator | None = None
) -> Tensor:
    """N(1, p / (1 - p)) noise: the first two moments of `keep_mask`.

    Reference: Gal & Ghahramani (2015), section 4.1; Srivastava et al. (2014).
    """
    if generator is not None:
        p = p.cpu()
    return 1 + (p / (1 - p)).sqrt() * standard_normal(shape, generator, p.device)


class Noise(ABC):
    """A sampler that knows its moments: elements of a noise are independent of each other."""

    @abstractmethod
    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """Noise of a shape: on the CPU from `generator`, else from the global one."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """E[z]; broadcasts against the shape of the noise."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Var[z]; broadcasts against the shape of the noise."""


@dataclass(frozen=True, eq=False)
class KeepNoise(Noise):
    """`keep_mask` at the rate p: mean one, variance p / (1 - p); always zero at p = 1."""

    p: Tensor

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """See `keep_mask`."""
        return keep_mask(self.p, shape, generator)

    @property
    def mean(self) -> Tensor:
        """1, or 0 where nothing is kept."""
        return (self.p < 1).to(self.p.dtype)

    @property
    def variance(self) -> Tensor:
        """p / (1 - p)."""
        return torch.where(self.p < 1, self.p / (1 - self.p), 0)


@dataclass(frozen=True, eq=False)
class GaussianNoise(Noise):
    """`gaussian_multiplier` at the rate p: N(1, p / (1 - p))."""

    p: Tensor

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """See `gaussian_multiplier`."""
        return gaussian_multiplier(self.p, shape, generator)

    @property
    def mean(self) -> Tensor:
        """1."""
        return torch.ones_like(self.p)

    @property
    def variance(self) -> Tensor:
        """p / (1 - p)."""
        return self.p / (1 - self.p)


@dataclass(frozen=True)
class NormalNoise(Noise):
    """N(0, 1), on `device` where the global generator makes it."""

    device: torch.device

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """See `standard_normal`."""
        return standard_normal(shape, generator, self.device)

    @property
    def mean(self) -> Tensor:
        """0."""
        return torch.zeros((), device=self.device)

    @property
    def variance(self) -> Tensor:
        """1."""
        return torch.ones((), device=self.device)
