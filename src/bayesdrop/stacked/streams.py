"""Random numbers of every network of a stack: they depend on its own seed, not on the networks beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["NoiseStreams", "RowStream", "generator"]

_PURPOSES = {"init": 0, "order": 1, "noise": 2}
#: bytes of noise that are made ahead
_AHEAD = 8 * 2**20


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A network's generator for its first weights ("init"), the order of its rows ("order") or its noise."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([_PURPOSES[purpose], seed])))


class RowStream:
    """The rows of a network's data, shuffled again and again, end to end: every batch is full.

    Args:
        seed: of the order.
        rows: (N,) places of the network's rows in the table that all networks share.
    """

    def __init__(self, seed: int, rows: NDArray[np.int64]) -> None:
        self._generator = generator(seed, "order")
        self._rows = rows
        self._left = rows[:0]

    def take(self, count: int) -> NDArray[np.int64]:
        """Places of the next `count` rows, (count,)."""
        parts = [self._left]
        found = len(self._left)
        while found < count:
            parts.append(self._generator.permutation(self._rows))
            found += len(self._rows)
        joined = np.concatenate(parts)
        self._left = joined[count:]
        return joined[:count]


class NoiseStreams:
    """Noise of the steps to come, for all networks of a stack.

    Keep masks are 16 random bits an element, compared with round(p 2^16): p is resolved to 2^-16.

    Args:
        seeds: of the networks.
        shapes: of the noise of every layer for one network and step; None for a layer without noise.
        normal: whether noise is standard normal numbers, rather than random bits.
    """

    def __init__(
        self, seeds: Sequence[int], shapes: Sequence[tuple[int, int] | None], *, normal: bool
    ) -> None:
        self._generators = [generator(seed, "noise") for seed in seeds]
        self._shapes = list(shapes)
        self._normal = normal
        sizes = [0 if shape is None else shape[0] * shape[1] for shape in shapes]
        self._starts = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
        # Whole 64-bit words a step, so that the stream does not depend on how many steps are made at a time.
        self._length = -(-self._starts[-1] // 4) * 4
        #: noise of every layer, step by step; None for a layer without noise
        self._made: list[tuple[Tensor, ...] | None] = []

    def steps_ahead(self) -> int:
        """How many steps `make` should make at a time."""
        size = max(1, self._length * (4 if self._normal else 2) * len(self._generators))
        return max(1, _AHEAD // size)

    def make(self, steps: int) -> None:
        """Make the noise of the next steps; `of_step` then gives it, counted from 0."""
        count = steps * self._length
        shape = (len(self._generators), steps, self._length)
        if self._normal:
            rows = [made.standard_normal(count, dtype=np.float32) for made in self._generators]
            noise = torch.from_numpy(np.stack(rows)).view(shape)
        else:
            words = np.empty((len(self._generators), count // 4), np.uint64)
            for place, made in enumerate(self._generators):
                words[place] = made.bit_generator.random_raw(count // 4)
            noise = torch.from_numpy(words.view(np.int16)).view(shape)
        self._made = [
            None
            if one is None
            else noise[..., start : start + one[0] * one[1]].view(*shape[:2], *one).unbind(1)
            for start, one in zip(self._starts, self._shapes, strict=False)
        ]

    def of_step(self, step: int) -> list[Tensor | None]:
        """Noise of every layer, (M, *shape): int16 words, or normal numbers in single precision."""
        return [None if layer is None else layer[step] for layer in self._made]

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these networks alone."""
        self._generators = [self._generators[place] for place in places]
