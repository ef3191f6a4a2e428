"""Tables on disk: CSV and Parquet, whole or some rows at a time, never with a cell changed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesdrop.errors import must, require

__all__ = ["TableFile", "open_table"]

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class TableFile:
    """A table that is there to be read.

    Attributes:
        path: the file.
        names: of the columns, each once.
        separator: between the cells of a CSV; None for Parquet.
        num_rows: how many rows; None where only reading tells.
    """

    path: Path
    names: tuple[str, ...]
    separator: str | None
    num_rows: int | None

    def read(self) -> Any:
        """All rows, as a pandas frame; CSV cells stay texts."""
        pandas = require("pandas", extra="tables", owner="open_table")
        parts = list(self.chunks(100_000))
        return pandas.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]

    def chunks(self, rows: int) -> Iterator[Any]:
        """Frames of at most so many rows, in order; the index counts the rows of the whole table.

        A table without rows is one empty frame.

        Args:
            rows: at most so many at a time.
        """
        if rows < 1:
            raise ValueError(must("TableFile.chunks", "rows", "at least 1", rows))
        yield from self._parquet_chunks(rows) if self.separator is None else self._csv_chunks(rows)

    def _csv_chunks(self, rows: int) -> Iterator[Any]:
        pandas = require("pandas", extra="tables", owner="open_table")
        try:
            with warnings.catch_warnings():
                # pandas warns that it cuts off cells of rows that are too long.
                warnings.simplefilter("error", pandas.errors.ParserWarning)
                reader = pandas.read_csv(
                    self.path,
                    sep=self.separator,
                    header=0,
                    names=list(self.names),
                    index_col=False,
                    dtype=str,
                    na_filter=False,
                    encoding="utf-8-sig",
                    chunksize=rows,
                    low_memory=False,
                )
                with reader:
                    yield from reader
        except (pandas.errors.ParserError, pandas.errors.ParserWarning) as error:
            said = " ".join(str(error).split())
            raise ValueError(f"{self.path}: a row does not have {len(self.names)} cells ({said}).") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: the text must be UTF-8 ({error.reason}).") from error

    def _parquet_chunks(self, rows: int) -> Iterator[Any]:
        pandas = require("pandas", extra="tables", owner="open_table")
        start = 0
        with _parquet_file(self.path) as file:
            for batch in file.iter_batches(batch_size=rows):
                frame = _frame(batch, pandas)
                frame.index = pandas.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield frame
            if start == 0:
                yield _frame(file.schema_arrow.empty_table(), pandas)


def open_table(path: str | os.PathLike[str], *, separator: str | None = None) -> TableFile:
    """A CSV or Parquet file, its header read and checked.

    Args:
        path: ends in .csv, .tsv, .txt (also with .gz), .parquet or .pq.
        separator: between the cells of a CSV; told from the header if None: a tab, semicolon, comma or bar.
    """
    path = Path(path)
    lower = path.name.lower()
    if not lower.endswith((*_CSV, *_PARQUET)):
        want = f"a file that ends in {', '.join((*_CSV, *_PARQUET))}"
        raise ValueError(must("open_table", "path", want, str(path)))
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a table.")
    if lower.endswith(_PARQUET):
        with _parquet_file(path) as file:
            names, num_rows = list(file.schema_arrow.names), int(file.metadata.num_rows)
        return TableFile(path, _checked(path, names), None, num_rows)
    separator = separator or _separator(path)
    return TableFile(path, _checked(path, _header(path, separator)), separator, None)


def _separator(path: Path) -> str:
    line = "".join(_header(path, None))
    found = {mark: line.count(mark) for mark in ("\t", ";", ",", "|")}
    best = max(found, key=lambda mark: found[mark])
    return best if found[best] else ","


def _header(path: Path, separator: str | None) -> list[str]:
    """Cells of the first line; the line itself without a separator."""
    pandas = require("pandas", extra="tables", owner="open_table")
    # A character that no text holds leaves the line whole.
    options = {"sep": separator} if separator else {"sep": "\x1f", "quoting": 3}
    try:
        first = pandas.read_csv(
            path, header=None, nrows=1, dtype=str, na_filter=False, encoding="utf-8-sig", **options
        )
    except pandas.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty: it has no header.") from error
    except pandas.errors.ParserError as error:
        raise ValueError(f"{path} is not a table ({' '.join(str(error).split())}).") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: the text must be UTF-8 ({error.reason}).") from error
    return [str(cell) for cell in first.iloc[0]]


def _checked(path: Path, names: list[str]) -> tuple[str, ...]:
    # A frame's index, written without a name.
    named = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]
    twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:5]))
        raise ValueError(
            f"{path}: every column must have a name of its own; more than one is called {shown}."
        )
    return tuple(named)


def _parquet_file(path: Path) -> Any:
    parquet = require("pyarrow.parquet", extra="tables", owner="open_table")
    arrow = require("pyarrow", extra="tables", owner="open_table")
    try:
        return parquet.ParquetFile(path)
    except arrow.ArrowException as error:
        raise ValueError(f"{path} is damaged or not a Parquet file ({error}).") from error


def _frame(batch: Any, pandas: Any) -> Any:
    """A frame that keeps the file's own types, so that it is written as it was read."""
    types = require("pyarrow.types", extra="tables", owner="open_table")
    columns = {}
    for place, name in enumerate(batch.schema.names):
        column = batch.column(place)
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns[name.strip() or f"Unnamed: {place}"] = column
    arrow = require("pyarrow", extra="tables", owner="open_table")
    return arrow.table(columns).to_pandas(types_mapper=pandas.ArrowDtype)
