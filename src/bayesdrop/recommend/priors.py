"""VampVAE and IAFVAE: a learned prior, and a posterior with flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesdrop.errors import whole_number
from bayesdrop.recommend.autoencoder import Autoencoder
from bayesdrop.recommend.histories import Bag, choice_nll
from bayesdrop.vae.flow import AutoregressiveNetwork, flown
from bayesdrop.vae.gaussian import (
    drawn_code,
    log_density,
    shared_mixture_log_density,
    standard_log_density,
)

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
        z = drawn_code(mean, log_variance, noise)
        divergence = log_density(noise, log_variance) - self._log_prior(z)
        return choice_nll(self._coder.logits(z, bag.candidates), bag) + weight * divergence

    def _log_prior(self, z: Tensor) -> Tensor:
        """(B,) log p(z), without the constant that log q has too."""
        histories = self._others["histories"]
        assert isinstance(histories, _Histories)
        coder = self._coder
        mean, log_variance = coder.encoded(histories() @ coder.bag.weight + coder.bag.bias).chunk(2, -1)
        return shared_mixture_log_density(z, mean, log_variance)


class _Histories(nn.Module):
    def __init__(self, count: int, num_items: int, generator: torch.Generator) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.empty(count, num_items).normal_(0.0, 0.05, generator=generator))

    def forward(self) -> Tensor:
        """The learned histories, (C, I), scaled to length one like the histories of users."""
        return F.normalize(self.raw.clamp(0, 1) + 1e-6, dim=1)


@dataclass(eq=False)
class IAFVAE(Autoencoder):
    """Variational autoencoder whose posterior is transformed by inverse autoregressive flows.

        z <- g z + (1 - g) m,    g = sigmoid(s + 1),    (m, s) of coordinate i from those before i

    Each step adds -sum log g to log q. Every second step takes the coordinates in reverse order. The options
    are those of `Autoencoder`.

    Args:
        num_flows: number of flow steps.
        flow_hidden: hidden width of the networks of m and s.

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
        """The transformed code, and log |dz / dz_0|."""
        return flown(z, context, self._others.values())

    def _code(self, code: Tensor, noise: Tensor | None) -> Tensor:
        mean, log_variance, context = code.chunk(3, -1)
        if noise is not None:
            mean = drawn_code(mean, log_variance, noise)
        return self._flown(mean, context)[0]

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        noisy = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        mean, log_variance, context = self._coder(noisy).chunk(3, -1)
        noise = torch.randn(mean.shape, generator=generator)
        z, log_slope = self._flown(drawn_code(mean, log_variance, noise), context)
        divergence = log_density(noise, log_variance) - log_slope - standard_log_density(z)
        return choice_nll(self._coder.logits(z, bag.candidates), bag) + weight * divergence
