"""From the columns of a table to the inputs of a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.start import Guess

__all__ = ["Array", "EncodedRows", "Encoder", "Seen"]

Array = NDArray[np.float64]

#: numbers that are encoded at a time, in double precision: what fits into a core's cache
_NUMBERS = 2**16
#: numbers beyond which the inputs of a table are not held but made when asked for: a quarter of a gigabyte
_MANY = 2**26
#: the share of a column's values that is left out at each end when its margin is measured
_TAIL = 0.01
#: where margins and bounds end, so that sums of them are finite
_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Seen:
    """Least and largest value of every column, and a margin beyond them.

    The margin is the distance between the column's 1 % and 99 % quantiles (its whole range where these are
    equal), so that one stray value does not widen it. A value is *outside* when it lies beyond the margin.
    On held-out rows of tables that we have tried this happens to 0 to 2 rows in 1,000.

    Beyond the margin nothing was learned, and the output of a network only grows. `bounded` puts such
    values at the margin's end; all others stay as they are.

    Attributes:
        low: (K,) the least values.
        high: (K,) the largest values.
        margin: (K,) how far beyond them a value may lie.
    """

    low: Array
    high: Array
    margin: Array

    @staticmethod
    def of(x: Array) -> Seen:
        """The range of a table.

        Args:
            x: (N, K) finite numbers, N at least 1.
        """
        low, high = x.min(0), x.max(0)
        margin = np.empty(x.shape[1])
        # Column by column: quantiles sort a copy of what they are given.
        for column in range(x.shape[1]):
            # Halves, since the ends of a column may lie farther apart than the largest number.
            first, last = np.quantile(0.5 * x[:, column], [_TAIL, 1 - _TAIL])
            width = last - first if last > first else 0.5 * high[column] - 0.5 * low[column]
            margin[column] = 2 * min(width, _LARGEST)
        return Seen(low, high, margin)

    @property
    def least(self) -> Array:
        """(K,) the least value that is not outside."""
        return np.maximum(self.low - self.margin, np.minimum(self.low, -_LARGEST))

    @property
    def most(self) -> Array:
        """(K,) the largest value that is not outside."""
        return np.minimum(self.high + self.margin, np.maximum(self.high, _LARGEST))

    def outside(self, x: Array) -> NDArray[np.bool_]:
        """(N, K) which values lie beyond the margin; NaN does too."""
        if x.ndim != 2 or x.shape[1] != len(self.low):
            raise ValueError(must("Seen", "x", f"of shape (N, {len(self.low)})", x.shape))
        inside: NDArray[np.bool_] = (x >= self.least) & (x <= self.most)
        return ~inside

    def bounded(self, x: Array) -> Array:
        """(N, K) with values that are outside put at the margin's end."""
        value: Array = np.clip(x, self.least, self.most)
        return value

    def joined(self, other: Seen) -> Seen:
        """The range of two tables together, with the larger margin."""
        return Seen(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.maximum(self.margin, other.margin),
        )


