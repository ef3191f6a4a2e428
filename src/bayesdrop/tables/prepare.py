"""Prepared rows: from the cells of a table to the numbers that an estimator takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import Array, Flags, as_labels, as_numbers, as_truths, first_bad
from bayesdrop.tables.outside import LARGEST, Reasons
from bayesdrop.tables.schema import MISSING, MOST_RARE, OTHER, TRUTHS, Column, Schema

__all__ = ["Prepared", "Preparer"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that are ready, and what was met on the way.

    Attributes:
        x: (N, K) finite numbers.
        reasons: why a row is none that the model could learn from: it has a category that no row of the fit
            had, or lacks a cell that no row lacked.
        unseen: how many cells of each column had such a category.
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
        for column in self.schema.used:
            inputs = prepared.x[:, start : start + column.width]
            # Column by column: some rows of a whole frame would be a copy of nearly all of it.
            series = frame[column.name] if rows is None else frame[column.name].iloc[rows]
            if column.kind == "category":
                self._categories(series, column, inputs, prepared)
            else:
                self._numbers(series, column, inputs, prepared, owner)
            start += column.width
        for column in self.schema.columns:
            if column.kind == "left out" and column.categories and column.name in frame.columns:
                series = frame[column.name] if rows is None else frame[column.name].iloc[rows]
                self._constant(series, column, prepared)
        return prepared

    @property
    def width(self) -> int:
        """K."""
        return sum(column.width for column in self.schema.used)

    def _numbers(self, series: Any, column: Column, inputs: Array, prepared: Prepared, owner: str) -> None:
        read = as_numbers if column.kind == "numeric" else as_truths
        values, bad = read(series, self.schema.missing_marks)
        bad &= ~np.isinf(values)
        if bad.any():
            what = "numbers" if column.kind == "numeric" else "true or false"
            raise ValueError(f"{owner}: column {column.name!r} must be {what}; got {first_bad(series, bad)}.")
        missing: Flags = np.isnan(values)
        inputs[:, 0] = np.clip(np.where(missing, column.fill, values), -LARGEST, LARGEST)
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
        if new.any():
            prepared.unseen[column.name] += int(new.sum())
            was = "missing" if always == MISSING else _shortened(always)
            prepared.reasons.add(
                new, lambda row: f"{column.name} = {_shortened(labels[row])}, always {was} when it was seen"
            )

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
        if new.any():
            prepared.unseen[column.name] += int(new.sum())
            # Of more rare texts than that the schema keeps the commonest alone.
            what = "never seen" if len(column.rare) < MOST_RARE else "never seen or hardly ever"
            prepared.reasons.add(new, lambda row: f"{column.name} = {_shortened(labels[row])}, {what}")


def _never_missing(column: Column, missing: NDArray[np.bool_], prepared: Prepared) -> None:
    if missing.any():
        prepared.filled[column.name] += int(missing.sum())
        prepared.reasons.add(missing, lambda row: f"{column.name} is missing, which it never was")


def _shortened(label: str | None) -> str:
    shown = "missing" if label is None else repr(label)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
