"""A table cut into training and test rows, and the arrays that other libraries get of it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.experiments.tables.catalogue import Entry

__all__ = ["TableSplit", "as_arrays", "num_tested", "split_table"]

_TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class TableSplit:
    """Rows to fit and rows to test on, as frames with all columns."""

    entry: Entry
    train: Any
    test: Any

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels of the training rows, in order; none for numbers."""
        if self.entry.kind == "regression":
            return ()
        return tuple(sorted(set(self.train[self.entry.target])))

    def targets(self, frame: Any) -> NDArray[Any]:
        """(N,) numbers, or places of the labels.

        Args:
            frame: `train` or `test`.
        """
        column = frame[self.entry.target]
        if self.entry.kind == "regression":
            return np.asarray(column, dtype=np.float64)
        places = {label: place for place, label in enumerate(self.classes)}
        return np.array([places[label] for label in column], dtype=np.int64)


def num_tested(rows: int) -> int:
    """Test rows of one split of a table of numbers.

    Args:
        rows: of the table.
    """
    return round(_TEST_SHARE * rows)


def split_table(entry: Entry, frame: Any, number: int) -> TableSplit:
    """One random split, 80 % to 20 %, the same for every contender; classes are split one by one.

    Args:
        entry: of the catalogue.
        frame: as `load_table` gives it.
        number: which split.
    """
    seed = int(sha256(f"{entry.name} {number}".encode()).hexdigest()[:8], 16)
    order = np.random.default_rng(seed).permutation(len(frame))
    if entry.kind == "regression":
        tested = order[: num_tested(len(order))]
    else:
        labels = frame[entry.target].to_numpy(dtype=object)[order]
        groups = [order[labels == label] for label in sorted(set(labels))]
        # Rounded down, so that no class is without a row to learn it from.
        tested = np.concatenate([own[: int(_TEST_SHARE * len(own) + 1e-9)] for own in groups])
    parts = (np.setdiff1d(order, tested), np.sort(tested))
    train, test = (frame.iloc[rows].reset_index(drop=True) for rows in parts)
    return TableSplit(entry, train, test)


def as_arrays(split: TableSplit, *, seed: int, level: float) -> dict[str, NDArray[Any]]:
    """What `peers.fit_and_predict` is given: numbers with gaps, categories as places, dates as four numbers.

    Args:
        split: of a table.
        seed: of what a library does at random.
        level: of intervals.
    """
    entry = split.entry
    pandas = require("pandas", extra="tables", owner="as_arrays")
    numbers: list[list[NDArray[Any]]] = []
    names: list[list[NDArray[Any]]] = []
    sizes: list[int] = []
    for column in split.train.columns:
        if column == entry.target:
            continue
        parts = [frame[column] for frame in (split.train, split.test)]
        if column in entry.dates:
            numbers += _of_dates(parts, pandas)
        elif pandas.api.types.is_numeric_dtype(parts[0]) and column not in entry.categorical:
            numbers.append([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts])
        else:
            known = {
                text: place for place, text in enumerate(sorted({str(cell) for cell in parts[0].dropna()}))
            }
            names.append([_places(part, known) for part in parts])
            sizes.append(len(known))

    def joined(columns: list[list[NDArray[Any]]], which: int, kind: type) -> NDArray[Any]:
        rows = len((split.train, split.test)[which])
        return np.array([column[which] for column in columns], dtype=kind).reshape(-1, rows).T

    return {
        "numbers": joined(numbers, 0, np.float64),
        "test_numbers": joined(numbers, 1, np.float64),
        "names": joined(names, 0, np.int64),
        "test_names": joined(names, 1, np.int64),
        "sizes": np.array(sizes, dtype=np.int64),
        "y": split.targets(split.train),
        "classes": np.array(len(split.classes)),
        "seed": np.array(seed),
        "level": np.array(level),
    }


def _places(cells: Any, known: dict[str, int]) -> NDArray[np.int64]:
    """-1 for missing cells, and the number of known texts for others."""
    found = [
        -1 if lacking else known.get(str(cell), len(known))
        for cell, lacking in zip(cells, cells.isna(), strict=True)
    ]
    return np.array(found, dtype=np.int64)


def _of_dates(parts: list[Any], pandas: Any) -> list[list[NDArray[np.float64]]]:
    """Days since 1970, day of the year, month, day of the week: what people make of a date."""
    dates = [pandas.to_datetime(part) for part in parts]
    days = [(date - pandas.Timestamp("1970-01-01")).dt.days for date in dates]
    rest = [[getattr(date.dt, name) for date in dates] for name in ("day_of_year", "month", "day_of_week")]
    return [[part.to_numpy(dtype=np.float64, na_value=np.nan) for part in column] for column in (days, *rest)]
