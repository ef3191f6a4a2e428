"""TrainingRows: some of the rows that a model was fitted to, as inputs of the model."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import must, whole_number
from bayesdrop.tables.cells import Array, as_labels, as_numbers, missing_cells
from bayesdrop.tables.columns import Column
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.schema import MISSING, Schema
from bayesdrop.tables.spelling import PLAIN

__all__ = ["TrainingRows", "cells_of", "row_numbers", "rows_of", "shown_cell"]

#: numbers that are kept at most, 8 bytes each
_MOST_CELLS = 500_000


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """n rows of a fit, chosen at random: what baselines learn from, and what a row is compared with.

    Attributes:
        x: (n, K) inputs.
        y: (n,) numbers, or places of the labels; NaN where a target is not known.
        numbers: (n,) the number of each row in its table, counted from 1.
        of: how many rows they were chosen from.
    """

    x: Array
    y: Array
    numbers: Array
    of: int

    def __post_init__(self) -> None:
        sound = self.x.ndim == 2 and self.y.shape == self.numbers.shape == self.x.shape[:1]
        finite = sound and np.isfinite(self.x).all() and np.isfinite(self.numbers).all()
        if not finite or np.isinf(self.y).any() or self.of < len(self.x):
            raise ValueError(must("TrainingRows", "x", "finite, and of as many rows as y and numbers", self))

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"TrainingRows({len(self.x)} of {self.of}, {self.x.shape[1:]} inputs)"

    def first(self, most: int) -> TrainingRows:
        """The first `most` of them, or fewer if these had more than 500,000 inputs. Their order is random.

        Args:
            most: 0 or more.
        """
        whole_number("TrainingRows.first", "most", most, at_least=0)
        count = min(most, max(1, _MOST_CELLS // max(1, self.x.shape[1])))
        return TrainingRows(self.x[:count], self.y[:count], self.numbers[:count], self.of)

    @staticmethod
    def drawn(x: Array, y: NDArray[Any], numbers: NDArray[Any], *, most: int, seed: int) -> TrainingRows:
        """At most `most` rows, chosen at random and in random order.

        Args:
            x: (N, K) inputs.
            y: (N,) numbers, or places of the labels.
            numbers: (N,) numbers of the rows in their table.
            most: at least 1.
            seed: of the choice.
        """
        taken = np.random.default_rng((seed, 1)).permutation(len(x))[:most]
        target, places = (np.asarray(part, dtype=np.float64)[taken] for part in (y, numbers))
        return TrainingRows(x[taken], target, places, len(x))


def rows_of(frame: Any, schema: Schema, owner: str, *, most: int, seed: int = 0) -> TrainingRows:
    """Rows of a table, for a model that keeps none; cells of the target, or the whole column, may be missing.

    Args:
        frame: a pandas frame with the schema's columns.
        schema: of the model.
        owner: the table, for errors.
        most: rows to take at most.
        seed: of the choice.
    """
    schema.check_names(list(frame.columns), owner)
    if not len(frame):
        raise ValueError(f"{owner} must have rows to compare with; got none.")
    chosen = np.sort(np.random.default_rng((seed, 1)).permutation(len(frame))[:most])
    x = Preparer(schema)(frame, owner, rows=chosen).x
    y = np.full(len(chosen), np.nan)
    if schema.target in frame.columns:
        series = frame[schema.target].iloc[chosen]
        if schema.task == "regression":
            y = as_numbers(series, schema.missing_marks, schema.target_format or PLAIN)[0]
        else:
            places = {label: float(place) for place, label in enumerate(schema.classes)}
            labels = as_labels(series, schema.missing_marks, numbers=schema.number_labels)
            y = np.array([places.get(label, np.nan) for label in labels])
            y[missing_cells(series, schema.missing_marks)] = np.nan
    return TrainingRows(x, y, row_numbers(frame)[chosen], len(frame))


def row_numbers(frame: Any) -> Array:
    """(N,) numbers of rows in their table, counted from 1 below the header: the frame's index plus 1."""
    index = frame.index
    if index.dtype.kind not in "iu":  # not an index of `TableFile`
        return np.arange(1.0, len(frame) + 1)
    numbers: Array = index.to_numpy(dtype=np.float64) + 1
    return numbers


def shown_cell(column: Column, series: Any, marks: Collection[str]) -> str:
    """The cell of a column of one row as a person writes it; its own text where the column cannot read it.

    Args:
        column: of the schema.
        series: a pandas column of one row.
        marks: texts that mean "missing".
    """
    if column.kind in ("numeric", "boolean", "date"):
        value = float(column.read(series, marks)[0][0])
        if math.isfinite(value):
            return column.shown(value)
    text = str(series.iloc[0]).strip()
    return "(empty)" if not text or series.isna().iloc[0] else text


def cells_of(schema: Schema, x: Array) -> list[list[str]]:
    """What stood in the cells of prepared rows, as texts: a list for each row, a text for each used column.

    Args:
        schema: of the model.
        x: (N, K) inputs.
    """
    columns: list[list[str]] = []
    start = 0
    for column in schema.used:
        inputs = x[:, start : start + column.width]
        if column.kind == "category":
            best = inputs.argmax(1)
            none = inputs.max(1, initial=0.0) <= 0
            columns.append(
                [
                    "(never seen)" if unknown else column.categories[place]
                    for place, unknown in zip(best, none, strict=True)
                ]
            )
        else:
            gone = inputs[:, -1] > 0 if column.marked else np.zeros(len(x), dtype=bool)
            # A date's first input is its age.
            values = column.last - inputs[:, 0] if column.kind == "date" else inputs[:, 0]
            shown = [column.shown(value) for value in values]
            columns.append([MISSING if lacking else text for text, lacking in zip(shown, gone, strict=True)])
        start += column.width
    return [list(row) for row in zip(*columns, strict=True)]
