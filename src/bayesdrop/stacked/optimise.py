"""Adam for a stack: every network has its own learning rate and its own schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.stacked.parameters import RATES, Parameters
from bayesdrop.stacked.settings import Settings

__all__ = ["Adam", "learning_rates"]

_WARM, _START, _END = 0.3, 1 / 25, 1e-4


def learning_rates(settings: Settings, first: int, count: int, total: int) -> NDArray[np.float64]:
    """The learning rate of steps first, ..., first + count - 1 of `total`, counted from 0.

    "one-cycle" rises from lr / 25 over the first 30 % of the steps and falls to lr / 250,000, both as
    cosines.
    """
    if settings.schedule == "constant":
        return np.full(count, settings.lr)
    steps = np.arange(first, first + count)
    top = max(_WARM * total - 1, 0.0)
    rising = np.clip(steps / top, 0, 1) if top > 0 else np.ones(count)
    falling = np.clip((steps - top) / max(total - 1 - top, 1e-9), 0, 1)
    up = 1 + (_START - 1) * (1 + np.cos(math.pi * rising)) / 2
    low = _START * _END
    down = low + (1 - low) * (1 + np.cos(math.pi * falling)) / 2
    value: NDArray[np.float64] = settings.lr * np.where(steps < top, up, down)
    return value


class Adam:
    """Adam's moments of all networks, which have taken the same number of steps.

    Args:
        settings: of the networks.
        parameters: what is trained.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, settings: Sequence[Settings], parameters: Parameters) -> None:
        self._settings = list(settings)
        self._parameters = parameters
        self._mean = Parameters(parameters.layout, len(settings), parameters.vector.dtype)
        self._square = Parameters(parameters.layout, len(settings), parameters.vector.dtype)
        self._update = Parameters(parameters.layout, len(settings), parameters.vector.dtype)
        self._steps = 0
        dtype = parameters.vector.dtype
        ratios = [10.0 if one.rate_lr is None else one.rate_lr / one.lr for one in settings]
        self._rate_ratio = torch.tensor(ratios, dtype=dtype).view(-1, 1, 1)
        limits = [math.inf if one.clip_norm is None else one.clip_norm for one in settings]
        self._limit = torch.tensor(limits, dtype=dtype) if min(limits) < math.inf else None

    def step(self, grads: Parameters, lr: Tensor) -> None:
        """One step.

        Args:
            grads: gradients; overwritten where they are clipped.
            lr: (M,) learning rates.
        """
        if self._limit is not None:
            factor = (self._limit / (grads.norms() + 1e-12)).clamp_max(1).view(-1, 1, 1)
            for block in grads.blocks.values():
                block.mul_(factor)
        self._steps += 1
        mean, square, update = self._mean.vector, self._square.vector, self._update.vector
        mean.lerp_(grads.vector, 1 - self.beta1)
        square.mul_(self.beta2).addcmul_(grads.vector, grads.vector, value=1 - self.beta2)
        torch.sqrt(square, out=update)
        correction = math.sqrt(1 - self.beta2**self._steps)
        update.add_(self.epsilon * correction)
        torch.div(mean, update, out=update)
        size = -lr.view(-1, 1, 1) * (correction / (1 - self.beta1**self._steps))
        for name, block in self._parameters.blocks.items():
            factor = size * self._rate_ratio if name.startswith(RATES) else size
            block.addcmul_(self._update[name], factor)

    def kept(self, places: Tensor, parameters: Parameters) -> Adam:
        """The moments of some of the networks, for their parameters."""
        copy = Adam([self._settings[place] for place in places.tolist()], parameters)
        copy._mean, copy._square = self._mean.kept(places), self._square.kept(places)
        copy._steps = self._steps
        return copy
