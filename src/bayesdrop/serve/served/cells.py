"""From rows of JSON to a frame whose cells mean what they mean in JSON: a number is a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.errors import require
from bayesdrop.serve.served.base import BadRow
from bayesdrop.tables.cells import as_numbers, first_bad
from bayesdrop.tables.columns import Column, Schema
from bayesdrop.tables.spelling import PLAIN

__all__ = ["checked_cell", "frame_of"]

#: whole numbers beyond it are not all floats
_EXACT = 2**53


def checked_cell(name: str, value: Any) -> Any:
    """A cell of JSON: a number, a text, a truth value or None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value.isascii() or _is_unicode(value):
            return value
        raise BadRow(f"{name!r} must be text of whole characters; it has half of a surrogate pair.")
    if isinstance(value, int):
        if abs(value) < 10**300:
            return value
    elif isinstance(value, float) and math.isfinite(value):
        return value
    raise BadRow(f"{name!r} must be a finite number, a text, true, false or null; got {_shown(value)}.")


def frame_of(rows: Sequence[Mapping[str, Any]], schema: Schema) -> Any:
    """A pandas frame of the columns that a schema knows; a cell that is not there is missing.

    A number stays one however the table of the fit wrote its numbers; a text is read as that table was.

    Args:
        rows: cells by name.
        schema: of the model.
    """
    pandas = require("pandas", extra="tables", owner="bayesdrop serve")
    # A column that was the same in every row of the fit is looked at where it is given.
    given = {name for row in rows for name in row}
    known = [column for column in schema.columns if column.kind != "left out" or column.name in given]
    index = pandas.RangeIndex(len(rows))
    columns = {
        column.name: pandas.Series(
            _cells(column, [row.get(column.name) for row in rows], schema, pandas), index
        )
        for column in known
    }
    return pandas.DataFrame(columns, index=index, copy=False)


def _cells(column: Column, cells: list[Any], schema: Schema, pandas: Any) -> Any:
    numbers = all(type(cell) is float or (type(cell) is int and abs(cell) <= _EXACT) for cell in cells)
    if numbers and column.kind in ("numeric", "boolean"):
        return np.array(cells, dtype=np.float64)
    if column.kind != "numeric":
        return np.array(cells, dtype=object) if cells else np.empty(0, dtype=object)
    values = np.full(len(cells), np.nan)
    texts = [place for place, cell in enumerate(cells) if isinstance(cell, str | bool)]
    for place, cell in enumerate(cells):
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            values[place] = cell
    if texts:
        series = pandas.Series([str(cells[place]) for place in texts], index=texts, dtype=object)
        read, bad = as_numbers(series, schema.missing_marks, column.format or PLAIN)
        bad &= ~np.isinf(read)
        if bad.any():
            raise BadRow(f"column {column.name!r} must be numbers; got {first_bad(series, bad)}.")
        values[texts] = read
    return values


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
