"""Tables on disk: CSV and Parquet, whole or some rows at a time, never with a cell changed."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from bayesdrop.errors import must, require

__all__ = ["PARQUET", "TableFile", "open_table", "open_text"]

CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class TableFile:
    """A table that is there to be read.

    Attributes:
        path: the file.
        names: of the columns, each once, without space around them.
        header: the names as they stand in the file.
        separator: between the cells of a CSV; None for Parquet.
        num_rows: how many rows; None where only reading tells.
    """

    path: Path
    names: tuple[str, ...]
    header: tuple[str, ...]
    separator: str | None
    num_rows: int | None

    def read(self) -> Any:
        """All rows, as a pandas frame; CSV cells stay texts."""
        pandas = require("pandas", extra="tables", owner="open_table")
        parts = list(self.chunks(50_000))
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
        assert self.separator is not None
        with _records(self.path, self.separator) as records:
            next(records)  # the header
            start = 0
            while chunk := list(itertools.islice(self._rows(records, start), rows)):
                columns = dict(zip(self.names, map(list, zip(*chunk, strict=True)), strict=True))
                index = pandas.RangeIndex(start, start + len(chunk))
                yield pandas.DataFrame(columns, index=index, dtype=str)
                start += len(chunk)
            if start == 0:
                yield pandas.DataFrame({name: [] for name in self.names}, dtype=str)

    def _rows(self, records: Iterator[list[str]], start: int) -> Iterator[list[str]]:
        """Rows of cells. An empty line is a row of a table with one column, and nothing in any other."""
        width = len(self.names)
        row = start
        for cells in records:
            if not cells and width > 1:
                continue
            row += 1
            found = cells or [""]
            if len(found) != width:
                said = f"row {row:,} does not have {width:,} cells, as the header has, but {len(found):,}."
                raise ValueError(f"{self.path}: {said}")
            yield found

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
    if not lower.endswith((*CSV, *PARQUET)):
        want = f"a file that ends in {', '.join((*CSV, *PARQUET))}"
        raise ValueError(must("open_table", "path", want, str(path)))
    if separator is not None and (len(separator) != 1 or separator in '"\r\n\0 '):
        want = "one character, no quote, space or line end"
        raise ValueError(must("open_table", "separator", want, separator))
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a table.")
    if lower.endswith(PARQUET):
        with _parquet_file(path) as file:
            header, num_rows = tuple(file.schema_arrow.names), int(file.metadata.num_rows)
        return TableFile(path, _checked(path, header), header, None, num_rows)
    separator = separator or _separator(path)
    with _records(path, separator) as records:
        header = tuple(next(records))
    return TableFile(path, _checked(path, header), header, separator, None)


def _separator(path: Path) -> str:
    """The mark that cuts the first row into the most cells."""
    found = {}
    for mark in ("\t", ";", ",", "|"):
        try:
            with _records(path, mark) as records:
                found[mark] = len(next(records))
        except _BadCells:  # quotes that make no sense with this mark
            found[mark] = 0
    best = max(found, key=lambda mark: found[mark])
    return best if found[best] > 1 else ","


class _BadCells(ValueError):
    """Cells of a CSV that cannot be told apart."""


@contextmanager
def _records(path: Path, separator: str) -> Iterator[Iterator[list[str]]]:
    """The rows of a CSV as lists of cells, the header first. An empty line is an empty list."""
    reader: Any = None
    try:
        with open_text(path, "rt", named=path) as file:
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = next((cells for cells in reader if cells), None)
            if header is None:
                raise ValueError(f"{path} is empty: it has no header.")
            yield itertools.chain([header], reader)
    except csv.Error as error:
        said = f"the cells of line {reader.line_num:,} cannot be told apart ({error})."
        raise _BadCells(f"{path}: {said}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: the text must be UTF-8 ({error.reason}).") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged or not a gzip file ({error}).") from error


def open_text(path: Path, mode: Literal["rt", "wt"], *, named: Path) -> TextIO:
    """A text file with line ends as they stand; packed if the name that it goes by ends in .gz."""
    encoding = "utf-8-sig" if mode == "rt" else "utf-8"
    if named.name.lower().endswith(".gz"):
        return gzip.open(path, mode, encoding=encoding, newline="")
    return path.open(mode, encoding=encoding, newline="")


def _checked(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    # A frame's index, written without a name.
    named = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]
    twice = [name for name, count in Counter(named).items() if count > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:5]))
        raise ValueError(f"{path}: every column must have its own name; more than one is called {shown}.")
    void = [name for name in named if "\0" in name]
    if void:
        hint = "Is the file UTF-16? It must be UTF-8."
        raise ValueError(f"{path}: names of columns must be text; got {void[0]!r}. {hint}")
    if not named:
        raise ValueError(f"{path} has no columns.")
    return tuple(named)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """An open Parquet file; what goes wrong inside of it is told as an error of ours."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    try:
        with require("pyarrow.parquet", extra="tables", owner="open_table").ParquetFile(path) as file:
            yield file
    except arrow.ArrowException as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged or not a Parquet file that can be read ({said}).") from error


def _frame(batch: Any, pandas: Any) -> Any:
    """A frame that keeps the file's own types, so that it is written as it was read."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    types = require("pyarrow.types", extra="tables", owner="open_table")
    columns = {}
    for place, name in enumerate(batch.schema.names):
        column = batch.column(place)
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # Views are texts and bytes of another layout, which pandas cannot compute with.
        if column.type == arrow.string_view():
            column = column.cast(arrow.large_string())
        elif column.type == arrow.binary_view():
            column = column.cast(arrow.large_binary())
        columns[name.strip() or f"Unnamed: {place}"] = column
    return arrow.table(columns).to_pandas(types_mapper=pandas.ArrowDtype)
