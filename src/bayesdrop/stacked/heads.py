"""The last step of a stack: from outputs to losses and their gradients, for every noise model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["LOGITS", "Head", "make_head", "outputs_for"]

Level = Tensor | None
_LOG_2PI = math.log(2 * math.pi)
#: noise models whose outputs are logits
LOGITS = ("classes", "labels")


def outputs_for(noise: str, targets: int) -> int:
    """How many outputs a network needs for D targets (or K classes, or D labels)."""
    return 2 * targets if noise == "heteroscedastic" else targets


class Head(ABC):
    """-log p(y | output), M networks at a time. Values of a row are summed, as likelihoods do.

    Attributes:
        squared_error: (M,) sum of squared errors since `reset`, over rows and outputs; Gaussian noise only.
        count: how many errors that is, for each network.
    """

    def __init__(self) -> None:
        self.squared_error: Tensor | None = None
        self.count = 0

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        """-log p of every row, (M, B).

        Args:
            output: (M, B, outputs).
            y: (M, B, D), or labels (M, B).
            noise: (M, 1, D) log standard deviation of the noise, where there is one.
        """

    @abstractmethod
    def backward(
        self,
        output: Tensor,
        y: Tensor,
        noise: Tensor | None,
        weight: Tensor | None,
        noise_grad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The loss of every row, (M, B), and the gradient of their mean with respect to the output.

        Args:
            output: (M, B, outputs).
            y: (M, B, D), or labels (M, B).
            noise: as in `loss`.
            weight: (M, B) weights of the rows, of mean one over the data; None for ones.
            noise_grad: where the gradient of `noise` goes, if it is learned.
        """


class _Gaussian(Head):
    def loss(self, output: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        assert noise is not None
        error = (output - y).mul_((-noise).exp())
        value: Tensor = 0.5 * error.square_().sum(-1) + (noise + 0.5 * _LOG_2PI).sum(-1)
        return value

    def backward(
        self,
        output: Tensor,
        y: Tensor,
        noise: Tensor | None,
        weight: Tensor | None,
        noise_grad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        assert noise is not None
        error = output - y
        rows = output.shape[1]
        square = error.square()
        total = (square if weight is None else square * weight.unsqueeze(-1)).sum((1, 2))
        self.squared_error = total if self.squared_error is None else self.squared_error + total
        self.count += rows * output.shape[2]
        precision = (-2 * noise).exp()
        loss = 0.5 * (square * precision).sum(-1) + (noise + 0.5 * _LOG_2PI).sum(-1)
        grad = error.mul_(precision / rows)
        if noise_grad is not None:
            slope = (1 - square * precision).div_(rows)
            if weight is not None:
                slope.mul_(weight.unsqueeze(-1))
            torch.sum(slope, 1, keepdim=True, out=noise_grad)
        if weight is not None:
            grad.mul_(weight.unsqueeze(-1))
        return loss, grad


class _Heteroscedastic(Head):
    def loss(self, output: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        mean, log_variance = output.chunk(2, -1)
        terms = (mean - y).square_().mul_((-log_variance).exp()).add_(log_variance).add_(_LOG_2PI)
        return terms.sum(-1).mul_(0.5)

    def backward(
        self,
        output: Tensor,
        y: Tensor,
        noise: Tensor | None,
        weight: Tensor | None,
        noise_grad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        mean, log_variance = output.chunk(2, -1)
        precision = (-log_variance).exp_()
        error = mean - y
        scaled = error * precision
        fit = error.mul_(scaled)
        loss = (fit + log_variance).add_(_LOG_2PI).sum(-1).mul_(0.5)
        grad = torch.cat([scaled, fit.neg_().add_(1).mul_(0.5)], -1).div_(output.shape[1])
        if weight is not None:
            grad.mul_(weight.unsqueeze(-1))
        return loss, grad


class _Classes(Head):
    def loss(self, output: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        return -torch.log_softmax(output, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def backward(
        self,
        output: Tensor,
        y: Tensor,
        noise: Tensor | None,
        weight: Tensor | None,
        noise_grad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(output, -1)
        place = y.unsqueeze(-1)
        loss = -log_probs.gather(-1, place).squeeze(-1)
        grad = log_probs.exp_()
        grad.scatter_add_(-1, place, torch.full_like(place, -1, dtype=grad.dtype))
        grad.div_(output.shape[1])
        if weight is not None:
            grad.mul_(weight.unsqueeze(-1))
        return loss, grad


class _Labels(Head):
    """log(1 + exp(f)) - y f for every label, summed over the labels of a row."""

    def loss(self, output: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        return (softplus(output) - y * output).sum(-1)

    def backward(
        self,
        output: Tensor,
        y: Tensor,
        noise: Tensor | None,
        weight: Tensor | None,
        noise_grad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        loss = self.loss(output, y, noise)
        grad = torch.sigmoid(output).sub_(y).div_(output.shape[1])
        if weight is not None:
            grad.mul_(weight.unsqueeze(-1))
        return loss, grad


_HEADS: dict[str, type[Head]] = {
    "heteroscedastic": _Heteroscedastic,
    "classes": _Classes,
    "labels": _Labels,
}


def make_head(noise: str) -> Head:
    """The head of a noise model."""
    return _HEADS.get(noise, _Gaussian)()
