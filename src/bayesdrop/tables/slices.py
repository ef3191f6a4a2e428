"""Slices: parts of a table, cut by one column, where promises are kept worst."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.tables.cells import Flags, as_labels, as_numbers, as_truths
from bayesdrop.tables.judge import Judged
from bayesdrop.tables.schema import Schema

__all__ = ["Slice", "chance_z", "worst_slices"]

_LEAST_ROWS = 15


@dataclass(frozen=True)
class Slice:
    """Rows that have something in common, what was promised for them, and what came."""

    name: str
    rows: int
    promised: float  #: coverage of the intervals, or mean probability of the label given
    came: float  #: share of targets inside, or of labels that were right
    z: float  #: their distance in standard errors, below 0 for too sure


def worst_slices(judged: Judged, frame: Any, schema: Schema, level: float, most: int = 8) -> list[Slice]:
    """The slices whose coverage, or accuracy, is farthest from what was promised, in standard errors.

    Args:
        judged: rows.
        frame: the same rows, as they were read.
        schema: of the model.
        level: coverage that was asked of the intervals.
        most: how many.
    """
    found = _all_slices(judged, frame, schema, level)
    return sorted(found, key=lambda part: -abs(part.z))[:most]


def chance_z(judged: Judged, frame: Any, schema: Schema, level: float) -> tuple[int, float]:
    """How many slices there are, and about how far the worst of them would be by chance alone.

    The expected maximum of M independent |z| is near sqrt(2 log 2M) (an upper bound).
    """
    count = len(_all_slices(judged, frame, schema, level))
    return count, math.sqrt(2 * math.log(2 * count)) if count else 0.0


def _all_slices(judged: Judged, frame: Any, schema: Schema, level: float) -> list[Slice]:
    if judged.classes:
        given = judged.scores["probs"].max(1)
        came = judged.loss == 0
    else:
        given = np.full(len(judged.target), level)
        came = judged.covered
    slices = []
    for name, rows in _cuts(frame, schema):
        count = int(rows.sum())
        if _LEAST_ROWS <= count < len(rows):
            error = math.sqrt(float(np.sum(given[rows] * (1 - given[rows])))) / count
            promised, share = float(given[rows].mean()), float(came[rows].mean())
            z = (share - promised) / max(error, 0.5 / count)
            slices.append(Slice(name, count, promised, share, z))
    return slices


def _cuts(frame: Any, schema: Schema) -> Iterator[tuple[str, Flags]]:
    """Quarters of numbers, values of the rest, missing cells."""
    marks = schema.missing_marks
    for column in schema.used:
        series = frame[column.name]
        if column.kind == "category":
            labels = as_labels(series, marks, numbers=column.numbers)
            for label in column.categories:
                yield f"{column.name} = {label}", labels == label
            continue
        values, _ = (as_numbers if column.kind == "numeric" else as_truths)(series, marks)
        missing: Flags = np.isnan(values)
        yield f"{column.name} missing", missing
        finite = values[np.isfinite(values)]
        distinct = np.unique(finite)
        if len(distinct) <= 6:
            for value in distinct:
                shown = ("no", "yes")[int(value)] if column.kind == "boolean" else f"{value:g}"
                yield f"{column.name} = {shown}", values == value
            continue
        # Halves, since numbers may lie farther apart than the largest there is.
        edges = 2 * np.unique(np.quantile(0.5 * finite, [0, 0.25, 0.5, 0.75, 1]))
        for place, (low, high) in enumerate(itertools.pairwise(edges)):
            above = values >= low if place == 0 else values > low
            yield f"{column.name} {low:.4g} to {high:.4g}", above & (values <= high)
