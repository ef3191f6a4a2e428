"""Noise keyed by (seed, site, draw): order-free, and cheap for many draws at once."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

__all__ = ["NoiseSource", "Sampler", "block_size"]


class Sampler(Protocol):
    """Makes noise of a shape on the CPU; leading axes beyond the site's own are independent draws.

    A `bayesdrop.functional.noise.Noise` also knows its mean and variance, which is what prediction
    without draws needs.
    """

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator, /) -> Tensor: ...


_BLOCK_ELEMENTS = 16384
_BLOCK_DRAWS = 256


def block_size(shape: tuple[int, ...]) -> int:
    """How many consecutive draws of a site come from one generator.

    Seeding a generator costs as much as a thousand random numbers, so that small masks are made for
    many draws at once. The number depends on the shape alone, never on how many draws are asked for.
    """
    elements = max(1, torch.Size(shape).numel())
    return max(1, min(_BLOCK_DRAWS, _BLOCK_ELEMENTS // elements))


class NoiseSource:
    """All noise of one seed: `rows` gives any draws of any site, in any order.

    Args:
        seed: names the sequence of functions.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._bits = np.random.SFC64(0)
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state
        self._latest: dict[tuple[str, tuple[int, ...]], tuple[int, Tensor]] = {}

    def rows(self, site: str, first: int, count: int, shape: tuple[int, ...], sample: Sampler) -> Tensor:
        """Noise of draws first, ..., first + count - 1. Shape (count, *shape), on the CPU."""
        size = block_size(shape)
        parts = []
        for block in range(first // size, (first + count - 1) // size + 1):
            start = max(first - block * size, 0)
            stop = min(first + count - block * size, size)
            parts.append(self._block(site, block, (size, *shape), sample)[start:stop])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _block(self, site: str, block: int, shape: tuple[int, ...], sample: Sampler) -> Tensor:
        latest = self._latest.get((site, shape))
        if latest is not None and latest[0] == block:
            return latest[1]
        key = hashlib.blake2b(f"{self.seed}/{site}/{block}".encode(), digest_size=24).digest()
        # Three words of a cryptographic hash and a counter: a state as good as any of SFC64's.
        self._state["state"]["state"][:] = (*np.frombuffer(key, np.uint64), 1)
        self._state["has_uint32"] = 0
        self._bits.state = self._state
        noise = sample(shape, self._generator)
        # A block of one draw is not asked for twice by a loop over draws: keeping it would only hold memory.
        if shape[0] > 1:
            self._latest[site, shape] = (block, noise)
        return noise
