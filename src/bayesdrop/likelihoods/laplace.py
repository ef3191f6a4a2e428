"""Laplace likelihood: absolute errors, so that large errors count less than with a Gaussian."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_tensor, real_numbers
from bayesdrop.likelihoods.base import ConstantNoise
from bayesdrop.likelihoods.gaussian import check_targets

__all__ = ["Laplace"]


class Laplace(ConstantNoise):
    """y ~ Laplace(f, scale), the same noise everywhere:  p(y | f) = exp(-|y - f| / scale) / (2 scale).

    `Laplace(0.1)` is fixed at the scale 0.1; `Laplace()` learns its scale by gradient along with the weights.
    The variance is 2 scale^2. The loss grows with the error, not with its square, so that outliers among the
    targets change the function less than with `Gaussian`.

    Args:
        scale: the mean of |y - f|, or where it starts: one number, or one per output. None: it starts at 1.
        noise: "fixed" or "learned"; "fixed" if `scale` is given, else "learned".

    Shape: output (N, ...) and y the same -> (N,).
    Reference: named beside Gaussian noise by Gal, Hron & Kendall (2017), section 2.

    >>> float(Laplace(0.5).log_prob(torch.zeros(1, 2), torch.zeros(1, 2)))
    0.0
    """

    log_scale: Tensor

    def __init__(
        self, scale: float | Tensor | None = None, *, noise: Literal["fixed", "learned"] | None = None
    ) -> None:
        super().__init__()
        if noise is None:
            noise = "learned" if scale is None else "fixed"
        if not is_one_of(noise, ("fixed", "learned")):
            raise ValueError(must("Laplace", "noise", "'fixed' or 'learned'", noise))
        want = "one positive number, or one per output"
        given = real_numbers("Laplace", "scale", 1.0 if scale is None else scale, want)
        given = given.to(torch.get_default_dtype())
        if given.dim() > 1 or not given.numel() or not bool(((given > 0) & torch.isfinite(given)).all()):
            raise ValueError(must("Laplace", "scale", want, scale))
        self.noise = noise
        log_scale = given.detach().clone().log()
        if noise == "learned":
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    @property
    def scale(self) -> Tensor:
        """The mean of |y - f|."""
        return self.log_scale.exp()

    @property
    def noise_std(self) -> Tensor:
        """Standard deviation of the noise, sqrt(2) times the scale."""
        return math.sqrt(2) * self.scale

    def extra_repr(self) -> str:
        """The noise, for `print`."""
        return f"noise={self.noise!r}, scale={self.scale.detach().tolist()}"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y | output), summed over outputs. Shape (N,)."""
        must_be_tensor("Laplace", "output", output, floating=True)
        check_targets("Laplace", output, y)
        log_scale = self._log_scale(output)
        terms = -(y - output).abs() * (-log_scale).exp() - log_scale - math.log(2)
        return terms.sum(tuple(range(1, terms.dim()))) if terms.dim() > 1 else terms

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and 2 scale^2. Shapes as `output`."""
        must_be_tensor("Laplace", "output", output, floating=True)
        return output, (2 * (2 * self._log_scale(output)).exp()).expand_as(output)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The output plus noise, the difference of two exponential variables."""
        must_be_tensor("Laplace", "output", output, floating=True)
        pair = torch.empty((2, *output.shape), dtype=output.dtype).exponential_(generator=generator)
        return output + self._log_scale(output).exp() * (pair[0] - pair[1]).to(output.device)

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """P(y <= value), element by element."""
        away = (value - output) / self._log_scale(output).exp()
        # From the smaller tail, so that small probabilities keep their digits.
        tail = 0.5 * (-away.abs()).exp()
        return torch.where(away < 0, tail, 1 - tail)

    def quantile(self, output: Tensor, q: float) -> Tensor:
        """The value that y stays below with chance q, element by element."""
        standard = math.log(2 * q) if q < 0.5 else -math.log(2 * (1 - q))
        return output + self._log_scale(output).exp() * standard

    def _log_scale(self, output: Tensor) -> Tensor:
        log_scale = self.log_scale
        if log_scale.dim() == 1 and (output.dim() < 2 or output.shape[-1] != log_scale.shape[0]):
            want = f"of shape (N, ..., {log_scale.shape[0]}), one scale each"
            raise ValueError(must("Laplace", "output", want, tuple(output.shape)))
        return log_scale.to(output.dtype)
