"""What one check finds: rows, claims and arrays, gathered over all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesdrop.experiments.row import Claim, Row

__all__ = ["Findings", "double", "mean_and_error", "z_score"]


@dataclass(frozen=True)
class Findings:
    """Rows of the table, claims, and arrays of the picture."""

    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    arrays: Mapping[str, Any] = field(default_factory=dict)


def double(*values: float) -> Tensor:
    """A vector in double precision."""
    return torch.tensor(values, dtype=torch.float64)


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean over axis 0 and its standard error."""
    return float(values.mean(0)), float(values.std(0) / len(values) ** 0.5)


def z_score(samples: Tensor, exact: Tensor) -> float:
    """The largest distance of a mean over axis 0 from what it should be, in standard errors."""
    error = samples.std(0) / samples.shape[0] ** 0.5
    distance = (samples.mean(0) - exact).abs()
    # What never varies must be right as it is.
    return float(torch.where(error > 0, distance / error, torch.where(distance > 0, torch.inf, 0)).max())
