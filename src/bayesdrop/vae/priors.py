"""Priors of codes: the standard normal, and a mixture of posteriors that is learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_finite, must_be_tensor, real_number
from bayesdrop.vae.gaussian import drawn_code, shared_mixture_log_density, standard_log_density

__all__ = ["Encode", "Prior", "StandardNormal", "VampPrior"]

#: from inputs (C, ...) to the means and log-variances (C, L) of their codes
Encode = Callable[[Tensor], tuple[Tensor, Tensor]]


class Prior(nn.Module):
    """p(z). The model's encoder is passed to every call, for priors that need it."""

    @abstractmethod
    def log_density(self, z: Tensor, encode: Encode) -> Tensor:
        """log p(z) + (L / 2) log 2 pi, summed over the last axis; (..., L) -> (...).

        Args:
            z: codes.
            encode: the model's encoder.
        """

    @abstractmethod
    def sample(self, noise: Tensor, encode: Encode, generator: torch.Generator) -> Tensor:
        """Codes (n, L), from standard normal noise of that shape and numbers of the generator."""


class StandardNormal(Prior):
    """p(z) = N(0, I)."""

    def log_density(self, z: Tensor, encode: Encode) -> Tensor:
        """-|z|^2 / 2."""
        return standard_log_density(z)

    def sample(self, noise: Tensor, encode: Encode, generator: torch.Generator) -> Tensor:
        """The noise."""
        return noise


class VampPrior(Prior):
    """A mixture of posteriors of inputs that are learned along with the weights.

        p(z) = (1 / C) sum_c q(z | u_c)

    Args:
        inputs: (C, ...) where the inputs u_c start, as C rows of the training data.
        low: lower bound of the inputs; None for no bound.
        high: upper bound of the inputs; None for no bound.

    Reference: Tomczak & Welling (2018); a row of Boluki et al. (2020), table 2.
    """

    def __init__(self, inputs: Tensor, *, low: float | None = None, high: float | None = None) -> None:
        super().__init__()
        must_be_tensor("VampPrior", "inputs", inputs, floating=True)
        if inputs.dim() < 2 or not inputs.numel():
            raise ValueError(must("VampPrior", "inputs", "(C, ...), a row for each", tuple(inputs.shape)))
        must_be_finite("VampPrior", "inputs", inputs)
        for name, value in (("low", low), ("high", high)):
            if value is not None:
                real_number("VampPrior", name, value, "a number or None")
        if low is not None and high is not None and not low < high:
            raise ValueError(must("VampPrior", "high", f"above low, {low}", high))
        self.low, self.high = low, high
        self.raw = nn.Parameter(inputs.detach().clone())

    @property
    def inputs(self) -> Tensor:
        """(C, ...) u_c, within their bounds."""
        bounded = self.low is not None or self.high is not None
        return self.raw.clamp(self.low, self.high) if bounded else self.raw

    def log_density(self, z: Tensor, encode: Encode) -> Tensor:
        """The log of the mean of all C Gaussians."""
        mean, log_variance = encode(self.inputs)
        flat = shared_mixture_log_density(z.reshape(-1, z.shape[-1]), mean, log_variance)
        return flat.reshape(z.shape[:-1])

    def sample(self, noise: Tensor, encode: Encode, generator: torch.Generator) -> Tensor:
        """Codes, each of the posterior of a random input."""
        mean, log_variance = encode(self.inputs)
        chosen = torch.randint(len(mean), (len(noise),), generator=generator).to(mean.device)
        return drawn_code(mean[chosen], log_variance[chosen], noise)
