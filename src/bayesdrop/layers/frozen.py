"""BatchNorm with fixed statistics: no row depends on other rows, in training either."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_flag, must_be_module, whole_number
from bayesdrop.layers.places import keep_hooks, swap

__all__ = ["FrozenBatchNorm", "freeze_batch_norm"]


class FrozenBatchNorm(nn.Module):
    """BatchNorm as in `eval()`, in every mode: x -> (x - mean) / sqrt(var + eps) * weight + bias.

    Weight and bias are trained; mean and variance stay. No row depends on other rows, so that the gradient of
    a learned rate can be estimated from each row's own loss.

    Args:
        num_features: channels, on axis 1.
        eps: added to the variance.
        affine: whether there are a weight and a bias.

    Shape: (N, num_features, ...) -> the same.
    """

    running_mean: Tensor
    running_var: Tensor
    #: rows are on axis 0, and training mode changes nothing: draws need not study the module
    keeps_rows = True

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.num_features = whole_number("FrozenBatchNorm", "num_features", num_features, at_least=1)
        self.eps = eps
        self.affine = affine
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def extra_repr(self) -> str:
        """The width, for `print(model)`."""
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"

    def forward(self, x: Tensor) -> Tensor:
        """The input, normalised by the fixed statistics."""
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


def freeze_batch_norm(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """A model whose BatchNorm uses its present statistics in training too; its `eval()` is the same.

    Setting the modules to `eval()` does the same until the next `model.train()`, which `fit` calls in every
    epoch.

    Args:
        model: any module, trained long enough to have good statistics.
        inplace: change `model` itself instead of a copy. Weights and biases stay the same parameters.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    >>> freeze_batch_norm(net)[1]
    FrozenBatchNorm(4, eps=1e-05, affine=True)
    """
    must_be_module("freeze_batch_norm", "model", model)
    must_be_flag("freeze_batch_norm", inplace=inplace)
    model = model if inplace else copy.deepcopy(model)
    swaps: dict[nn.Module, nn.Module] = {}
    for path, norm in model.named_modules():
        if not isinstance(norm, nn.modules.batchnorm._BatchNorm):
            continue
        if norm.running_mean is None or norm.running_var is None:
            hint = "It is made with track_running_stats=False."
            raise ValueError(
                must("freeze_batch_norm", "model", "one whose BatchNorm keeps statistics", path, hint)
            )
        frozen = FrozenBatchNorm(norm.num_features, norm.eps, norm.affine)
        frozen.weight, frozen.bias = norm.weight, norm.bias
        frozen.running_mean, frozen.running_var = norm.running_mean, norm.running_var
        swaps[norm] = frozen.train(norm.training)
        keep_hooks(norm, frozen)
    if not swaps:
        raise ValueError(must("freeze_batch_norm", "model", "a model with BatchNorm", model))
    return swap(model, swaps, list(model.modules()))
