"""Gaussian likelihood whose noise the network predicts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_tensor
from bayesdrop.likelihoods.base import NumberLikelihood
from bayesdrop.likelihoods.gaussian import check_targets, gaussian_log_prob, normal_cdf, normal_quantile
from bayesdrop.likelihoods.mixture import normal_mixture_quantiles

__all__ = ["HeteroscedasticGaussian"]


class HeteroscedasticGaussian(NumberLikelihood):
    """y ~ N(m(x), exp(s(x))): the last axis of the output holds D means, then D log-variances.

    The loss exp(-s) (y - m)^2 + s of the papers is twice the negative of this log-probability, less the
    constant log 2 pi.

    Shape: output (N, ..., 2 D), y (N, ..., D) -> (N,).
    Reference: Gal, Hron & Kendall (2017), section 4.1; Kendall & Gal (2017), Eq. 8.
    """

    def split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-variances."""
        must_be_tensor("HeteroscedasticGaussian", "output", output, floating=True)
        if output.dim() < 2 or output.shape[-1] % 2:
            want = "(N, ..., 2 D): D means, then D log-variances"
            raise ValueError(must("HeteroscedasticGaussian", "output", want, tuple(output.shape)))
        mean, log_variance = output.chunk(2, dim=-1)
        return mean, log_variance

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log N(y; m, exp(s)). Shape (N,)."""
        mean, log_variance = self.split(output)
        check_targets("HeteroscedasticGaussian", mean, y)
        return gaussian_log_prob(mean, log_variance, y)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """m and exp(s), each (N, ..., D)."""
        mean, log_variance = self.split(output)
        return mean, log_variance.exp()

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """m plus noise of variance exp(s)."""
        mean, log_variance = self.split(output)
        normal = torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return mean + (0.5 * log_variance).exp() * normal

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """P(y <= value), element by element."""
        mean, log_variance = self.split(output)
        return normal_cdf(value, mean, (0.5 * log_variance).exp())

    def quantile(self, output: Tensor, q: float) -> Tensor:
        """The value that y stays below with chance q, element by element."""
        mean, log_variance = self.split(output)
        return mean + (0.5 * log_variance).exp() * normal_quantile(q)

    def mixture_quantiles(self, outputs: Tensor, levels: Sequence[float]) -> Tensor:
        """See `NumberLikelihood`."""
        mean, log_variance = self.split(outputs.to(torch.float64))
        return normal_mixture_quantiles(mean, (0.5 * log_variance).exp(), levels)
