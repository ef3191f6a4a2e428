"""learned(): what a model has learned from, beside every cell of a row, and which cells are outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.serve.served.base import ServedModel
from bayesdrop.serve.served.cells import frame_of
from bayesdrop.serve.served.tables import ServedTable
from bayesdrop.tables.cells import day_of
from bayesdrop.tables.columns import MISSING, OTHER, Column
from bayesdrop.tables.written import written

__all__ = ["learned", "target_range"]

_MOST_KINDS, _LONGEST = 4, 24


def learned(served: ServedModel, row: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What a model learned from, and how a cell is outside of that ("" where it is not), by name.

    Args:
        served: a model; only tables know.
        row: cells by name.
    """
    if not isinstance(served, ServedTable):
        return {}
    model = served.model
    try:
        prepared = model.prepare(frame_of([dict(row)], model.schema), "the item")
    except ValueError:  # of another version, whose columns were others
        return {}
    seen = model.estimator.mixture_.seen
    far = seen.outside(prepared.x)[0]
    found, start = {}, 0
    for column in model.schema.used:
        outside = ""
        if prepared.unseen[column.name]:
            outside = "never seen"
        elif prepared.filled[column.name]:
            outside = "never missing before"
        elif column.kind in ("numeric", "date") and far[start]:
            outside = "far outside"
        found[column.name] = (_usual(column, seen.low[start], seen.high[start]), outside)
        start += column.width
    for column in model.schema.columns:
        if column.name not in found and prepared.unseen[column.name]:
            found[column.name] = (f"always {_short(column.categories[0])}", "never seen")
    return found


def target_range(served: ServedModel) -> tuple[float, float] | None:
    """The least and the largest number that a table's model was fitted to, where it keeps its rows."""
    if not isinstance(served, ServedTable) or served.task != "regression" or served.model.rows is None:
        return None
    known = served.model.rows.y[np.isfinite(served.model.rows.y)]
    return (float(known.min()), float(known.max())) if len(known) else None


def _usual(column: Column, low: float, high: float) -> str:
    if column.kind == "numeric":
        return f"{written(float(low), digits=4)} to {written(float(high), digits=4)}"
    if column.kind == "date":
        # The first input of a date is its age.
        return f"{day_of(column.last - high)} to {day_of(column.last - low)}"
    if column.kind == "category":
        kinds = [kind for kind in column.categories if kind not in (MISSING, OTHER)]
        shown = ", ".join(_short(kind) for kind in kinds[:_MOST_KINDS])
        more = len(kinds) - _MOST_KINDS
        return f"{shown} and {more} more" if more > 0 else shown
    return "true or false"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
