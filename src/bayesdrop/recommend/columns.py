"""Columns of a table of choices, read with errors that name the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayesdrop.errors import must, real_number, told_by

__all__ = ["as_frame", "liked_rows", "refuse_ids", "refuse_rows", "times_of"]


def as_frame(table: Any) -> pd.DataFrame:
    """A data frame, or a mapping of columns of one length, as a data frame."""
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping):
        with told_by("Interactions.from_table", "table"):
            return pd.DataFrame(dict(table))
    raise TypeError(must("Interactions.from_table", "table", "a data frame or a mapping of columns", table))


def refuse_ids(column: pd.Series[Any]) -> None:
    """Raise where a value cannot be the id of a user or an item, or cannot be stored in a file."""
    if column.dtype.kind not in "iufb":
        known = column.map(lambda value: isinstance(value, str | int | float | np.integer | np.floating))
        refuse_rows(~known.astype(bool), f"the column {column.name!r} is neither a number nor a text")


def times_of(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Times as numbers: dates in seconds, numbers unchanged."""
    numbers = pd.to_numeric(column, errors="coerce") if column.dtype.kind not in "mM" else None
    if numbers is not None and not numbers.isna().any():
        refuse_rows(~np.isfinite(numbers.astype(np.float64)), f"{column.name!r} is not finite")
        plain: NDArray[np.float64] = numbers.to_numpy(dtype=np.float64)
        return plain
    dates = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
    refuse_rows(dates.isna(), f"{column.name!r} is neither a number nor a date like 2024-03-31")
    seconds: NDArray[np.float64] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    return seconds


def liked_rows(frame: pd.DataFrame, rating: str, at_least: float | None) -> pd.DataFrame:
    """The rows with at least a rating; if `at_least` is None, all rows, whose ratings must be positive."""
    numbers = pd.to_numeric(frame[rating], errors="coerce")
    refuse_rows(~np.isfinite(numbers.astype(np.float64)), f"{rating!r} is not a number")
    if at_least is None:
        refuse_rows(numbers <= 0, f"{rating!r} is not positive, and no `at_least` says what it means")
        return frame
    least = real_number("Interactions.from_table", "at_least", at_least, "a number")
    return frame[numbers >= least]


def refuse_rows(which: pd.Series[bool], what: str) -> None:
    """Raise if `which` marks any rows, and name them, counted from 1."""
    places = np.flatnonzero(which.to_numpy())
    if len(places):
        shown = ", ".join(str(place + 1) for place in places[:5].tolist())
        more = f" and {len(places) - 5:,} more" if len(places) > 5 else ""
        raise ValueError(f"Interactions.from_table: {what} in row {shown}{more}.")
