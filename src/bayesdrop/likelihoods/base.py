"""Likelihood: what a network's output means, and how probable a target is under it."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from bayesdrop.errors import must

__all__ = ["ClassLikelihood", "Likelihood"]


class Likelihood(nn.Module):
    """p(y | f) for the output f of a network. `N` rows on axis 0."""

    @abstractmethod
    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y | output) in nats, rows on axis 0; a label or a vector of targets counts as one value."""

    @abstractmethod
    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y given the output, of equal shape."""

    @abstractmethod
    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One y for every output."""

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        """`log_prob`."""
        return self.log_prob(output, y)


class ClassLikelihood(Likelihood):
    """A likelihood over classes whose logits are the output.

    Args:
        class_axis: the axis of the logits, 1 as in `torch.nn.functional.cross_entropy`.
    """

    def __init__(self, *, class_axis: int = 1) -> None:
        super().__init__()
        if not isinstance(class_axis, int) or class_axis == 0:
            raise ValueError(must(type(self).__name__, "class_axis", "an axis other than 0", class_axis))
        self.class_axis = class_axis

    def log_probs(self, output: Tensor, axis: int | None = None) -> Tensor:
        """Log-softmax over the class axis, or over `axis` where draws come before the rows."""
        if axis is not None:
            return torch.log_softmax(output, axis)
        if output.dim() < 2 or not -output.dim() < self.class_axis < output.dim():
            want = f"logits with classes on axis {self.class_axis}"
            raise ValueError(must(type(self).__name__, "output", want, tuple(output.shape)))
        return torch.log_softmax(output, self.class_axis)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Mean p_k and variance p_k (1 - p_k) of the indicator of each class. Shapes as `output`."""
        probs = self.log_probs(output).exp()
        return probs, probs * (1 - probs)
