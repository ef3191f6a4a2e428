"""Typed tables: Parquet and Feather files batch by batch, and frames that keep Arrow's types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bayesdrop.errors import require
from bayesdrop.tables.unpacking import Bomb

__all__ = ["FEATHER", "PARQUET", "batches_of", "frame_of", "header_of"]

PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow")
#: cells that a file may say it has: so many in any case, or so many for each of its bytes
_MOST_CELLS, _CELLS_A_BYTE = 50_000_000, 1000


def header_of(path: Path, named: Path) -> tuple[Any, int | None]:
    """The Arrow schema of a Parquet or Feather file, and its number of rows; None where only reading tells.

    Args:
        path: the file.
        named: what it is called in errors.
    """
    with _opened(path, named) as file:
        if not path.name.lower().endswith(PARQUET):
            return file.schema, None
        schema, rows = file.schema_arrow, int(file.metadata.num_rows)
    cells = rows * len(schema.names)
    if cells > max(_MOST_CELLS, _CELLS_A_BYTE * path.stat().st_size):
        raise Bomb(f"{named} must have a size that suits its rows; it says that it holds {cells:,} cells.")
    return schema, rows


def batches_of(path: Path, named: Path, rows: int, span: tuple[int, int] | None = None) -> Iterator[Any]:
    """Batches of at most `rows` rows, in order.

    Args:
        path: the file.
        named: what it is called in errors.
        rows: of a batch.
        span: the first row and the row after the last, of a Parquet file; all rows if None. Row groups
            outside are not read.
    """
    with _opened(path, named) as file:
        if path.name.lower().endswith(PARQUET):
            yield from _filled(_spanned(file, rows, *(span or (0, file.metadata.num_rows))), rows)
            return
        for place in range(file.num_record_batches):
            batch = file.get_batch(place)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _spanned(file: Any, rows: int, first: int, last: int) -> Iterator[Any]:
    """Batches of the rows from `first` up to `last`, a row group at a time, so that no more is in memory."""
    at = 0
    for group in range(file.metadata.num_row_groups):
        end = at + file.metadata.row_group(group).num_rows
        if end > first and at < last:
            for batch in file.iter_batches(batch_size=rows, row_groups=[group]):
                start, stop = max(first - at, 0), min(last - at, batch.num_rows)
                if start < stop:
                    yield batch.slice(start, stop - start)
                at += batch.num_rows
        at = end


def _filled(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The same rows in tables of `rows` each but for the last, since row groups may be small."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    waiting: list[Any] = []
    count = 0
    for one in batches:
        batch = one
        while count + batch.num_rows >= rows:
            yield arrow.Table.from_batches([*waiting, batch.slice(0, rows - count)])
            batch, waiting, count = batch.slice(rows - count), [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if waiting:
        yield arrow.Table.from_batches(waiting)


@contextmanager
def _opened(path: Path, named: Path) -> Iterator[Any]:
    """An open file; errors of Arrow while it is read become a ValueError that names it."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    kind = "Parquet" if path.name.lower().endswith(PARQUET) else "Feather"
    try:
        if kind == "Parquet":
            with require("pyarrow.parquet", extra="tables", owner="open_table").ParquetFile(path) as file:
                yield file
        else:
            with (
                arrow.OSFile(str(path)) as source,
                require("pyarrow.ipc", extra="tables", owner="open_table").open_file(source) as file,
            ):
                yield file
    except (arrow.ArrowException, OSError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{named} is damaged or not a {kind} file that can be read ({said}).") from error


def frame_of(batch: Any) -> Any:
    """A pandas frame with the file's own types, so that it can be written as it was read."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    pandas = require("pandas", extra="tables", owner="open_table")
    types = require("pyarrow.types", extra="tables", owner="open_table")
    columns = {}
    for place, name in enumerate(batch.schema.names):
        column = batch.column(place)
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # Views are texts and bytes stored in another way, which pandas cannot compute with.
        if column.type == arrow.string_view():
            column = column.cast(arrow.large_string())
        elif column.type == arrow.binary_view():
            column = column.cast(arrow.large_binary())
        columns[name.strip() or f"Unnamed: {place}"] = column
    return arrow.table(columns).to_pandas(types_mapper=pandas.ArrowDtype)
