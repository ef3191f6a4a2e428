"""Gaussian process regression: posterior and evidence in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, real_number

__all__ = ["GaussianProcess"]


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """F ~ N(0, k(X, X)), Y = F + noise of variance 1 / precision; outputs are independent.

    Args:
        kernel: from rows (N, Q) and (M, Q) to covariances (N, M), as `NetworkKernel`.
        precision: tau, of the noise; above 0.

    Reference: Gal & Ghahramani (2015), Eq. 4; Rasmussen & Williams (2006), algorithm 2.1.
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    precision: float | Tensor

    def __post_init__(self) -> None:
        # A learned precision stays a tensor; its value is checked.
        want = "a positive number, from 1e-30 to 1e30"
        value = real_number(
            "GaussianProcess", "precision", self.precision, want, at_least=1e-30, at_most=1e30
        )
        if not isinstance(self.precision, Tensor):
            object.__setattr__(self, "precision", value)

    def posterior(self, x: Tensor, y: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of f at new rows, given data; add 1 / precision for those of y.

        Args:
            x: (N, Q) inputs.
            y: (N, D) targets.
            new: (M, Q) where to predict.

        Returns: mean (M, D) and covariance (M, M), which all outputs share.
        """
        factor = self._factor(x, y)
        cross = self.kernel(x, new)
        half = torch.linalg.solve_triangular(factor, cross, upper=False)
        mean: Tensor = half.mT @ torch.linalg.solve_triangular(factor, y, upper=False)
        covariance: Tensor = self.kernel(new, new) - half.mT @ half
        return mean, covariance

    def marginals(self, x: Tensor, y: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of f at every new row, given data; arguments as of `posterior`.

        Returns: mean (M, D) and std (M,), which all outputs share.
        """
        mean, covariance = self.posterior(x, y, new)
        # Near data, rounding may give a variance slightly below 0.
        return mean, covariance.diagonal().clamp_min(0).sqrt()

    def log_evidence(self, x: Tensor, y: Tensor) -> Tensor:
        """log N(Y; 0, k(X, X) + I / tau), summed over outputs, in nats. Shape ()."""
        factor = self._factor(x, y)
        white = torch.linalg.solve_triangular(factor, y, upper=False)
        log_determinant = 2 * factor.diagonal().log().sum()
        rows, outputs = y.shape
        evidence: Tensor = -0.5 * (
            white.square().sum() + outputs * (log_determinant + rows * math.log(2 * math.pi))
        )
        return evidence

    def _factor(self, x: Tensor, y: Tensor) -> Tensor:
        if y.dim() != 2 or y.shape[0] != x.shape[0]:
            raise ValueError(
                must("GaussianProcess", "y", f"of shape ({x.shape[0]}, outputs)", tuple(y.shape))
            )
        noise = torch.eye(x.shape[0], dtype=x.dtype, device=x.device) / self.precision
        factor: Tensor = torch.linalg.cholesky(self.kernel(x, x) + noise)
        return factor
