"""TrainingTable: the numbers that networks are fitted to, and the scale of their targets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.likelihoods import Warp
from bayesdrop.stacked.encode import Array

__all__ = ["TargetScale", "TrainingTable"]


@dataclass(frozen=True, eq=False)
class TargetScale:
    """Mean and standard deviation of D targets: networks are trained on (g(y) - mean) / scale.

    Attributes:
        mean: (D,) of g(y).
        scale: (D,) of g(y); 1 for a constant target.
        warp: the map g, which changes nothing unless one was chosen.
        low: (D,) the least standardised target of the table; no bound on outputs if None.
        high: (D,) the largest.
    """

    mean: Array
    scale: Array
    warp: Warp = field(default_factory=Warp)
    low: Array | None = None
    high: Array | None = None

    @staticmethod
    def of(y: Array, weight: Array | None = None, warp: Warp | None = None) -> TargetScale:
        """The scale of targets (N, D), with weights (N,) of the rows, through a map."""
        warp = Warp() if warp is None else warp
        y = _mapped(warp, y)
        mean = np.average(y, axis=0, weights=weight)
        scale = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
        z = (y - mean) / scale
        return TargetScale(mean, scale, warp, z.min(0), z.max(0))

    def with_targets(self, y: Array) -> TargetScale:
        """The same scale with bounds that hold further targets (N, D), too."""
        if self.low is None or self.high is None:
            return self
        z = (_mapped(self.warp, y) - self.mean) / self.scale
        return replace(self, low=np.minimum(self.low, z.min(0)), high=np.maximum(self.high, z.max(0)))

    def standardised(self, y: Array) -> Tensor:
        """(N, D) standardised targets in single precision."""
        return torch.from_numpy(((_mapped(self.warp, y) - self.mean) / self.scale).astype(np.float32))

    def outputs(self, output: Tensor, *, heteroscedastic: bool) -> Tensor:
        """Network outputs (..., D), or (..., 2 D) with log-variances, in units of g(y), as doubles.

        They are within `bounds`: at a row with cells far from all others, a network may say anything.
        """
        mean, scale = torch.from_numpy(self.mean), torch.from_numpy(self.scale)
        least, most = (torch.from_numpy(one) for one in self.bounds(heteroscedastic=heteroscedastic))
        value = output.to(torch.float64).clamp(least, most)
        if not heteroscedastic:
            return value * scale + mean
        means, log_variances = value.chunk(2, -1)
        return torch.cat([means * scale + mean, log_variances + 2 * scale.log()], -1)

    def bounds(self, *, heteroscedastic: bool) -> tuple[Array, Array]:
        """Least and largest outputs of a network that are believed: (D,) or (2 D,) each.

        With R the range of the table's targets, means lie at most R beyond it, as columns are followed no
        farther than their own range beyond it; and noise has a standard deviation of R at most.
        """
        unbounded = np.full_like(self.mean, math.inf)
        low = -unbounded if self.low is None else self.low
        high = unbounded if self.high is None else self.high
        spread = np.where(high > low, high - low, math.inf)
        least, most = low - spread, high + spread
        if not heteroscedastic:
            return least, most
        return np.concatenate([least, -unbounded]), np.concatenate([most, 2 * np.log(spread)])


def _mapped(warp: Warp, y: Array) -> Array:
    """g(y), in new memory; y itself where g changes nothing."""
    if warp.kind == "none":
        return y
    value: Array = warp(torch.tensor(y)).numpy()
    return value


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Numbers to fit.

    Args:
        x: (N, K) columns.
        y: (N, D) targets; (N,) classes 0, 1, ... as int64; or (N, D) labels as bool, a yes or no each.
        weight: (N,) weights of the rows.
        classes: how many classes there are.
        seed: of everything random.
        name: of the table.
        groups: (N,) the group of every row, 0, 1, ...; rows of one group are held out together.
        warp: the map g through which the target is fitted.
    """

    x: Array
    y: NDArray[Any]
    weight: Array | None = None
    classes: int | None = None
    seed: int = 0
    name: str = ""
    groups: NDArray[np.int64] | None = None
    warp: Warp = field(default_factory=Warp)

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or len(self.x) < 1 or self.x.shape[1] < 1:
            raise ValueError(must("TrainingTable", "x", "of shape (N, K), neither of them 0", self.x.shape))
        if len(self.y) != len(self.x):
            raise ValueError(must("TrainingTable", "y", f"{len(self.x)} rows", len(self.y)))
        if self.groups is not None and self.groups.shape != (len(self.x),):
            want = f"of shape ({len(self.x)},)"
            raise ValueError(must("TrainingTable", "groups", want, self.groups.shape))

    @cached_property
    def target(self) -> TargetScale | None:
        """Scale of the targets; None for classes and labels."""
        is_number = self.y.ndim == 2 and self.y.dtype != np.bool_
        return TargetScale.of(self.continuous, self.weight, self.warp) if is_number else None

    @cached_property
    def continuous(self) -> Array:
        """(N, D) targets; to whole numbers, one drawn from U(-1/2, 1/2) by the table's seed is added."""
        if not self.warp.whole:
            return self.y
        source = np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.seed, 20_000])))
        return self.y + source.uniform(-0.5, 0.5, self.y.shape)

    @cached_property
    def targets(self) -> Tensor:
        """What networks are trained on: `targets_in` of the table's own scale."""
        return self.targets_in(self.target)

    def targets_in(self, scale: TargetScale | None) -> Tensor:
        """(N, D) standardised targets; (N,) classes as they are; (N, D) labels as 0.0 and 1.0."""
        if scale is not None:
            return scale.standardised(self.continuous)
        y = torch.from_numpy(self.y)
        return y.to(torch.float32) if self.y.dtype == np.bool_ else y

    @cached_property
    def weights(self) -> Tensor | None:
        """(N,) weights of the rows as a tensor, which all networks share."""
        return None if self.weight is None else torch.from_numpy(self.weight)

    @property
    def log_unit(self) -> float:
        """Minus the mean of `log_units`: subtract it from a mean log density of standardised targets."""
        return 0.0 if self.target is None else -float(self.log_units.mean())

    @property
    def log_units(self) -> Array:
        """(N,) log |dz / dy| summed over targets, z the standardised ones: log p(y) = log p(z) + this."""
        assert self.target is not None
        slopes = self.warp.log_slope(torch.tensor(self.continuous)).numpy()
        units: Array = (slopes - np.log(self.target.scale)).sum(1)
        return units
