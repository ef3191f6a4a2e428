"""The networks of section 5.1: how they are built, and where their weights start."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.layers import BernoulliDropout
from bayesdrop.models import mlp

__all__ = ["Network", "give_head_start", "make_network"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
#: the first layer's units have their kinks or steps between - REACH and REACH, where the data are
REACH = 1.8
#: what the first weights of ReLU networks are multiplied by; those that follow are divided by it
SLOPE = 3.0
#: half the width of a tent, in periods
TENT = 0.65


@dataclass(frozen=True)
class Network:
    """A network, and the solver that its authors gave it."""

    activation: str  #: "relu" or "tanh"
    depth: int  #: hidden layers
    p: float
    lr: float  #: of stochastic gradient descent, at first
    decay: float  #: lambda of (lambda / 2) |W|^2
    gamma: float = 1e-4  #: the learning rate of step t is lr (1 + gamma t)^-power
    power: float = 0.25


def make_network(network: Network, width: int, *, seed: int, period: float | None = None) -> nn.Sequential:
    """Dropout after every hidden non-linearity and none on the input; (N, 1) -> (N, 1).

    Weights are uniform with variance 1 / fan-in and biases zero, as the authors have them.

    Args:
        network: which.
        width: units of every hidden layer.
        seed: of the weights.
        period: of the oscillation that is to be learned, in units of x, for a head start; None for none.
    """
    if network.activation not in ACTIVATIONS:
        raise ValueError(must("make_network", "activation", "'relu' or 'tanh'", network.activation))
    activation = ACTIVATIONS[network.activation]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        net = mlp(1, (width,) * network.depth, 1, p=network.p, input_p=0, activation=activation)
        for linear in linear_maps(net):
            bound = math.sqrt(3 / linear.in_features)
            linear.weight.uniform_(-bound, bound)
            linear.bias.zero_()
        if period is not None:
            give_head_start(net, network.activation, period)
    return net


def linear_maps(net: nn.Sequential) -> list[nn.Linear]:
    """The weight layers, in order."""
    parts = [part.layer if isinstance(part, BernoulliDropout) else part for part in net]
    return [part for part in parts if isinstance(part, nn.Linear)]


@torch.no_grad()
def give_head_start(net: nn.Sequential, activation: str, period: float) -> None:
    """Begin with features as fine as the oscillation: gradient descent alone finds them very slowly.

    Kinks or steps of the first layer are spread over the data. TanH: their slope is 2 pi / period. ReLU:
    half of the second layer's units are tents. Such a unit has a place t and is inhibited by every unit of
    the first layer that is silent at t, so that it is active near t only:

        h_t(x) = 1 - (1/c) sum_k [w_k t + b_k <= 0] relu(w_k x + b_k)

    with c such that it ends about `TENT` periods from t on average. The other half, active far from the
    data too, is as it was. Everything is trained. With a single hidden layer there are kinks alone.
    """
    first, second, *rest = linear_maps(net)
    first.weight.mul_(2 * math.pi / period if activation == "tanh" else SLOPE)
    first.bias.copy_(-first.weight[:, 0] * torch.empty_like(first.bias).uniform_(-REACH, REACH))
    if activation == "tanh":
        return
    if not rest:
        second.weight.div_(SLOPE)
        return
    # Half of what enters a ReLU is lost.
    for linear in (second, *rest[:-1]):
        linear.weight.mul_(math.sqrt(2))
    second.weight.div_(SLOPE)
    places = torch.linspace(-REACH, REACH, second.out_features // 2).unsqueeze(1)
    silent = (first(places) <= 0).float()
    edges = [_active(first, places + side * TENT * period) * silent for side in (-1, 1)]
    # In a very narrow network no unit may wake up so near.
    inhibition = (0.5 * (edges[0] + edges[1]).sum(1).mean()).clamp_min(1e-2)
    second.weight[: len(places)] = -silent / inhibition
    second.bias[: len(places)] = 1.0


def _active(first: nn.Linear, x: Tensor) -> Tensor:
    active: Tensor = first(x).relu()
    return active
