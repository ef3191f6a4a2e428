"""Rows outside what a model has learned, and why: such rows always go to a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import Array, Flags
from bayesdrop.tables.schema import Schema

__all__ = ["LARGEST", "Reasons", "add_far_numbers", "finite_rows", "ranked"]

#: what an infinite cell counts as
LARGEST = float(np.finfo(np.float64).max)
#: reasons that are written out for one row
_MOST = 3


class Reasons:
    """Why rows lie outside what a model has learned, in words; most rows have no reason.

    Args:
        rows: N.
    """

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros(rows, dtype=np.int64)
        self._texts: dict[int, list[str]] = {}

    def add(self, which: Flags, text: Callable[[int], str]) -> None:
        """A reason for some rows.

        Args:
            which: (N,) rows that have it.
            text: the reason of a row, in words.
        """
        for row in np.flatnonzero(which & (self._counts < _MOST)).tolist():
            self._texts.setdefault(row, []).append(text(row))
        self._counts += which

    @property
    def any(self) -> Flags:
        """(N,) which rows have a reason."""
        return self._counts > 0

    def texts(self) -> NDArray[np.object_]:
        """(N,) reasons of each row as one text, "" without any."""
        made = np.full(len(self._counts), "", dtype=object)
        for row, parts in self._texts.items():
            more = int(self._counts[row]) - len(parts)
            made[row] = "; ".join([*parts, f"and {more:,} more"] if more else parts)
        return made


def add_far_numbers(reasons: Reasons, schema: Schema, estimator: Any, x: Array) -> None:
    """Add the reasons of numbers that lie far outside those of the fit.

    Args:
        reasons: of the rows.
        schema: of the model.
        estimator: fitted; it knows the range of its inputs.
        x: (N, K) prepared rows.
    """
    if not len(x):
        return
    seen = estimator.mixture_.seen
    outside = seen.outside(x)
    start = 0
    for column in schema.used:
        # Only the first input of a number can be outside: all others are 0 or 1.
        if column.kind == "numeric" and outside[:, start].any():
            range_seen = f"seen {_shown(seen.low[start])} to {_shown(seen.high[start])}"
            reasons.add(outside[:, start], _far(column.name, x[:, start], range_seen))
        start += column.width


def finite_rows(found: Mapping[str, Any]) -> Flags:
    """(N,) rows whose predictions are all finite.

    Args:
        found: arrays by name, (N,) or (N, K).
    """
    columns = [np.isfinite(values).reshape(len(values), -1).all(1) for values in found.values()]
    finite: Flags = np.logical_and.reduce(columns)
    return finite


def ranked(scores: Mapping[str, Array], outside: Flags) -> dict[str, Array]:
    """Scores by which rows are ranked, infinite for those that always go to a person.

    Args:
        scores: arrays (N,) by name; others are left out.
        outside: (N,) which rows do.
    """
    return {
        name: np.where(outside | ~np.isfinite(values), np.inf, values)
        for name, values in scores.items()
        if values.ndim == 1
    }


def _far(name: str, values: Array, range_seen: str) -> Callable[[int], str]:
    return lambda row: f"{name} = {_shown(values[row])}, {range_seen}"


def _shown(value: float) -> str:
    if abs(value) == LARGEST:
        return "inf" if value > 0 else "-inf"
    return f"{value:.6g}"
