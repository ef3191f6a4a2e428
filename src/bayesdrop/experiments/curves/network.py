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
#: units of the first layer have their kinks or steps between -REACH and REACH, where the data are
REACH = 1.8
#: weights of a ReLU network's first layer are multiplied by this, those of its second layer divided by it
SLOPE = 3.0
#: half the width of a tent, in periods
TENT = 0.65


@dataclass(frozen=True)
class Network:
    """A network of the paper, and the solver that the authors train it with."""

    activation: str  #: "relu" or "tanh"
    depth: int  #: hidden layers
    p: float
    lr: float  #: of stochastic gradient descent, at first
    decay: float  #: lambda of (lambda / 2) |W|^2
    gamma: float = 1e-4  #: the learning rate of step t is lr (1 + gamma t)^-power
    power: float = 0.25


def make_network(network: Network, width: int, *, seed: int, period: float | None = None) -> nn.Sequential:
    """A perceptron with dropout after every hidden layer and none on the input; (N, 1) -> (N, 1).

    Weights are uniform with variance 1 / fan-in and biases are zero, as in the authors' networks.

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
    """Start with features as fine as the oscillation: gradient descent alone finds them very slowly.

    Kinks or steps of the first layer are spread over the data. TanH: their slope is 2 pi / period. ReLU:
    half of the second layer's units are tents. A tent has its middle at a place t and gets a negative weight
    from every unit of the first layer that is 0 at t, so that it is above 0 near t only:

        h_t(x) = 1 - (1/c) sum_k [w_k t + b_k <= 0] relu(w_k x + b_k)

    with c such that it reaches 0 about `TENT` periods from t on average. The other half starts at random as
    before. Everything is trained. With a single hidden layer there are no tents.

    Args:
        net: of `make_network`; changed in place.
        activation: "relu" or "tanh".
        period: of the oscillation, in units of x.
    """
    first, second, *rest = linear_maps(net)
    first.weight.mul_(2 * math.pi / period if activation == "tanh" else SLOPE)
    first.bias.copy_(-first.weight[:, 0] * torch.empty_like(first.bias).uniform_(-REACH, REACH))
    if activation == "tanh":
        return
    if not rest:
        second.weight.div_(SLOPE)
        return
    # A ReLU halves the mean square of what enters it: weights that follow one make up for that.
    for linear in (second, *rest[:-1]):
        linear.weight.mul_(math.sqrt(2))
    second.weight.div_(SLOPE)
    places = torch.linspace(-REACH, REACH, second.out_features // 2).unsqueeze(1)
    silent = (first(places) <= 0).float()
    edges = [_first_units(first, places + side * TENT * period) * silent for side in (-1, 1)]
    # In a very narrow network it may be that no such unit is above 0 so near: c must not be 0.
    inhibition = (0.5 * (edges[0] + edges[1]).sum(1).mean()).clamp_min(1e-2)
    second.weight[: len(places)] = -silent / inhibition
    second.bias[: len(places)] = 1.0


def _first_units(first: nn.Linear, x: Tensor) -> Tensor:
    """(N, K) outputs of the first layer's units."""
    outputs: Tensor = first(x).relu()
    return outputs
