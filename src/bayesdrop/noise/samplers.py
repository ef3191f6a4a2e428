"""Noise: how it is sampled, and its mean and variance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bayesdrop.noise.bits import from_bits, random_bits, runs_plainly

__all__ = [
    "FixedMasks",
    "GaussianMultiplier",
    "KeepNoise",
    "Noise",
    "NormalNoise",
    "ScaledKeepNoise",
    "gaussian_multiplier",
    "keep_mask",
    "standard_normal",
]


def keep_mask(p: Tensor, shape: Sequence[int], generator: np.random.Generator | None = None) -> Tensor:
    """Masks z / (1 - p), where z is 0 with probability p, else 1.

    Args:
        p: chance of dropping; must broadcast against `shape`.
        shape: of the mask.
        generator: where the randomness comes from (the mask is then on the CPU); the global generator
            of p's device if None.

    p is resolved to 2^-32: 32 random bits are compared with round(p 2^32). Away from the CPU it is resolved
    to 2^-24, the spacing of the single-precision uniforms that are compared with p.
    """
    return from_bits(random_bits(shape, p.device, generator), p)


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
    elif p.dim() == 0 and not p.requires_grad and runs_plainly(p.device):
        # One pass over memory instead of three.
        return torch.empty(tuple(shape), dtype=torch.float32).normal_(1.0, (p / (1 - p)).sqrt().item())
    return 1 + (p / (1 - p)).sqrt() * standard_normal(shape, generator, p.device)


class Noise(ABC):
    """A sampler that knows its mean and variance; the elements of its noise are independent."""

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
    """`keep_mask` at the rate p: mean one, variance p / (1 - p); always zero at p = 1.

    Attributes:
        p: chance of dropping.
        start: where each position of a sequence has its own noise, whatever the sequence's length: the
            position that the noise begins with. None for noise without positions.
        tiled: whether it is noise of pairs of positions, as of attention weights.
    """

    is_mask: ClassVar[bool] = True

    p: Tensor
    start: int | None = None
    tiled: bool = False

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
class ScaledKeepNoise(Noise):
    """A mask whose distance from one is scaled: 1 + s (z / (1 - p) - 1), of variance s^2 p / (1 - p).

    Attributes:
        p: chance that a unit is dropped.
        scale: s.
    """

    p: Tensor
    scale: float

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """From the random numbers of `keep_mask`."""
        return keep_mask(self.p, shape, generator).sub_(1).mul_(self.scale).add_(1)

    @property
    def mean(self) -> Tensor:
        """1."""
        return torch.ones_like(self.p)

    @property
    def variance(self) -> Tensor:
        """s^2 p / (1 - p)."""
        return self.scale**2 * self.p / (1 - self.p)


@dataclass(frozen=True, eq=False)
class FixedMasks:
    """A few masks that take turns: draw t has the mask t mod M. Nothing is random, whatever the seed.

    It is no `Noise`: the elements of a mask are not independent.

    Attributes:
        masks: (M, K).
    """

    #: `NoiseSource` asks for the masks of its draws, and gives no random numbers
    is_fixed: ClassVar[bool] = True

    masks: Tensor

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """The masks of a batch in training: as many groups of rows, one after another, as there are masks."""
        count, units = self.masks.shape
        rows = max(1, math.prod(shape) // units)
        groups = torch.arange(rows, device=self.masks.device) * count // rows
        return self.masks[groups].reshape(shape)

    def of_draws(self, draws: range, shape: tuple[int, ...]) -> Tensor:
        """The masks of some draws, (len(draws), *shape), on the CPU; rows of their own go on from mask t."""
        count, units = self.masks.shape
        rows = torch.arange(math.prod(shape) // units)
        which = (torch.tensor(draws).unsqueeze(1) + rows) % count
        return self.masks.cpu()[which].reshape(len(draws), *shape)


@dataclass(frozen=True, eq=False)
class GaussianMultiplier(Noise):
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
    """N(0, 1); on `device` if it comes from the global generator."""

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
