"""What a check of a statement gives, and the statistics that checks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesdrop.experiments.row import Claim, Row

__all__ = ["CheckResult", "double", "mean_and_error", "z_score"]


@dataclass(frozen=True)
class CheckResult:
    """What one check found: rows of the table, claims, and arrays of the picture."""

    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    arrays: Mapping[str, Any] = field(default_factory=dict)


def double(*values: float) -> Tensor:
    """A vector in double precision."""
    return torch.tensor(values, dtype=torch.float64)


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean of (T,) samples, and its standard error."""
    return float(values.mean(0)), float(values.std(0) / len(values) ** 0.5)


def z_score(samples: Tensor, exact: Tensor) -> float:
    """The largest distance of a mean over axis 0 from its exact value, in standard errors.

    Args:
        samples: (T, ...).
        exact: (...).
    """
    error = samples.std(0) / samples.shape[0] ** 0.5
    distance = (samples.mean(0) - exact).abs()
    # Where samples do not vary, the mean must be exact.
    return float(torch.where(error > 0, distance / error, torch.where(distance > 0, torch.inf, 0)).max())
