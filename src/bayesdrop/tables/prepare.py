"""Prepared rows: from cells to the numbers that an estimator takes, and why a row is outside what it learned.

Rows outside what was learned always go to a person: those with a category that no row of the fit had, that
lack a cell that no row lacked, or whose numbers lie far outside those of the fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import Array, Flags, as_labels, as_numbers, as_truths, first_bad
from bayesdrop.tables.schema import MISSING, MOST_RARE, OTHER, TRUTHS, Column, Schema

__all__ = ["Prepared", "Preparer", "Reasons"]

#: what an infinite cell counts as
_LARGEST = float(np.finfo(np.float64).max)
#: reasons that are written out for one row
_MOST_REASONS = 3


class Reasons:
    """Why rows lie outside what a model has learned, in words; most rows have no reason.

    Args:
        rows: N.
    """

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros(rows, dtype=np.int64)
        self._texts: dict[int, list[str]] = {}

    def add(self, which: Flags, text: Callable[[int], str]) -> None:
        """A reason for the rows `which`, (N,); `text` says it of a row."""
        for row in np.flatnonzero(which & (self._counts < _MOST_REASONS)).tolist():
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


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that are ready, and what was met on the way.

    Attributes:
        x: (N, K) finite numbers.
        reasons: why rows are outside what the model could learn from.
        unseen: how many cells of each column had a category that no row of the fit had.
        filled: how many cells were missing in columns that never lacked one.
    """

    x: Array
    reasons: Reasons
    unseen: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)


class Preparer:
    """Makes inputs of cells by a schema, in which all that was learned stands.

    A number or a truth value is one input, and a second one, 1 where it is missing, if it was missing in the
    fit; a category is one input of 0 or 1 for each of its texts.

    Args:
        schema: what the columns are.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @property
    def width(self) -> int:
        """K."""
        return sum(column.width for column in self.schema.used)

    def __call__(
        self, frame: Any, owner: str = "the table", *, rows: NDArray[np.int64] | None = None
    ) -> Prepared:
        """Prepare rows; raises where a number or a truth value was expected and something else stands.

        Args:
            frame: a pandas frame with the schema's columns.
            owner: the table, for errors.
            rows: places of the rows to prepare; all if None.
        """
        count = len(frame) if rows is None else len(rows)
        prepared = Prepared(np.empty((count, self.width)), Reasons(count))
        start = 0
        # Columns that were left out come last: their reasons do too.
        for column in sorted(self.schema.columns, key=lambda column: column.kind == "left out"):
            left_out = column.kind == "left out"
            if left_out and not (column.categories and column.name in frame.columns):
                continue
            # Column by column: some rows of a whole frame would be a copy of nearly all of it.
            series = frame[column.name] if rows is None else frame[column.name].iloc[rows]
            inputs = prepared.x[:, start : start + column.width]
            if column.kind == "category":
                self._categories(series, column, inputs, prepared)
            elif left_out:
                self._constant(series, column, prepared)
            else:
                self._numbers(series, column, inputs, prepared, owner)
            start += column.width
        return prepared

    def add_far_numbers(self, prepared: Prepared, estimator: Any) -> None:
        """Add the reasons of numbers that lie far outside those that a fitted estimator has seen."""
        if not len(prepared.x):
            return
        seen = estimator.mixture_.seen
        outside = seen.outside(prepared.x)
        start = 0
        for column in self.schema.used:
            # Only the first input of a number can be outside: all others are 0 or 1.
            if column.kind == "numeric" and outside[:, start].any():
                said = f"seen {_shown(seen.low[start])} to {_shown(seen.high[start])}"
                prepared.reasons.add(outside[:, start], _far(column.name, prepared.x[:, start], said))
            start += column.width

    def _numbers(self, series: Any, column: Column, inputs: Array, prepared: Prepared, owner: str) -> None:
        read = as_numbers if column.kind == "numeric" else as_truths
        values, bad = read(series, self.schema.missing_marks)
        bad &= ~np.isinf(values)
        if bad.any():
            what = "numbers" if column.kind == "numeric" else "true or false"
            raise ValueError(f"{owner}: column {column.name!r} must be {what}; got {first_bad(series, bad)}.")
        missing: Flags = np.isnan(values)
        inputs[:, 0] = np.clip(np.where(missing, column.fill, values), -_LARGEST, _LARGEST)
        if column.marked:
            inputs[:, 1] = missing
        else:
            _never_missing(column, missing, prepared)

    def _constant(self, series: Any, column: Column, prepared: Prepared) -> None:
        """A column that said nothing, since it never changed, says that a row is another kind of row."""
        marks, always = self.schema.missing_marks, column.categories[0]
        labels = as_labels(series, marks, numbers=column.numbers)
        if always in TRUTHS:
            new = as_truths(series, marks)[0] != TRUTHS.index(always)
        else:
            new = np.array([(MISSING if label is None else label) != always for label in labels], dtype=bool)
        was = "missing" if always == MISSING else _shortened(always)
        _unseen(column, new, labels, f"always {was} when it was seen", prepared)

    def _categories(self, series: Any, column: Column, inputs: Array, prepared: Prepared) -> None:
        labels = as_labels(series, self.schema.missing_marks, numbers=column.numbers)
        places = {label: place for place, label in enumerate(column.categories)}
        rest = places.get(OTHER, -1)
        missing: Flags = np.array([label is None for label in labels], dtype=bool)
        found = np.array([places.get(label, rest) for label in labels], dtype=np.int64)
        found[missing] = places.get(MISSING, -1)
        inputs[:] = 0
        known = np.flatnonzero(found >= 0)
        inputs[known, found[known]] = 1
        if MISSING not in places:
            _never_missing(column, missing, prepared)
        familiar = {*places, *column.rare, None}
        new = np.array([label not in familiar for label in labels], dtype=bool)
        # Of more rare texts than that the schema keeps the commonest alone.
        what = "never seen" if len(column.rare) < MOST_RARE else "never seen or hardly ever"
        _unseen(column, new, labels, what, prepared)


def _never_missing(column: Column, missing: Flags, prepared: Prepared) -> None:
    if missing.any():
        prepared.filled[column.name] += int(missing.sum())
        prepared.reasons.add(missing, lambda row: f"{column.name} is missing, which it never was")


def _unseen(column: Column, new: Flags, labels: Any, what: str, prepared: Prepared) -> None:
    if new.any():
        prepared.unseen[column.name] += int(new.sum())
        prepared.reasons.add(new, lambda row: f"{column.name} = {_shortened(labels[row])}, {what}")


def _far(name: str, values: Array, said: str) -> Callable[[int], str]:
    return lambda row: f"{name} = {_shown(values[row])}, {said}"


def _shortened(label: str | None) -> str:
    shown = "missing" if label is None else repr(label)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _shown(value: float) -> str:
    if abs(value) == _LARGEST:
        return "inf" if value > 0 else "-inf"
    return f"{value:.6g}"
