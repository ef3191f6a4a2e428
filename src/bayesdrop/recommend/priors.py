"""VampVAE and IAFVAE: a learned prior, and a posterior that a flow bends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesdrop.errors import whole_number
from bayesdrop.recommend.autoencoder import Autoencoder
from bayesdrop.recommend.histories import Bag, choice_nll

__all__ = ["IAFVAE", "VampVAE"]


@dataclass(eq=False)
class VampVAE(Autoencoder):
    """Variational autoencoder whose prior is a mixture of posteriors of learned histories.

        p(z) = (1 / C) sum_c q(z | u_c),    u_c in [0, 1]^I learned

    The divergence is estimated by one sample, log q(z | x) - log p(z). The options are those of
    `Autoencoder`.

    Args:
        num_histories: C.

    Reference: Tomczak & Welling (2018); a row of Boluki et al. (2020), table 2.
    """

    num_histories: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("VampVAE", "num_histories", self.num_histories, at_least=1)

    def _parts(self, num_items: int, generator: torch.Generator) -> dict[str, nn.Module]:
        return {"histories": _Histories(self.num_histories, num_items, generator)}

    def _shapes(self, num_items: int) -> dict[str, tuple[int, ...]]:
        return {
            **super()._shapes(num_items),
            "others.histories.raw": (self.num_histories, num_items),
        }

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        noisy = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        code = self._coder(noisy)
        mean, log_variance = code.chunk(2, -1)
        noise = torch.randn(mean.shape, generator=generator)
        z = mean + (0.5 * log_variance).exp() * noise
        log_q = -0.5 * (noise.square() + log_variance).sum(-1)
        divergence: Tensor = log_q - self._log_prior(z)
        return choice_nll(self._coder.logits(z, bag.candidates), bag) + weight * divergence

    def _log_prior(self, z: Tensor) -> Tensor:
        """(B,) log p(z), without the constant that log q has too."""
        histories = self._others["histories"]
        assert isinstance(histories, _Histories)
        coder = self._coder
        mean, log_variance = coder.encoded(histories() @ coder.bag.weight + coder.bag.bias).chunk(2, -1)
        precision = (-log_variance).exp()
        # (z - m)^2 / v as three products, so that nothing of shape (B, C, latent) is made.
        square = z.square() @ precision.T - 2 * z @ (mean * precision).T + (mean.square() * precision).sum(-1)
        return torch.logsumexp(-0.5 * (square + log_variance.sum(-1)), 1) - math.log(len(mean))


class _Histories(nn.Module):
    def __init__(self, count: int, num_items: int, generator: torch.Generator) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.empty(count, num_items).normal_(0.0, 0.05, generator=generator))

    def forward(self) -> Tensor:
        """(C, I) of length one, as histories of users are."""
        return F.normalize(self.raw.clamp(0, 1) + 1e-6, dim=1)


@dataclass(eq=False)
class IAFVAE(Autoencoder):
    """Variational autoencoder whose posterior is bent by inverse autoregressive flows.

        z <- g z + (1 - g) m,    g = sigmoid(s + 1),    (m, s) of coordinate i from those before i

    Each step costs -sum log g in log q. Every other step runs through the coordinates backwards. The options
    are those of `Autoencoder`.

    Args:
        num_flows: steps.
        flow_hidden: width of their networks.

    Reference: Kingma et al. (2016); a row of Boluki et al. (2020), table 2.
    """

    num_flows: int = 2
    flow_hidden: int = 400

    _codes: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("IAFVAE", "num_flows", self.num_flows, at_least=1, at_most=100)
        whole_number("IAFVAE", "flow_hidden", self.flow_hidden, at_least=self.latent)

    def _parts(self, num_items: int, generator: torch.Generator) -> dict[str, nn.Module]:
        return {
            f"flow{step}": AutoregressiveNetwork(self.latent, self.flow_hidden, generator)
            for step in range(self.num_flows)
        }

    def _shapes(self, num_items: int) -> dict[str, tuple[int, ...]]:
        flows = {
            f"others.flow{step}.first": (self.flow_hidden, self.latent) for step in range(self.num_flows)
        }
        return {**super()._shapes(num_items), **flows}

    def _flown(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """The bent code, and log |dz / dz_0|."""
        total = torch.zeros(len(z))
        for flow in self._others.values():
            mean, gate = flow(z, context)
            log_gate = F.logsigmoid(gate + 1)
            share = log_gate.exp()
            z = (share * z + (1 - share) * mean).flip(-1)
            context = context.flip(-1)
            total = total + log_gate.sum(-1)
        return z, total

    def _code(self, code: Tensor, noise: Tensor | None) -> Tensor:
        mean, log_variance, context = code.chunk(3, -1)
        if noise is not None:
            mean = mean + (0.5 * log_variance).exp() * noise
        return self._flown(mean, context)[0]

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        noisy = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        mean, log_variance, context = self._coder(noisy).chunk(3, -1)
        noise = torch.randn(mean.shape, generator=generator)
        z, log_slope = self._flown(mean + (0.5 * log_variance).exp() * noise, context)
        log_q = -0.5 * (noise.square() + log_variance).sum(-1) - log_slope
        log_p = -0.5 * z.square().sum(-1)
        divergence: Tensor = log_q - log_p
        return choice_nll(self._coder.logits(z, bag.candidates), bag) + weight * divergence


class AutoregressiveNetwork(nn.Module):
    """m and s of every coordinate from the coordinates before it (and a context): a masked network.

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
        # A hidden unit of degree d sees coordinates 0 .. d; coordinate i is made of units of degree below i.
        degree = torch.arange(hidden) % size
        place = torch.arange(size)
        self.register_buffer("lower", (place <= degree.unsqueeze(1)).float(), persistent=False)
        self.register_buffer("strict", (degree < place.unsqueeze(1)).float().repeat(2, 1), persistent=False)

    def forward(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """(B, size) each: m and s."""
        h = F.linear(z, self.first * self.lower, self.first_bias) + F.linear(context, self.context)
        mean, gate = F.linear(F.silu(h), self.second * self.strict, self.second_bias).chunk(2, -1)
        return mean, gate
