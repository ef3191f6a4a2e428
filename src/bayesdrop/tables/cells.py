"""From the cells of a column, text or typed, to numbers, truth values and labels."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.harmless import NUMBER

__all__ = ["Array", "Flags", "as_labels", "as_numbers", "as_truths", "first_bad", "is_text", "missing_cells"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.object_]

#: texts that stand for nothing, in lower case
_MISSING = frozenset({"", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "nil"})
_TRUE = frozenset({"true", "yes", "t", "y"})
_FALSE = frozenset({"false", "no", "f", "n"})


# everywhere `series` is a pandas column and `marks` are further texts that mean "missing"


def is_text(series: Any) -> bool:
    """Whether the cells are texts, as all cells of a CSV are."""
    types = require("pandas", extra="tables", owner="bayesdrop.tables").api.types
    return not (types.is_numeric_dtype(series.dtype) or types.is_bool_dtype(series.dtype))


def type_of(series: Any) -> str:
    """What a typed column holds: "truths", "times", or "other"; a CSV has no types."""
    name = str(series.dtype).lower()
    if name.startswith("bool"):
        return "truths"
    times = name.startswith(("timestamp", "date", "time", "duration")) or "datetime" in name
    return "times" if times else "other"


def missing_cells(series: Any, marks: Collection[str] = ()) -> Flags:
    """Which cells are empty or say so: "", NA, N/A, NaN, null, None, and further marks."""
    if is_text(series):
        return _missing_texts(_texts(series), marks)
    empty: Flags = series.isna().to_numpy(dtype=bool)
    # A NaN of a typed column is not always one of pandas' missing values.
    return empty | np.isnan(_typed_numbers(series))


def as_numbers(series: Any, marks: Collection[str] = ()) -> tuple[Array, Flags]:
    """The cells as numbers, NaN where they are missing, and which cells are neither.

    An infinite cell stays infinite and counts as one that is neither.
    """
    if not is_text(series):
        values = _typed_numbers(series)
        return values, np.isinf(values)
    pandas = require("pandas", extra="tables", owner="bayesdrop.tables")
    texts = _texts(series)
    missing = _missing_texts(texts, marks)
    texts[missing] = None
    # The parser takes a NUL for the end of the text: "1\0kg" would be 1.
    texts[_each(texts, lambda text: text is not None and "\0" in text)] = "not a number"
    parsed = pandas.to_numeric(texts, errors="coerce")
    values = np.where(missing, np.nan, np.asarray(parsed, dtype=np.float64))
    bad: Flags = ~missing & ~np.isfinite(values)
    return values, bad


def as_truths(series: Any, marks: Collection[str] = ()) -> tuple[Array, Flags]:
    """The cells (true, no, F, ...) as 1 and 0, NaN where missing, and which are neither true nor false."""
    if is_text(series):
        texts = _texts(series)
        missing = _missing_texts(texts, marks)
        true = _each(texts, lambda text: text.lower() in _TRUE)
        false = _each(texts, lambda text: text.lower() in _FALSE)
    else:
        values = _typed_numbers(series)
        missing, true, false = np.isnan(values), values == 1, values == 0
    bad: Flags = ~missing & ~true & ~false
    return np.where(missing | bad, np.nan, true.astype(np.float64)), bad


def as_labels(series: Any, marks: Collection[str] = (), *, numbers: bool = False) -> Texts:
    """The cells as texts, None where they are missing.

    Args:
        series: a pandas column.
        marks: texts that mean "missing" besides.
        numbers: the labels are numbers, so that "1", "1.0" and " 1" are one of them; whole numbers keep all
            their digits.
    """
    missing = missing_cells(series, marks)
    labels = _texts(series)
    if numbers or not (is_text(series) or type_of(series) == "truths"):
        for place in np.flatnonzero(~missing):
            labels[place] = _plain(labels[place])
    labels[missing] = None
    return labels


def first_bad(series: Any, bad: Flags) -> str:
    """The first cells that are wrong, with their rows: "'abc' in row 3 and 4 others"."""
    places = np.flatnonzero(bad)
    row = int(series.index[places[0]]) + 1
    more = f" and {len(places) - 1:,} others" if len(places) > 1 else ""
    cell = repr(series.iloc[places[0]])
    return f"{cell if len(cell) <= 80 else cell[:77] + '...'} in row {row:,}{more}"


def _plain(text: str) -> str:
    """A number in the one way that it is written: "1.0" as "1"; other texts as they are."""
    if not NUMBER.fullmatch(text):
        return text
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent of more digits than a Decimal has
        return text
    # As it stands, rather than with hundreds of zeros.
    if value.adjusted() >= 40:
        return text
    return str(int(value)) if value == value.to_integral_value() else repr(float(value))


def _typed_numbers(series: Any) -> Array:
    values: Array = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _texts(series: Any) -> Texts:
    """Every cell as a text without space around it; "" for those that pandas calls missing."""
    cells = series.to_numpy(dtype=object)
    made = np.empty(len(cells), dtype=object)
    made[:] = [cell.strip() if isinstance(cell, str) else str(cell).strip() for cell in cells]
    made[series.isna().to_numpy(dtype=bool)] = ""
    return made


def _missing_texts(texts: Texts, marks: Collection[str]) -> Flags:
    return _each(texts, lambda text: text.lower() in _MISSING or text in marks)


def _each(texts: Texts, test: Any) -> Flags:
    return np.fromiter(map(test, texts), dtype=bool, count=len(texts))
