"""From the columns of a table to the inputs of a network, and from its outputs back to the target's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import must

__all__ = ["Encoder", "TargetScale"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Encoder:
    """Standardised columns and, beside them, a piecewise-linear encoding of each.

    Column j becomes z = (x - mean) / sd, and for the B intervals between its quantiles e_0 < e_1 < ...

        clip((x - e_i) / (e_i+1 - e_i), 0, 1) - (its mean over the table)

    A network of such inputs can bend sharply wherever the data are dense, which one of z alone learns
    slowly. A column with few values has an interval between each two; intervals that are not needed are
    columns of zeros, so that the width depends on the table's shape alone.

    Attributes:
        mean: (D,) of the columns.
        scale: (D,) standard deviation of the columns; 1 for a constant one.
        edges: (D, B + 1) ends of the intervals, NaN where there are fewer; None without encoding.
        offset: (D * B,) means of the encoding.
    """

    mean: Array
    scale: Array
    edges: Array | None
    offset: Array | None

    @staticmethod
    def of(x: Array, bins: int = 0) -> Encoder:
        """The encoder of a table.

        Args:
            x: (N, D) finite numbers.
            bins: B; 0 leaves the piecewise-linear encoding out.
        """
        if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] < 1:
            raise ValueError(must("Encoder", "x", "of shape (N, D), neither of them 0", x.shape))
        mean = x.mean(0)
        scale = x.std(0)
        # A column that is constant but for rounding is constant.
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
        if bins == 0:
            return Encoder(mean, scale, None, None)
        edges = np.full((x.shape[1], bins + 1), np.nan)
        for column in range(x.shape[1]):
            values = np.unique(x[:, column])
            if len(values) > bins + 1:
                values = np.unique(np.quantile(x[:, column], np.linspace(0, 1, bins + 1)))
            # Two values or fewer: the standardised column says it all.
            if len(values) > 2:
                edges[column, : len(values)] = values
        plain = Encoder(mean, scale, edges, np.zeros(x.shape[1] * bins))
        return Encoder(mean, scale, edges, plain._pieces(x).mean(0))

    @property
    def width(self) -> int:
        """How many inputs the network has."""
        return len(self.mean) + (0 if self.offset is None else len(self.offset))

    def __call__(self, x: Array) -> Tensor:
        """(N, D) numbers to (N, width) inputs in single precision."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(must("Encoder", "x", f"of shape (N, {len(self.mean)})", x.shape))
        parts = [(x - self.mean) / self.scale]
        if self.edges is not None:
            parts.append(self._pieces(x))
        return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))

    def _pieces(self, x: Array) -> Array:
        assert self.edges is not None
        assert self.offset is not None
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        missing = np.isnan(high)
        low, high = np.where(missing, 0.0, low), np.where(missing, 1.0, high)
        pieces = np.clip((x[:, :, None] - low) / (high - low), 0, 1)
        pieces[:, missing] = 0
        value: Array = pieces.reshape(len(x), -1) - self.offset
        return value

    def as_dict(self) -> dict[str, Any]:
        """The arrays by name; `from_dict` is the way back."""
        arrays = {"mean": self.mean, "scale": self.scale}
        if self.edges is not None and self.offset is not None:
            arrays |= {"edges": self.edges, "offset": self.offset}
        return arrays

    @staticmethod
    def from_dict(arrays: dict[str, Array]) -> Encoder:
        """From the arrays of `as_dict`."""
        return Encoder(arrays["mean"], arrays["scale"], arrays.get("edges"), arrays.get("offset"))


@dataclass(frozen=True, eq=False)
class TargetScale:
    """Mean and standard deviation of D targets: networks are trained on standardised ones.

    Attributes:
        mean: (D,).
        scale: (D,); 1 for a constant target.
    """

    mean: Array
    scale: Array

    @staticmethod
    def of(y: Array, weight: Array | None = None) -> TargetScale:
        """Of targets (N, D), with weights (N,) of the rows."""
        mean = np.average(y, axis=0, weights=weight)
        scale = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))
        return TargetScale(mean, np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0))

    def standardised(self, y: Array) -> Tensor:
        """(N, D) in single precision."""
        return torch.from_numpy(((y - self.mean) / self.scale).astype(np.float32))

    def outputs(self, output: Tensor, *, heteroscedastic: bool) -> Tensor:
        """Network outputs (..., D) or (..., 2 D) in the target's units, in double precision."""
        mean, scale = torch.from_numpy(self.mean), torch.from_numpy(self.scale)
        value = output.to(torch.float64)
        if not heteroscedastic:
            return value * scale + mean
        means, log_variances = value.chunk(2, -1)
        return torch.cat([means * scale + mean, log_variances + 2 * scale.log()], -1)
