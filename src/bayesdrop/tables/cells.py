"""From the cells of a column, text or typed, to numbers, truth values and labels."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require

__all__ = ["Array", "Flags", "as_labels", "as_numbers", "as_truths", "first_bad", "is_text", "missing_cells"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: texts that stand for nothing, in lower case
_MISSING = frozenset({"", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "nil"})
_TRUE = frozenset({"true", "yes", "t", "y"})
_FALSE = frozenset({"false", "no", "f", "n"})


def is_text(series: Any) -> bool:
    """Whether the cells are texts, as all cells of a CSV are."""
    types = require("pandas", extra="tables", owner="bayesdrop.tables").api.types
    return not (types.is_numeric_dtype(series.dtype) or types.is_bool_dtype(series.dtype))


def missing_cells(series: Any, marks: Collection[str] = ()) -> Flags:
    """Which cells are empty or say so: "", NA, N/A, NaN, null, None, and further marks.

    Args:
        series: a pandas column.
        marks: texts that mean "missing" besides.
    """
    empty = series.isna().to_numpy(dtype=bool)
    if is_text(series):
        text = _stripped(series)
        empty = empty | text.str.lower().isin(_MISSING).to_numpy(dtype=bool)
        if marks:
            empty = empty | text.isin(list(marks)).to_numpy(dtype=bool)
    flags: Flags = empty
    return flags


def as_numbers(series: Any, marks: Collection[str] = ()) -> tuple[Array, Flags]:
    """The cells as numbers, NaN where they are missing, and which cells are neither.

    Args:
        series: a pandas column.
        marks: texts that mean "missing" besides.
    """
    pandas = require("pandas", extra="tables", owner="bayesdrop.tables")
    missing = missing_cells(series, marks)
    if is_text(series):
        cells = _stripped(series).where(~missing, None)
        # Through objects: the result is then float64 whatever holds the texts.
        values = pandas.to_numeric(cells.astype(object), errors="coerce").to_numpy(dtype=np.float64)
    else:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    values = np.where(missing, np.nan, values)
    bad: Flags = ~missing & ~np.isfinite(values)
    return values, bad


def as_truths(series: Any, marks: Collection[str] = ()) -> tuple[Array, Flags]:
    """The cells as 1 and 0, NaN where they are missing, and which cells are neither true nor false.

    Args:
        series: a pandas column of truth values, or of texts such as true, no, F.
        marks: texts that mean "missing" besides.
    """
    missing = missing_cells(series, marks)
    if is_text(series):
        lower = _stripped(series).str.lower()
        true = lower.isin(_TRUE).to_numpy(dtype=bool)
        false = lower.isin(_FALSE).to_numpy(dtype=bool)
    else:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        true, false = values == 1, values == 0
    bad: Flags = ~missing & ~true & ~false
    return np.where(missing | bad, np.nan, true.astype(np.float64)), bad


def as_labels(series: Any, marks: Collection[str] = (), *, numbers: bool = False) -> NDArray[np.object_]:
    """The cells as texts, None where they are missing.

    Args:
        series: a pandas column.
        marks: texts that mean "missing" besides.
        numbers: the labels are numbers, so that "1", "1.0" and " 1" are one of them.
    """
    missing = missing_cells(series, marks)
    labels: NDArray[np.object_]
    if not numbers and is_text(series):
        labels = _stripped(series).to_numpy(dtype=object)
    elif not numbers and str(series.dtype).lower().startswith("bool"):
        labels = series.astype(object).map(str).to_numpy(dtype=object)
    else:
        values, bad = as_numbers(series, marks)
        own = _stripped(series).to_numpy(dtype=object)
        labels = np.array(
            [text if wrong else _plain(value) for text, value, wrong in zip(own, values, bad, strict=True)],
            dtype=object,
        )
    labels[missing] = None
    return labels


def first_bad(series: Any, bad: Flags) -> str:
    """The first cells that are wrong, with their rows: "'abc' in row 3 and 4 others"."""
    places = np.flatnonzero(bad)
    row = int(series.index[places[0]]) + 1
    more = f" and {len(places) - 1:,} others" if len(places) > 1 else ""
    return f"{series.iloc[places[0]]!r} in row {row:,}{more}"


def _plain(value: float) -> str:
    return str(int(value)) if np.isfinite(value) and value == int(value) else repr(float(value))


def _stripped(series: Any) -> Any:
    return series.astype("str").str.strip()
