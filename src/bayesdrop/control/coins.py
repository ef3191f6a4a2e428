"""Coins: uniform numbers for the choices of every agent, made ahead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Coins"]

_AHEAD = 256


class Coins:
    """`count` numbers in [0, 1) for every agent and step; every agent has its own generator.

    Args:
        seeds: one for each of A agents.
        count: numbers of an agent in a step.

    Attributes:
        last: (A, count) the numbers of the latest step.
    """

    def __init__(self, seeds: Sequence[int], count: int) -> None:
        self._generators = [np.random.default_rng([0xC01, seed]) for seed in seeds]
        self._count = count
        self._ahead: NDArray[np.float64] = np.zeros((len(seeds), 0, count))
        self._step = 0
        self.last: NDArray[np.float64] = np.zeros((len(seeds), count))

    def next(self) -> NDArray[np.float64]:
        """(A, count) the numbers of the next step."""
        if self._step == self._ahead.shape[1]:
            self._ahead = np.stack([source.random((_AHEAD, self._count)) for source in self._generators])
            self._step = 0
        self.last = self._ahead[:, self._step]
        self._step += 1
        return self.last
