"""The optimiser of the papers' networks in Caffe, and the cross-entropy that classifiers are trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["MOMENTUM", "cross_entropy", "descent"]

MOMENTUM = 0.9


def descent(net: nn.Module, lr: float, weight_decay: float, momentum: float = MOMENTUM) -> torch.optim.SGD:
    """Stochastic gradient descent with momentum, biases at twice the learning rate.

    Args:
        net: whose parameters are trained.
        lr: of the weights.
        weight_decay: lambda of (lambda / 2) |W|^2, which biases have too.
        momentum: of the steps.
    """
    biases = [value for name, value in net.named_parameters() if name.endswith("bias")]
    weights = [value for name, value in net.named_parameters() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "lr": 2 * lr}]
    return torch.optim.SGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay)


def cross_entropy(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The objective without a prior: the mean over rows of -log p(y)."""
    return nn.functional.cross_entropy(net(x), y)
