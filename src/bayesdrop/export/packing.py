"""The noise of all draws in its smallest form: masks as bits, eight to a byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayesdrop.noise import NoiseSource
from bayesdrop.trace import Leaf

__all__ = ["Packed", "noise_of", "packed"]


@dataclass(frozen=True, eq=False)
class Packed:
    """Noise of T draws, (T, *shape): bits times a scale, or the numbers themselves.

    Attributes:
        shape: of one draw.
        bits: (T, bytes of a draw) eight elements a byte, the first in the lowest bit; None if it is no mask.
        scale: what a kept element is multiplied by: (), or `shape` where it differs from unit to unit.
        numbers: (T, *shape); None if it is a mask.
    """

    shape: tuple[int, ...]
    bits: Tensor | None
    scale: Tensor | None
    numbers: Tensor | None

    @property
    def num_bytes(self) -> int:
        """How many bytes it takes."""
        parts = (self.bits, self.scale, self.numbers)
        return sum(part.numel() * part.element_size() for part in parts if part is not None)

    @property
    def num_draws(self) -> int:
        """T."""
        held = self.bits if self.bits is not None else self.numbers
        assert held is not None
        return held.shape[0]


def noise_of(leaf: Leaf, num_draws: int, seed: int) -> Tensor:
    """(T, *shape) the noise of a site, as `predict` has it with this seed."""
    made = NoiseSource(seed, most=num_draws).rows(leaf.key, 0, num_draws, leaf.shape, leaf.sample)
    return made.to(leaf.dtype)


def packed(noise: Tensor) -> Packed:
    """Noise (T, *shape) in its smallest form. Exact: what is unpacked is what was packed."""
    draws, shape = noise.shape[0], tuple(noise.shape[1:])
    kept = noise != 0
    scale = noise.amax(0)
    if not bool((kept * scale == noise).all()):
        return Packed(shape, None, None, noise.contiguous())
    # A unit that no draw keeps has no scale of its own.
    known = scale != 0
    if not bool(known.any()):
        scale = torch.ones((), dtype=noise.dtype)
    elif bool((scale[known] == scale[known][0]).all()):
        scale = scale[known][0].clone()
    flat = kept.reshape(draws, -1).numpy()
    bits = np.packbits(flat, axis=1, bitorder="little")
    return Packed(shape, torch.from_numpy(bits), scale, None)
