"""Gaussian likelihood with constant noise: fixed, learned by gradient, or by a MAP step in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_tensor, real_number, real_numbers, whole_number
from bayesdrop.likelihoods.base import ConstantNoise
from bayesdrop.likelihoods.mixture import normal_mixture_quantiles

__all__ = ["Gaussian", "check_targets", "gaussian_log_prob", "normal_cdf", "normal_quantile"]


def check_targets(owner: str, mean: Tensor, y: Tensor) -> None:
    """Raise unless targets have the shape of the mean: (N,) against (N, 1) would broadcast to N x N."""
    must_be_tensor(owner, "y", y)
    if mean.shape != y.shape:
        hint = ""
        if y.dim() == 1 and mean.shape == (*y.shape, 1):
            hint = "Pass y.unsqueeze(-1), or squeeze the output."
        raise ValueError(must(owner, "y", f"of the output's shape {tuple(mean.shape)}", tuple(y.shape), hint))


def gaussian_log_prob(mean: Tensor, log_variance: Tensor, y: Tensor) -> Tensor:
    """log N(y; mean, diag(exp(log_variance))), summed over all axes but the rows. Shape (N,)."""
    terms: Tensor = -0.5 * (
        (y - mean).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi)
    )
    return terms.sum(tuple(range(1, terms.dim()))) if terms.dim() > 1 else terms


def normal_cdf(value: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Normal distribution function, element by element."""
    probability: Tensor = torch.special.ndtr((value - mean) / std)
    return probability


def normal_quantile(q: float) -> float:
    """The q quantile of N(0, 1)."""
    return float(torch.special.ndtri(torch.tensor(q, dtype=torch.float64)))


class Gaussian(ConstantNoise):
    """y ~ N(f, noise_std^2 I), the same noise everywhere.

    `Gaussian(0.1)` is fixed at 0.1; `Gaussian()` learns its noise by gradient along with the weights;
    `Gaussian(noise="map")` has its precision 1 / noise_std^2 set to the maximum of its posterior under a
    Gamma prior, in closed form (`m_step`), between steps of the weights.

    Args:
        noise_std: standard deviation of the noise, or where it starts: one number, or one per output. None:
            it starts at 1.
        noise: "fixed", "learned" or "map"; "fixed" if `noise_std` is given, else "learned".
        prior_shape: a of the Gamma(a, b) prior of the precision ("map" only).
        prior_rate: b of that prior, in units of y squared.

    Shape: output (N, ...) and y the same -> (N,).
    Reference: Gal & Ghahramani (2016), Eq. 8, whose tau is our 1 / noise_std^2; Gal, Hron & Kendall
    (2017), appendix D.

    >>> float(Gaussian(0.5).log_prob(torch.zeros(1, 2), torch.zeros(1, 2)))  # doctest: +ELLIPSIS
    -0.451...
    """

    log_noise_std: Tensor

    def __init__(
        self,
        noise_std: float | Tensor | None = None,
        *,
        noise: Literal["fixed", "learned", "map"] | None = None,
        prior_shape: float = 0.1,
        prior_rate: float = 0.01,
    ) -> None:
        super().__init__()
        if noise is None:
            noise = "learned" if noise_std is None else "fixed"
        if not is_one_of(noise, ("fixed", "learned", "map")):
            raise ValueError(must("Gaussian", "noise", "'fixed', 'learned' or 'map'", noise))
        want = "one positive number, or one per output"
        given = 1.0 if noise_std is None else noise_std
        std = real_numbers("Gaussian", "noise_std", given, want).to(torch.get_default_dtype())
        if std.dim() > 1 or not std.numel() or not bool(((std > 0) & torch.isfinite(std)).all()):
            raise ValueError(must("Gaussian", "noise_std", want, noise_std))
        prior_shape = real_number("Gaussian", "prior_shape", prior_shape, "a positive number", above=0)
        prior_rate = real_number("Gaussian", "prior_rate", prior_rate, "a positive number", above=0)
        self.noise: Literal["fixed", "learned", "map"] = noise
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate
        log_std = std.detach().clone().log()
        if noise == "learned":
            self.log_noise_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_noise_std", log_std)

    @property
    def noise_std(self) -> Tensor:
        """Standard deviation of the noise."""
        return self.log_noise_std.exp()

    @property
    def precision(self) -> Tensor:
        """1 / noise_std^2, the papers' tau."""
        return (-2 * self.log_noise_std).exp()

    def extra_repr(self) -> str:
        """The noise, for `print`."""
        return f"noise={self.noise!r}, noise_std={self.noise_std.detach().tolist()}"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log N(y; output, noise_std^2 I). Shape (N,)."""
        must_be_tensor("Gaussian", "output", output, floating=True)
        check_targets("Gaussian", output, y)
        return gaussian_log_prob(output, 2 * self._log_std(output), y)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and the noise variance. Shapes as `output`."""
        must_be_tensor("Gaussian", "output", output, floating=True)
        return output, (2 * self._log_std(output)).exp().expand_as(output)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The output plus noise."""
        must_be_tensor("Gaussian", "output", output, floating=True)
        normal = torch.randn(output.shape, generator=generator, dtype=output.dtype).to(output.device)
        return output + self._log_std(output).exp() * normal

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """P(y <= value), element by element."""
        return normal_cdf(value, output, self._log_std(output).exp())

    def quantile(self, output: Tensor, q: float) -> Tensor:
        """The value that y stays below with chance q, element by element."""
        return output + self._log_std(output).exp() * normal_quantile(q)

    def mixture_quantiles(self, outputs: Tensor, levels: Sequence[float]) -> Tensor:
        """See `NumberLikelihood`."""
        std = self._log_std(outputs).exp()
        return normal_mixture_quantiles(outputs, std, levels)

    def m_step(self, squared_error: Tensor, num_data: int) -> None:
        """Set the precision to the mode of its posterior, given expected squared errors.

            tau = (N/2 + a - 1) / (S/2 + b)

        Args:
            squared_error: S, the sum over N targets of E_q (y - f)^2: one number for the noise of all
                outputs (N then counts rows x outputs), or one per output.
            num_data: N.

        Reference: Gal, Hron & Kendall (2017), appendix D (a = 0.1, b = 0.01).
        """
        if self.noise != "map":
            raise ValueError(must("Gaussian.m_step", "noise", "'map'", self.noise))
        num_data = whole_number("Gaussian.m_step", "num_data", num_data, at_least=1)
        must_be_tensor("Gaussian.m_step", "squared_error", squared_error)
        squared_error = squared_error.detach()
        if not bool(torch.isfinite(squared_error).all()):
            raise ValueError(must("Gaussian.m_step", "squared_error", "finite", squared_error))
        if squared_error.shape != self.log_noise_std.shape:
            want = f"of the noise's shape {tuple(self.log_noise_std.shape)}"
            raise ValueError(must("Gaussian.m_step", "squared_error", want, tuple(squared_error.shape)))
        count = num_data / 2 + self.prior_shape - 1
        if count <= 0:
            raise ValueError(must("Gaussian.m_step", "num_data", "at least 2", num_data))
        precision = count / (squared_error / 2 + self.prior_rate)
        self.log_noise_std.copy_(-0.5 * precision.log())

    def _log_std(self, output: Tensor) -> Tensor:
        log_std = self.log_noise_std
        if log_std.dim() == 1 and (output.dim() < 2 or output.shape[-1] != log_std.shape[0]):
            want = f"of shape (N, ..., {log_std.shape[0]}), one noise level each"
            raise ValueError(must("Gaussian", "output", want, tuple(output.shape)))
        return log_std.to(output.dtype)
