"""Prepared rows: from cells to the inputs that an estimator takes, and why a row is outside what it learned.

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

from bayesdrop.tables.cells import Array, Flags, as_days, as_labels, as_numbers, as_truths, day_of, first_bad
from bayesdrop.tables.columns import DATE_INPUTS, MISSING, MOST_RARE, OTHER, TRUTHS, Column, Schema
from bayesdrop.tables.spelling import DATES, plain_number
from bayesdrop.tables.written import plainly

__all__ = ["Prepared", "Preparer", "Reasons", "date_inputs"]

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
        """Add a reason for the rows `which`, (N,); `text` words it for a row."""
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
    """N rows as inputs, and what was strange about them.

    Attributes:
        x: (N, K) finite numbers.
        reasons: why rows are outside what the model has learned.
        unseen: by column, how many cells had a category that no row of the fit had.
        filled: by column that lacked no cell in the fit, how many cells were missing.
    """

    x: Array
    reasons: Reasons
    unseen: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)


class Preparer:
    """Makes inputs of cells by a schema, which holds all that was learned of the columns.

    A number or a truth value is one input, a date five (`DATE_INPUTS`); a column that lacked cells in the fit
    has a further one, 1 where it lacks one. A category is an input of 0 or 1 for each of its texts.

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
        """Prepare rows; raises if a cell of a number, a truth value or a date is something else.

        Args:
            frame: a pandas frame with the schema's columns.
            owner: the table, for errors.
            rows: places of the rows to prepare; all if None.
        """
        count = len(frame) if rows is None else len(rows)
        prepared = Prepared(np.empty((count, self.width)), Reasons(count))
        start = 0
        # Columns that were left out come last, so that their reasons do.
        for column in sorted(self.schema.columns, key=lambda column: column.kind == "left out"):
            left_out = column.kind == "left out"
            if left_out and not (column.categories and column.name in frame.columns):
                continue
            # Column by column: rows of a whole frame would be a copy of nearly all of it.
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
        """Add reasons for numbers and dates that lie far outside those that a fitted estimator has seen."""
        if not len(prepared.x):
            return
        seen = estimator.mixture_.seen
        outside = seen.outside(prepared.x)
        start = 0
        for column in self.schema.used:
            # The first input of a number or a date decides: the others follow from it, or are 0 or 1.
            if column.kind in ("numeric", "date") and outside[:, start].any():
                values, low, high = prepared.x[:, start], seen.low[start], seen.high[start]
                shown: Callable[[float], str] = _shown
                if column.kind == "date":
                    low, high, shown = high, low, _day_before(column.last)
                said = f"seen {shown(low)} to {shown(high)}"
                prepared.reasons.add(outside[:, start], _far(column.name, values, said, shown))
            start += column.width

    def _numbers(self, series: Any, column: Column, inputs: Array, prepared: Prepared, owner: str) -> None:
        """Write the inputs of a column of numbers, truth values or dates."""
        values, bad = column.read(series, self.schema.missing_marks)
        bad &= ~np.isinf(values)
        if bad.any():
            what, hint = _WANTED[column.kind]
            what += f" {column.how}".rstrip()
            said = f"{owner}: column {column.name!r} must be {what}; got {first_bad(series, bad)}."
            raise ValueError(f"{said} {hint}".rstrip())
        missing: Flags = np.isnan(values)
        filled = np.clip(np.where(missing, column.fill, values), -_LARGEST, _LARGEST)
        if column.kind == "date":
            inputs[:, : len(DATE_INPUTS)] = date_inputs(filled, column.last)
        else:
            inputs[:, 0] = filled
        if column.marked:
            inputs[:, -1] = missing
        else:
            _never_missing(column, missing, prepared)

    def _constant(self, series: Any, column: Column, prepared: Prepared) -> None:
        """Add reasons where a column that never changed in the fit has another value."""
        marks, always = self.schema.missing_marks, column.categories[0]
        labels = as_labels(series, marks, numbers=column.numbers)
        if column.format in DATES:
            days = as_days(series, marks, column.format)[0]
            new = np.array([np.isnan(day) or day_of(day) != always for day in days], dtype=bool)
        elif column.format:
            new = as_numbers(series, marks, column.format)[0] != float(
                plain_number(always, column.format) or "nan"
            )
        elif always in TRUTHS:
            new = as_truths(series, marks)[0] != TRUTHS.index(always)
        else:
            new = np.array([(MISSING if label is None else label) != always for label in labels], dtype=bool)
        was = "missing" if always == MISSING else _shortened(always)
        _unseen(column, new, labels, f"always {was} when it was seen", prepared)

    def _categories(self, series: Any, column: Column, inputs: Array, prepared: Prepared) -> None:
        """Write the inputs of a column of categories."""
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
        # If there were more rare texts, the schema has the commonest of them only.
        what = "never seen" if len(column.rare) < MOST_RARE else "never seen or hardly ever"
        _unseen(column, new, labels, what, prepared)


#: what a column must be, and how to say that a table is written in another way
_WANTED = {
    "numeric": ("numbers", "If they are written in another way: --numbers."),
    "boolean": ("true or false", ""),
    "date": ("dates", "If they are written in another way: --dates."),
}


def date_inputs(days: Array, last: float) -> Array:
    """The inputs that dates become, `DATE_INPUTS`.

    Args:
        days: (N,) dates, in days since 1970.
        last: the day that ages are counted from.

    Returns: (N, 5).
    """
    whole = np.floor(days).astype("datetime64[D]")
    months = whole.astype("datetime64[M]")
    years = whole.astype("datetime64[Y]")
    # The first of January 1970 was a Thursday; Monday is 0.
    weekday = (np.floor(days) + 3) % 7
    of_year = (whole - years.astype("datetime64[D]")).astype(np.float64) + 1
    month = (months - years.astype("datetime64[M]")).astype(np.float64) + 1
    return np.stack([last - days, years.astype(np.float64) + 1970, month, weekday, of_year], axis=1)


def _day_before(last: float) -> Callable[[float], str]:
    return lambda age: day_of(last - age)


def _never_missing(column: Column, missing: Flags, prepared: Prepared) -> None:
    if missing.any():
        prepared.filled[column.name] += int(missing.sum())
        prepared.reasons.add(missing, lambda row: f"{column.name} is missing, which it never was")


def _unseen(column: Column, new: Flags, labels: Any, what: str, prepared: Prepared) -> None:
    if new.any():
        prepared.unseen[column.name] += int(new.sum())
        prepared.reasons.add(new, lambda row: f"{column.name} = {_shortened(labels[row])}, {what}")


def _far(name: str, values: Array, said: str, shown: Callable[[float], str]) -> Callable[[int], str]:
    return lambda row: f"{name} = {shown(values[row])}, {said}"


def _shortened(label: str | None) -> str:
    shown = "missing" if label is None else repr(label)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _shown(value: float) -> str:
    if abs(value) == _LARGEST:
        return "inf" if value > 0 else "-inf"
    return plainly(value)
