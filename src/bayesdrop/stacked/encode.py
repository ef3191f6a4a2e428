"""From the columns of a table to the inputs of a network, and from its outputs back to the target's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.packed import PackedInputs
from bayesdrop.stacked.seen import Seen

__all__ = ["Encoder", "TargetScale"]

Array = NDArray[np.float64]

#: numbers of an encoding that are held in double precision at a time
_NUMBERS = 2**22
#: inputs of a table from which on they are packed: a quarter of a gigabyte
_MANY = 2**26


@dataclass(frozen=True, eq=False)
class Encoder:
    """Standardised columns and, beside them, a piecewise-linear encoding of each.

    Column j becomes z = (x - mean) / sd, and for the B intervals between its quantiles e_0 < e_1 < ...

        clip((x - e_i) / (e_i+1 - e_i), 0, 1) - (its mean over the table)

    A network of such inputs can bend sharply wherever the data are dense, which one of z alone learns
    slowly. A column with few values has an interval between each two; intervals that are not needed are
    columns of zeros, so that the width depends on the table's shape alone.

    A value far beyond those of the table counts as one at the end of the margin of `seen`: what a network
    makes of larger ones grows without bound and means nothing.

    Attributes:
        seen: the range of the columns.
        mean: (D,) of the columns.
        scale: (D,) standard deviation of the columns; 1 for a constant one.
        edges: (D, B + 1) ends of the intervals, NaN where there are fewer; None without encoding.
        offset: (D * B,) means of the encoding.
    """

    seen: Seen
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
        seen = Seen.of(x)
        mean, scale = _mean_and_scale(x)
        if bins == 0:
            return Encoder(seen, mean, scale, None, None)
        edges = np.full((x.shape[1], bins + 1), np.nan)
        for column in range(x.shape[1]):
            values = np.unique(x[:, column])
            if len(values) > bins + 1:
                values = np.unique(np.quantile(x[:, column], np.linspace(0, 1, bins + 1)))
            # Two values or fewer: the standardised column says it all.
            if len(values) > 2:
                edges[column, : len(values)] = values
        plain = Encoder(seen, mean, scale, edges, np.zeros(x.shape[1] * bins))
        means = [plain._pieces_of(column, values).mean(0) for column, values in enumerate(x.T)]
        return Encoder(seen, mean, scale, edges, np.concatenate(means))

    @property
    def width(self) -> int:
        """How many inputs the network has."""
        return len(self.mean) + (0 if self.offset is None else len(self.offset))

    def __call__(self, x: Array) -> Tensor:
        """(N, D) numbers to (N, width) inputs in single precision."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(must("Encoder", "x", f"of shape (N, {len(self.mean)})", x.shape))
        made = np.empty((len(x), self.width), dtype=np.float32)
        rows = max(1, _NUMBERS // self.width)
        for start in range(0, len(x), rows):
            part = self.seen.bounded(x[start : start + rows])
            made[start : start + rows, : len(self.mean)] = self._standardised(part)
            if self.edges is not None:
                made[start : start + rows, len(self.mean) :] = self._pieces(part)
        return torch.from_numpy(made)

    def table_inputs(self, x: Array) -> Tensor | PackedInputs:
        """The inputs of a table that networks learn from: the same numbers, packed where they are many."""
        if self.edges is None or len(x) * self.width <= _MANY:
            return self(x)
        return self.packed(x)

    def packed(self, x: Array) -> PackedInputs:
        """(N, D) numbers to packed inputs."""
        assert self.edges is not None
        assert self.offset is not None
        offset = self.offset.reshape(len(self.mean), -1)
        bins = offset.shape[1]
        plain = np.empty(x.shape, dtype=np.float32)
        place = np.empty(x.shape, dtype=np.uint8 if bins <= 256 else np.int16)
        part = np.empty(x.shape, dtype=np.float32)
        rows = max(1, _NUMBERS // self.width)
        for start in range(0, len(x), rows):
            these = slice(start, start + rows)
            bounded = self.seen.bounded(x[these])
            plain[these] = self._standardised(bounded)
            for column, values in enumerate(bounded.T):
                pieces = self._pieces_of(column, values)
                # The first that is not full; the last of all where all are.
                found = np.argmax(pieces < 1, axis=1)
                found[pieces[:, -1] == 1] = bins - 1
                place[these, column] = found
                part[these, column] = pieces[np.arange(len(found)), found] - offset[column, found]
        empty, full = (0 - offset).astype(np.float32), (1 - offset).astype(np.float32)
        return PackedInputs(*map(torch.from_numpy, (plain, place, part, empty, full)))

    def _standardised(self, x: Array) -> Array:
        unit = self._unit
        value: Array = (x * unit - self.mean * unit) / (self.scale * unit)
        return value

    def _pieces(self, x: Array) -> Array:
        assert self.offset is not None
        parts = [self._pieces_of(column, values) for column, values in enumerate(x.T)]
        value: Array = np.concatenate(parts, 1) - self.offset
        return value

    def _pieces_of(self, column: int, values: Array) -> Array:
        """(N, B) pieces of one column, which add up to its place among the edges."""
        assert self.edges is not None
        edges = self.edges[column] * self._unit[column]
        used = ~np.isnan(edges[1:])
        low, high = edges[:-1][used], edges[1:][used]
        pieces = np.zeros((len(values), len(used)))
        pieces[:, used] = np.clip(((values * self._unit[column])[:, None] - low) / (high - low), 0, 1)
        return pieces

    @cached_property
    def _unit(self) -> Array:
        """(D,) what numbers are multiplied by first: a power of two, to leave room for differences."""
        largest = np.maximum(np.abs(self.seen.least), np.abs(self.seen.most))
        return np.where(largest > 1e299, 2.0**-4, 1.0)

    def as_dict(self) -> dict[str, Any]:
        """The arrays by name; `from_dict` is the way back."""
        arrays = {"mean": self.mean, "scale": self.scale}
        arrays |= {"low": self.seen.low, "high": self.seen.high, "margin": self.seen.margin}
        if self.edges is not None and self.offset is not None:
            arrays |= {"edges": self.edges, "offset": self.offset}
        return arrays

    @staticmethod
    def from_dict(arrays: dict[str, Array]) -> Encoder:
        """From the arrays of `as_dict`."""
        if "mean" in arrays and "margin" not in arrays:
            raise ValueError(
                "the model was written by an earlier bayesdrop, without the ranges of its columns; "
                "fit it again."
            )
        seen = Seen(arrays["low"], arrays["high"], arrays["margin"])
        return Encoder(seen, arrays["mean"], arrays["scale"], arrays.get("edges"), arrays.get("offset"))


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


def _mean_and_scale(x: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of every column; 1 for one that is constant but for rounding."""
    largest = np.maximum(x.max(0), -x.min(0))
    # Squares of such numbers are too large or too small for the machine: a power of two, which changes
    # no digit, takes them out of there.
    odd = (largest > 1e100) | ((largest < 1e-100) & (largest > 0))
    unit = np.ldexp(1.0, np.where(odd, np.frexp(largest)[1] - 1, 0))
    values = x / unit if odd.any() else x
    mean, scale = values.mean(0), values.std(0)
    varies = scale > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return mean * unit, np.where(varies & (scale * unit > 1e-300), scale * unit, 1.0)