@dataclass(frozen=True, eq=False)
class Encoder:
    """Standardised columns and, beside them, a piecewise-linear encoding of each.

    Column j becomes z = (x - mean) / sd, and for the B intervals between its quantiles e_0 < e_1 < ...

        clip((x - e_i) / (e_i+1 - e_i), 0, 1) - (its mean over the table)

    A network of such inputs can bend sharply wherever the data are dense, which one of z alone learns
    slowly. A column with few values has an interval between each two neighbours; intervals that are not
    needed are inputs of 0, so that the number of inputs depends on the table's shape alone.

    A value beyond the margin of `seen` counts as one at its end: what a network makes of larger ones grows
    without bound and means nothing.

    Some of the table's K columns may be left out, and 2 C predictions of trees and a linear map may be added
    (see `bayesdrop.stacked.start.Guess`): E columns are encoded.

    Attributes:
        seen: the range of the K columns of the table.
        mean: (E,) of the columns.
        scale: (E,) standard deviation of the columns; 1 for a constant one.
        edges: (E, B + 1) ends of the intervals, NaN where there are fewer; None without encoding.
        offset: (E * B,) means of the encoding; None without it.
        chosen: places of the table's columns that are encoded; None for all of them.
        guess: whose predictions are the last of the encoded columns; None for none.
    """

    seen: Seen
    mean: Array
    scale: Array
    edges: Array | None
    offset: Array | None
    chosen: NDArray[np.int64] | None = None
    guess: Guess | None = None

    @staticmethod
    def of(
        x: Array,
        bins: int = 0,
        *,
        chosen: NDArray[np.int64] | None = None,
        guess: Guess | None = None,
        predicted: Array | None = None,
        seen: Seen | None = None,
    ) -> Encoder:
        """The encoder of a table.

        Args:
            x: (N, K) finite numbers.
            bins: B; 0 leaves the piecewise-linear encoding out.
            chosen: places of the columns that are encoded; None for all of them.
            guess: whose predictions are encoded, too.
            predicted: (N, 2 C) predictions of these rows by guesses that have not seen them; needed with
                `guess`, which is too good at rows that it was fitted to.
            seen: the range of the columns; that of `x` if None.
        """
        if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] < 1:
            raise ValueError(must("Encoder", "x", "of shape (N, K), neither of them 0", x.shape))
        if (guess is None) != (predicted is None):
            raise ValueError(must("Encoder", "predicted", "given with `guess`, and only then", predicted))
        seen = Seen.of(x) if seen is None else seen
        x = _columns(x, chosen, predicted)
        mean, scale = _mean_and_scale(x)
        if bins == 0:
            return Encoder(seen, mean, scale, None, None, chosen, guess)
        edges = np.full((x.shape[1], bins + 1), np.nan)
        for column in range(x.shape[1]):
            values = np.unique(x[:, column])
            if len(values) > bins + 1:
                values = np.unique(np.quantile(x[:, column], np.linspace(0, 1, bins + 1)))
            # With two values or fewer, the standardised column says it all.
            if len(values) > 2:
                edges[column, : len(values)] = values
        plain = Encoder(seen, mean, scale, edges, np.zeros(x.shape[1] * bins), chosen, guess)
        columns = [slice(column, column + 1) for column in range(x.shape[1])]
        means = [plain._pieces(x[:, column], column).mean(0) for column in columns]
        return replace(plain, offset=np.concatenate(means))

    @property
    def width(self) -> int:
        """How many inputs the network has."""
        return len(self.mean) + (0 if self.offset is None else len(self.offset))

    @property
    def needed(self) -> NDArray[np.bool_]:
        """(width,) the inputs that are not 0 for every row: columns, and intervals that are needed."""
        columns = np.ones(len(self.mean), dtype=bool)
        return columns if self.edges is None else np.append(columns, ~np.isnan(self.edges[:, 1:]))

    def __call__(self, x: Array, predicted: Array | None = None) -> Tensor:
        """(N, K) numbers to (N, width) inputs in single precision.

        Args:
            x: (N, K) columns.
            predicted: (N, 2 C) predictions to use instead of the guess's own.
        """
        if x.ndim != 2 or x.shape[1] != len(self.seen.low):
            raise ValueError(must("Encoder", "x", f"of shape (N, {len(self.seen.low)})", x.shape))
        made = np.empty((len(x), self.width), dtype=np.float32)
        rows, columns, unit = max(1, _NUMBERS // self.width), len(self.mean), self.unit
        for start in range(0, len(x), rows):
            here = slice(start, start + rows)
            part, out = self._encoded(x[here], None if predicted is None else predicted[here]), made[here]
            out[:, :columns] = (part * unit - self.mean * unit) / (self.scale * unit)
            if self.offset is not None:
                out[:, columns:] = np.subtract(pieces := self._pieces(part), self.offset, out=pieces)
        return torch.from_numpy(made)

    def _encoded(self, x: Array, predicted: Array | None) -> Array:
        """(N, E) the columns that are encoded."""
        bounded = self.seen.bounded(x)
        if self.guess is not None and predicted is None:
            predicted = self.guess(bounded)
        return _columns(bounded, self.chosen, predicted)

    def table_inputs(self, x: Array, predicted: Array | None = None) -> Tensor | EncodedRows:
        """(N, width) inputs of a table that networks learn from; of a long table, made when asked for.

        Args:
            x: (N, K) columns.
            predicted: (N, 2 C) predictions by guesses that have not seen these rows.
        """
        many = self.edges is not None and len(x) * self.width > _MANY
        return EncodedRows(self, x, predicted) if many else self(x, predicted)

    def _pieces(self, x: Array, columns: slice = slice(None)) -> Array:
        """(N, E * B) the share of each interval that lies below the value, of all or of some columns."""
        low, width = (ends[columns] for ends in self.intervals)
        pieces = (x * self.unit[columns])[:, :, None] - low
        pieces /= width
        value: Array = np.clip(pieces, 0, 1, out=pieces).reshape(len(x), -1)
        return value

    @cached_property
    def intervals(self) -> tuple[Array, Array]:
        """(E, B) lower ends and (E, B) widths, in units of `unit`; what is not needed begins at infinity."""
        assert self.edges is not None
        edges = self.edges * self.unit[:, None]
        used = ~np.isnan(edges[:, 1:])
        return np.where(used, edges[:, :-1], np.inf), np.where(used, np.diff(edges), 1.0)

    @cached_property
    def unit(self) -> Array:
        """(E,) a power of two that numbers are multiplied by first, so that their differences stay finite."""
        largest = np.maximum(np.abs(self.seen.least), np.abs(self.seen.most))[None]
        scores = None if self.guess is None else np.zeros((1, self.guess.width))
        return np.where(_columns(largest, self.chosen, scores)[0] > 1e299, 2.0**-4, 1.0)

    def as_dict(self) -> dict[str, Any]:
        """The arrays by name; `from_dict` is the way back."""
        arrays: dict[str, Any] = {"mean": self.mean, "scale": self.scale}
        arrays |= {"low": self.seen.low, "high": self.seen.high, "margin": self.seen.margin}
        if self.edges is not None and self.offset is not None:
            arrays |= {"edges": self.edges, "offset": self.offset}
        if self.chosen is not None:
            arrays["chosen"] = self.chosen
        if self.guess is not None:
            arrays |= {f"guess.{name}": array for name, array in self.guess.as_dict().items()}
        return arrays

    @staticmethod
    def from_dict(arrays: dict[str, Any]) -> Encoder:
        """From the arrays of `as_dict`."""
        if "mean" in arrays and "margin" not in arrays:
            raise ValueError(
                "the model was written by an earlier bayesdrop, without the ranges of its columns; "
                "fit it again."
            )
        seen = Seen(arrays["low"], arrays["high"], arrays["margin"])
        own = {name.removeprefix("guess."): a for name, a in arrays.items() if name.startswith("guess.")}
        guess = Guess.from_dict(own, len(seen.low)) if own else None
        edges, offset, chosen = (arrays.get(name) for name in ("edges", "offset", "chosen"))
        return Encoder(seen, arrays["mean"], arrays["scale"], edges, offset, chosen, guess)


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """(N, width) inputs of a long table, each row made when it is asked for: the numbers of `encoder(x)`.

    Attributes:
        encoder: of the columns.
        x: (N, K) columns.
        predicted: (N, 2 C) predictions by guesses that have not seen these rows, if the encoder has a guess.
    """

    encoder: Encoder
    x: Array
    predicted: Array | None = None
    dtype = torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        """(N, width)."""
        return len(self.x), self.encoder.width

    def __len__(self) -> int:
        """N."""
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """(R, width) inputs of some rows."""
        places = rows.numpy()
        return self.encoder(self.x[places], None if self.predicted is None else self.predicted[places])

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """As `Tensor.index_select`; always over axis 0."""
        return self[rows]


def _columns(x: Array, chosen: NDArray[np.int64] | None, predicted: Array | None) -> Array:
    """(N, E) the chosen columns of (N, K), and what is predicted beside them."""
    x = x if chosen is None else x[:, chosen]
    return x if predicted is None else np.concatenate([x, predicted], 1)


def _mean_and_scale(x: Array) -> tuple[Array, Array]:
    """(E,) mean and (E,) standard deviation of the columns; 1 for one that is constant but for rounding."""
    largest = np.maximum(x.max(0), -x.min(0))
    # Squares of such numbers overflow or vanish, so they are first divided by a power of two, which changes
    # no digit.
    odd = (largest > 1e100) | ((largest < 1e-100) & (largest > 0))
    unit = np.ldexp(1.0, np.where(odd, np.frexp(largest)[1] - 1, 0))
    values = x / unit if odd.any() else x
    mean, scale = values.mean(0), values.std(0)
    varies = scale > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return mean * unit, np.where(varies & (scale * unit > 1e-300), scale * unit, 1.0)
