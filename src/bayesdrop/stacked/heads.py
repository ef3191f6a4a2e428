"""The last step of a stack: from outputs to losses and their gradients, for every noise model."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesdrop.likelihoods.gaussian import gaussian_log_prob

__all__ = ["LOGITS", "Head", "expected", "make_head", "outputs_for"]

#: noise models whose outputs are logits
LOGITS = ("classes", "labels")


def outputs_for(noise: str, targets: int) -> int:
    """How many outputs a network needs for D targets (or K classes, or D labels)."""
    return 2 * targets if noise == "heteroscedastic" else targets


def expected(output: Tensor, noise: str, targets: int) -> Tensor:
    """(..., D) what an output expects: a target, or the probabilities of classes or labels."""
    if noise == "classes":
        return torch.softmax(output, -1)
    return torch.sigmoid(output) if noise == "labels" else output[..., :targets]


class Head(ABC):
    """-log p(y | output), M networks at a time. Values of a row are summed, as likelihoods do."""

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        """-log p of every row, (M, B).

        Args:
            output: (M, B, outputs).
            y: (M, B, D), or labels (M, B).
            level: (M, 1, D) log standard deviation of the noise, where there is one.
        """

    @abstractmethod
    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        """Derivative of `loss` in the output, (M, B, outputs), in memory of its own. Arguments as there."""


class _Gaussian(Head):
    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        assert level is not None
        return _gaussian_loss(output, 2 * level, y)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        assert level is not None
        return (output - y).mul_((-2 * level).exp())


class _Heteroscedastic(Head):
    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        mean, log_variance = output.chunk(2, -1)
        return _gaussian_loss(mean, log_variance, y)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        mean, log_variance = output.chunk(2, -1)
        error = mean - y
        scaled = (-log_variance).exp_().mul_(error)
        return torch.cat([scaled, error.mul_(scaled).neg_().add_(1).mul_(0.5)], -1)


class _Classes(Head):
    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        return -torch.log_softmax(output, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        place = y.unsqueeze(-1)
        probs = torch.softmax(output, -1)
        return probs.scatter_add_(-1, place, torch.full_like(place, -1, dtype=probs.dtype))


class _Labels(Head):
    """log(1 + exp(f)) - y f for every label, summed over the labels of a row."""

    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        return (softplus(output) - y * output).sum(-1)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        return torch.sigmoid(output).sub_(y)


def _gaussian_loss(mean: Tensor, log_variance: Tensor, y: Tensor) -> Tensor:
    """`gaussian_log_prob` of every row of every network, negated: (M, B)."""
    rows = mean.shape[:2]
    flat = (part.expand_as(mean).reshape(-1, mean.shape[2]) for part in (mean, log_variance, y))
    return gaussian_log_prob(*flat).neg_().view(rows)


_HEADS: dict[str, type[Head]] = {
    "heteroscedastic": _Heteroscedastic,
    "classes": _Classes,
    "labels": _Labels,
}


def make_head(noise: str) -> Head:
    """The head of a noise model."""
    return _HEADS.get(noise, _Gaussian)()
