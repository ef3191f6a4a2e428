"""Scored tables on disk: a table's own columns as they were read, and new ones beside them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.harmless import harmless_cell
from bayesdrop.storage import check_writable, whole_file
from bayesdrop.tables.cells import is_text, missing_cells
from bayesdrop.tables.reading import PARQUET, TableFile, open_text

__all__ = ["check_free", "check_output", "table_writer", "write_frame"]

_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", *PARQUET)
Write = Callable[[Any, Sequence[NDArray[Any]]], None]


def check_output(output: Path, source: Path, *, force: bool) -> None:
    """Raise unless a scored table may be written there.

    Args:
        output: where it would go.
        source: the table itself.
        force: whether a file that is there may be replaced.
    """
    if not output.name.lower().endswith(_ENDINGS):
        raise ValueError(f"the output must end in {', '.join(_ENDINGS)}; got {output}.")
    if output.exists() and output.samefile(source):
        raise ValueError(f"the output must be another file than the table {source}.")
    check_free(output, force=force, owner="predict")


def check_free(path: Path, *, force: bool, owner: str) -> None:
    """Raise unless a file may be written there; one that is there is replaced only with `force`.

    Args:
        path: where it would go.
        force: whether a file that is there may be replaced.
        owner: the command, for errors of the system.
    """
    if path.is_dir():
        raise ValueError(f"the output {path} is a folder.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {path.absolute().parent} to write {path.name} in.")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already. Choose another name, or replace it with --force.")
    check_writable(path, owner=owner)


@contextmanager
def table_writer(output: Path, table: TableFile, names: Sequence[str]) -> Iterator[Write]:
    """A function that takes frames and their new columns; the file appears when the last one is written.

    Args:
        output: a file that `check_output` has seen.
        table: that the frames are of.
        names: of the new columns.
    """
    with whole_file(output, owner="predict") as draft:
        if output.name.lower().endswith(PARQUET):
            with _parquet_writer(draft, table, names) as write:
                yield write
        else:
            with open_text(draft, "wt", named=output) as file:
                yield _csv_writer(file, _separator(output, table.separator or ","), table, names)


def write_frame(output: Path, frame: Any) -> None:
    """Write a frame that the library made; texts that go into a CSV are made harmless.

    Args:
        output: a file that `check_output` has seen.
        frame: a pandas frame.
    """
    with whole_file(output, owner="predict") as draft:
        if output.name.lower().endswith(PARQUET):
            frame.to_parquet(draft, index=False)
            return
        safe = frame.copy()
        for name in safe.columns:
            if is_text(safe[name]):
                safe[name] = _defused(safe[name].to_numpy(dtype=object))
        with open_text(draft, "wt", named=output) as file:
            safe.to_csv(file, sep=_separator(output, ","), index=False, lineterminator="\n")


def _separator(output: Path, other: str) -> str:
    """A tab for .tsv files, else the other one."""
    return "\t" if output.name.lower().endswith((".tsv", ".tsv.gz")) else other


class _Lines:
    """A file whose lines end in a line feed, whatever the writer ends them with."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> int:
        return self._file.write(line.removesuffix("\r\n") + "\n")


def _csv_writer(file: TextIO, separator: str, table: TableFile, names: Sequence[str]) -> Write:
    # The writer quotes cells that hold a character of its line end. With "\r\n" it so quotes a carriage
    # return, which would else be read as the end of a row.
    writer = csv.writer(_Lines(file), delimiter=separator, lineterminator="\r\n")
    writer.writerow([*table.header, *map(harmless_cell, names)])

    def write(frame: Any, found: Sequence[NDArray[Any]]) -> None:
        own = [_cells(frame[name]) for name in table.names]
        new = [_defused(values) if values.dtype == object else values.tolist() for values in found]
        writer.writerows(zip(*own, *new, strict=True))

    return write


def _cells(series: Any) -> list[Any]:
    """The cells as they are written; "" for those that are missing."""
    gone = series.isna() if is_text(series) else missing_cells(series)
    cells = series.to_numpy(dtype=object)
    return ["" if lacking else cell for cell, lacking in zip(cells, gone, strict=True)]


def _defused(values: NDArray[Any]) -> list[str]:
    """Texts that no spreadsheet takes for a formula."""
    return [harmless_cell(str(value)) for value in values]


@contextmanager
def _parquet_writer(draft: Path, table: TableFile, names: Sequence[str]) -> Iterator[Write]:
    arrow = require("pyarrow", extra="tables", owner="score_file")
    parquet = require("pyarrow.parquet", extra="tables", owner="score_file")
    writer: Any = None

    def write(frame: Any, found: Sequence[NDArray[Any]]) -> None:
        nonlocal writer
        made = arrow.Table.from_pandas(frame, preserve_index=False).rename_columns(list(table.header))
        for name, values in zip(names, found, strict=True):
            kind = arrow.string() if values.dtype == object else None
            made = made.append_column(name, arrow.array(values, type=kind))
        if writer is None:
            writer = parquet.ParquetWriter(draft, made.schema)
        writer.write_table(made)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
