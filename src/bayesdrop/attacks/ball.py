"""Balls around the inputs: the steepest step in a norm, projection onto the ball, random points inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

__all__ = ["BALLS", "Ball", "MaxBall", "Norm", "RootBall"]

Norm = Literal["linf", "l2"]


class Ball(ABC):
    """All changes of a row whose norm is at most its radius, row by row."""

    @abstractmethod
    def steepest(self, gradient: Tensor) -> Tensor:
        """The change of norm one that raises a linear function most; 0 where its gradient is 0."""

    @abstractmethod
    def project(self, change: Tensor, radius: float) -> Tensor:
        """The nearest change inside the ball."""

    @abstractmethod
    def uniform(self, like: Tensor, radius: float, generator: torch.Generator) -> Tensor:
        """Changes drawn uniformly from the ball, made on the CPU."""


class MaxBall(Ball):
    """No entry changes by more than the radius: max |d|."""

    def steepest(self, gradient: Tensor) -> Tensor:
        """The signs of the gradient."""
        return gradient.sign()

    def project(self, change: Tensor, radius: float) -> Tensor:
        """Entry by entry."""
        return change.clamp(-radius, radius)

    def uniform(self, like: Tensor, radius: float, generator: torch.Generator) -> Tensor:
        """Entry by entry."""
        return _random(torch.rand, like, generator).mul(2).sub(1).mul(radius)


class RootBall(Ball):
    """The root of the sum of squares of a row's changes is at most the radius."""

    def steepest(self, gradient: Tensor) -> Tensor:
        """The gradient, scaled to length one. A tiny one is scaled up first, as its square would be 0."""
        largest = gradient.abs().flatten(1).amax(1)
        scaled = gradient / _per_row(torch.where(largest > 0, largest, 1.0), gradient)
        length = _length(scaled)
        return scaled / _per_row(torch.where(length > 0, length, 1.0), gradient)

    def project(self, change: Tensor, radius: float) -> Tensor:
        """The change, scaled down to the radius if it is longer."""
        length = _length(change)
        return change * _per_row(torch.where(length > radius, radius / length, 1.0), change)

    def uniform(self, like: Tensor, radius: float, generator: torch.Generator) -> Tensor:
        """A random direction, times a length whose d-th power is uniform in d dimensions."""
        direction = _random(torch.randn, like, generator)
        share = torch.rand(len(like), generator=generator, dtype=torch.float64)
        length = radius * share.pow(1 / max(1, like[0].numel())).to(like.dtype).to(like.device)
        return self.steepest(direction) * _per_row(length, like)


BALLS: dict[str, Ball] = {"linf": MaxBall(), "l2": RootBall()}


def _length(change: Tensor) -> Tensor:
    return change.flatten(1).square().sum(1).sqrt()


def _per_row(value: Tensor, like: Tensor) -> Tensor:
    return value.reshape(-1, *[1] * (like.dim() - 1))


def _random(make: object, like: Tensor, generator: torch.Generator) -> Tensor:
    assert callable(make)
    made: Tensor = make(like.shape, generator=generator, dtype=torch.float64)
    return made.to(like.dtype).to(like.device)
