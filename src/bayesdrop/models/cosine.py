"""Cosine units with random phases: networks whose prior is the squared exponential process."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_module, real_number, whole_seed

__all__ = ["Cosine", "random_phases"]


class Cosine(nn.Module):
    """sqrt(2) cos(u), element by element.

    Its mean square over a phase that is uniform on the circle is 1. A layer of such units is smooth and
    bounded, however large its input; `random_phases` sets the initial weights.

    Shape: any -> the same.
    Reference: Gal & Ghahramani (2016), conclusion; Rahimi & Recht (2007).

    >>> Cosine()(torch.zeros(1))
    tensor([1.4142])
    """

    def forward(self, x: Tensor) -> Tensor:
        """sqrt(2) cos(x)."""
        return math.sqrt(2) * torch.cos(x)


@torch.no_grad()
def random_phases(
    model: nn.Module, *, length_scale: float = 1.0, variance: float = 1.0, seed: int = 0
) -> nn.Module:
    """Initialise a network of `Cosine` units so that its functions have the squared exponential covariance.

        W_1 ~ N(0, 1 / l^2),    W_i ~ N(0, 1 / fan-in),    b_i ~ uniform on (0, 2 pi)
        last layer: W ~ N(0, v / fan-in), no bias

    With one hidden layer, functions of such weights have E f(x) f(y) = v exp(-|x - y|^2 / (2 l^2)), for any
    number of units; with several, `gp.NetworkKernel("cosine", depth=...)` is the limit of wide layers. Both
    hold without dropout.

    Args:
        model: with `nn.Linear` maps in the order in which they are used, alone or in stochastic layers, as
            from `mlp(..., activation=Cosine)`. Changed in place.
        length_scale: l, in units of the inputs.
        variance: v, of the functions.
        seed: of the weights.

    Returns: the model.

    >>> from bayesdrop.models import mlp
    >>> net = random_phases(mlp(1, 256, 1, activation=Cosine), length_scale=0.5)
    >>> bool((net[0].layer.bias >= 0).all())
    True
    """
    owner = "random_phases"
    must_be_module(owner, "model", model)
    want = "a positive number, from 1e-30 to 1e30"
    length_scale = real_number(owner, "length_scale", length_scale, want, at_least=1e-30, at_most=1e30)
    variance = real_number(owner, "variance", variance, want, at_least=1e-30, at_most=1e30)
    generator = torch.Generator().manual_seed(whole_seed(owner, seed))
    maps = [part for part in model.modules() if isinstance(part, nn.Linear)]
    if len(maps) < 2 or not any(isinstance(part, Cosine) for part in model.modules()):
        hint = "mlp(..., activation=Cosine) makes one."
        raise ValueError(
            must(owner, "model", "a network of two linear maps or more, and Cosine", model, hint)
        )
    for index, linear in enumerate(maps):
        std = 1 / length_scale if index == 0 else linear.in_features**-0.5
        last = index == len(maps) - 1
        std *= math.sqrt(variance) if last else 1.0
        linear.weight.copy_(std * torch.randn(linear.weight.shape, generator=generator))
        if linear.bias is not None:
            phases = 2 * math.pi * torch.rand(linear.bias.shape, generator=generator)
            linear.bias.copy_(torch.zeros_like(phases) if last else phases)
    return model
