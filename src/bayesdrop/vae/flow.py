"""Inverse autoregressive flows: invertible transformations of codes with a known Jacobian."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesdrop.errors import whole_number, whole_seed

__all__ = ["IAF", "AutoregressiveNetwork", "flown"]


class AutoregressiveNetwork(nn.Module):
    """m and s of every coordinate from the coordinates before it (and a context): a masked network.

    Args:
        size: L, coordinates of a code and of the context.
        hidden: width of the network, at least L.
        generator: of the initial weights.

    Reference: Germain, Gregor, Murray & Larochelle (2015).
    """

    lower: Tensor
    strict: Tensor

    def __init__(self, size: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        spread = (2 / (size + hidden)) ** 0.5

        def weights(outputs: int, inputs: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.empty(outputs, inputs).normal_(0, scale, generator=generator))

        self.first = weights(hidden, size, spread)
        self.context = weights(hidden, size, spread)
        self.second = weights(2 * size, hidden, 0.1 * spread)
        self.first_bias = nn.Parameter(torch.zeros(hidden))
        self.second_bias = nn.Parameter(torch.zeros(2 * size))
        # A hidden unit of degree d depends on coordinates 0 .. d; coordinate i on units of degree below i.
        degree = torch.arange(hidden) % size
        place = torch.arange(size)
        self.register_buffer("lower", (place <= degree.unsqueeze(1)).float(), persistent=False)
        self.register_buffer("strict", (degree < place.unsqueeze(1)).float().repeat(2, 1), persistent=False)

    def forward(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """(N, size) each: m and s."""
        h = F.linear(z, self.first * self.lower, self.first_bias) + F.linear(context, self.context)
        mean, gate = F.linear(F.silu(h), self.second * self.strict, self.second_bias).chunk(2, -1)
        return mean, gate


def flown(z: Tensor, context: Tensor, steps: Iterable[nn.Module]) -> tuple[Tensor, Tensor]:
    """The transformed code z, and log |dz / dz_0|.

        z <- g z + (1 - g) m,    g = sigmoid(s + 1),    (m, s) of coordinate i from those before i

    Every other step runs through the coordinates backwards.

    Args:
        z: (N, L).
        context: (N, L) of the encoder.
        steps: the network of every step, see `AutoregressiveNetwork`.

    Returns: (N, L) and (N,).
    """
    total = z.new_zeros(len(z))
    for step in steps:
        mean, gate = step(z, context)
        log_gate = F.logsigmoid(gate + 1)
        share = log_gate.exp()
        z = (share * z + (1 - share) * mean).flip(-1)
        context = context.flip(-1)
        total = total + log_gate.sum(-1)
    return z, total


class IAF(nn.Module):
    """Inverse autoregressive flow for the posterior of a `VAE`, whose encoder then gives 3 L numbers a row.

        z <- g z + (1 - g) m,    g = sigmoid(s + 1),    log q(z) = log q(z_0) - sum log g

    Args:
        latent: L.
        hidden: width of the networks, at least L.
        num_steps: number of transformations.
        seed: of the initial weights.

    Reference: Kingma et al. (2016); a row of Boluki et al. (2020), table 2.
    """

    def __init__(self, latent: int, *, hidden: int = 200, num_steps: int = 2, seed: int = 0) -> None:
        super().__init__()
        latent = whole_number("IAF", "latent", latent, at_least=1)
        hidden = whole_number("IAF", "hidden", hidden, at_least=latent, at_most=10**6)
        num_steps = whole_number("IAF", "num_steps", num_steps, at_least=1, at_most=100)
        generator = torch.Generator().manual_seed(whole_seed("IAF", seed))
        self.latent = latent
        self.steps = nn.ModuleList(AutoregressiveNetwork(latent, hidden, generator) for _ in range(num_steps))

    def forward(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """See `flown`."""
        return flown(z, context, self.steps)
