"""Between and after the weight layers of a stack: non-linearities, and the loss of the outputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu, softplus

from bayesdrop.likelihoods.gaussian import gaussian_log_prob

__all__ = [
    "ACTIVATIONS",
    "LOGITS",
    "ActivationPass",
    "Head",
    "apply_activation",
    "expected",
    "make_head",
    "outputs_for",
]

#: the module that each name stands for
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}
_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda h: h.clamp_min_(0),
    "silu": lambda h: silu(h, inplace=True),
    "gelu": gelu,
    "tanh": torch.tanh_,
}

#: noise models whose outputs are logits
LOGITS = ("classes", "labels")


def apply_activation(name: str, h: Tensor) -> Tensor:
    """The non-linearity of that name; `h` may be overwritten."""
    return _IN_PLACE[name](h)


class ActivationPass:
    """One use of a non-linearity f, with its derivative; memory is used again at every step.

    Where the derivative is known from f(h) alone (ReLU, tanh), f(h) overwrites h.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept = self._value = torch.empty(0)
        ops: Any = torch.ops.aten
        self._forward = {"silu": ops.silu.out, "gelu": ops.gelu.out}.get(name)
        backward = {"tanh": ops.tanh_backward, "silu": ops.silu_backward, "gelu": ops.gelu_backward}
        self._backward = backward.get(name, ops.threshold_backward).grad_input

    def forward(self, h: Tensor) -> Tensor:
        """a = f(h); may overwrite h."""
        if self._forward is None:
            self._kept = apply_activation(self._name, h)
            return self._kept
        if self._value.shape != h.shape:
            self._value = torch.empty_like(h)
        self._kept = h
        self._forward(h, out=self._value)
        return self._value

    def backward(self, grad: Tensor, masked: Tensor | None) -> Tensor:
        """dL/dh, in the memory of dL/da.

        Args:
            grad: dL/da, or dL/d(a z) with `masked`.
            masked: a z, the value of a ReLU times a mask z of 0 and 1, which has the derivative of both;
                None without a mask.
        """
        if self._name == "relu":
            self._backward(grad, self._kept if masked is None else masked, 0, grad_input=grad)
        else:
            self._backward(grad, self._kept, grad_input=grad)
        return grad


def outputs_for(noise: str, targets: int) -> int:
    """How many outputs a network needs for D targets (or K classes, or D labels)."""
    return 2 * targets if noise == "heteroscedastic" else targets


def expected(output: Tensor, noise: str, targets: int) -> Tensor:
    """(..., D) means of the targets, or (..., K) probabilities of classes or labels, by outputs."""
    if noise == "classes":
        return torch.softmax(output, -1)
    return torch.sigmoid(output) if noise == "labels" else output[..., :targets]


class Head(ABC):
    """-log p(y | output), M networks at a time; summed over the targets or labels of a row."""

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
        """Derivative of `loss` in the output, (M, B, outputs), in new memory. Arguments as of `loss`."""

    def both(self, output: Tensor, y: Tensor, level: Tensor | None) -> tuple[Tensor, Tensor]:
        """`loss` and `slope`. Arguments as of `loss`."""
        return self.loss(output, y, level), self.slope(output, y, level)


class _Gaussian(Head):
    """Noise of one level for all rows."""

    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        assert level is not None
        return _gaussian_loss(output, 2 * level, y)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        assert level is not None
        return (output - y).mul_((-2 * level).exp())


class _Heteroscedastic(Head):
    """Outputs are means and, after them, log-variances."""

    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        mean, log_variance = output.chunk(2, -1)
        return _gaussian_loss(mean, log_variance, y)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        mean, log_variance = output.chunk(2, -1)
        error = mean - y
        scaled = (-log_variance).exp_().mul_(error)
        return torch.cat([scaled, error.mul_(scaled).neg_().add_(1).mul_(0.5)], -1)

    def both(self, output: Tensor, y: Tensor, level: Tensor | None) -> tuple[Tensor, Tensor]:
        mean, log_variance = output.chunk(2, -1)
        error = mean - y
        scaled = (-log_variance).exp_().mul_(error)
        loss = torch.addcmul(log_variance, error, scaled).sum(-1).mul_(0.5)
        loss.add_(0.5 * y.shape[-1] * math.log(2 * math.pi))
        return loss, torch.cat([scaled, error.mul_(scaled).mul_(-0.5).add_(0.5)], -1)


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


def make_head(noise: str) -> Head:
    """The head of a noise model."""
    heads = {"heteroscedastic": _Heteroscedastic(), "classes": _Classes(), "labels": _Labels()}
    return heads.get(noise, _Gaussian())
