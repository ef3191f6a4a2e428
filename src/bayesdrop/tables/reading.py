"""Tables on disk or from a pipe, of any format, whole or some rows at a time; no cell is ever changed."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from bayesdrop.errors import must, require
from bayesdrop.tables.arrow import FEATHER, PARQUET, batches_of, frame_of, header_of
from bayesdrop.tables.sheets import SHEETS, read_sheet
from bayesdrop.tables.spelling import number_like
from bayesdrop.tables.texts import CSV, open_csv
from bayesdrop.tables.unpacking import PACKED, kind_of

__all__ = ["ENDINGS", "PARQUET", "TableFile", "open_table", "open_text"]

ENDINGS = (*CSV, *PARQUET, *FEATHER, *SHEETS)
_SHOWN = (
    ".csv, .tsv, .txt (also with .gz, .bz2, .xz, .zst), .parquet, .pq, .feather, .arrow, .xlsx, .xlsm, .ods"
)


@dataclass(frozen=True)
class TableFile:
    """A table whose header was read and whose rows can be.

    Attributes:
        path: the file or the folder.
        names: of the columns, each once, without space around them.
        header: the names as they stand in the file.
        separator: between the cells of a CSV; None for all other formats.
        num_rows: how many rows there are; None where only reading tells.
        notes: what was assumed, for a person.
        frames: from a number of rows to pandas frames of at most so many, in order.
        schema: the Arrow schema of a typed table, None for a CSV.
    """

    path: Path
    names: tuple[str, ...]
    header: tuple[str, ...]
    separator: str | None
    num_rows: int | None
    frames: Callable[[int], Iterator[Any]] = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    schema: Any = field(default=None, repr=False, compare=False)

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
        yield from self.frames(rows)


def open_table(
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | int | None = None,
    span: tuple[int, int] | None = None,
) -> TableFile:
    """A table, its header read and checked.

    Args:
        path: a CSV (.csv, .tsv, .txt, also with .gz, .bz2, .xz or .zst), a .parquet, .feather, .xlsx or .ods
            file, a folder of files with the same columns, or "-" for standard input.
        separator: between the cells of a CSV; told from the header if None: a tab, semicolon, comma or bar.
        encoding: of a CSV; told from the bytes if None.
        sheet: of an .xlsx or .ods file: its name or its number, counted from 1; may be None if there is one.
        span: of a Parquet file, the first row that is wanted and the row after the last; all rows if None.
    """
    path = Path(path)
    sheet = None if sheet is None else str(sheet)
    options: dict[str, Any] = {"separator": separator, "encoding": encoding, "sheet": sheet}
    if span is not None and not (path.name.lower().endswith(PARQUET) and path.is_file()):
        raise ValueError(must("open_table", "span", "None but for a Parquet file", span))
    if str(path) == "-":
        return _from_pipe(**options)
    if path.is_dir():
        return _from_folder(path, **options)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    if not path.is_file():
        raise ValueError(f"{path} must be a file or a folder; hand over what a program writes as -.")
    if not path.name.lower().endswith(ENDINGS):
        hint = " Save it as .xlsx first." if path.suffix.lower() in (".xls", ".xlsb", ".numbers") else ""
        raise ValueError(must("open_table", "path", f"a file that ends in {_SHOWN}", str(path)) + hint)
    return _from_file(path, path, span=span, **options)


def _from_file(
    path: Path,
    named: Path,
    *,
    separator: str | None,
    encoding: str | None,
    sheet: str | None,
    span: tuple[int, int] | None = None,
) -> TableFile:
    lower = path.name.lower()
    text = lower.endswith(CSV)
    for option, value, fits in (
        ("separator", separator, text),
        ("encoding", encoding, text),
        ("sheet", sheet, lower.endswith(SHEETS)),
    ):
        if value is not None and not fits:
            kinds = "an .xlsx or .ods file" if option == "sheet" else "a CSV"
            raise ValueError(f"{named}: --{option} is for {kinds} only.")
    if text:
        ending = path.suffix.lower() if path.suffix.lower() in PACKED else ""
        csv = open_csv(path, named, ending, separator=separator, encoding=encoding)
        names = _checked(named, csv.header)
        return TableFile(
            named, names, csv.header, csv.separator, None, lambda rows: csv.frames(names, rows), csv.notes
        )
    if lower.endswith(SHEETS):
        header, table = read_sheet(path, named, sheet)
        names = _checked(named, header)
        table = table.rename_columns(list(names))

        def sheet_frames(rows: int) -> Iterator[Any]:
            return _typed_frames(iter(table.to_batches(max_chunksize=rows)), table.schema)

        return TableFile(named, names, header, None, table.num_rows, sheet_frames, schema=table.schema)
    schema, num_rows = header_of(path, named)

    def frames(rows: int) -> Iterator[Any]:
        return _typed_frames(batches_of(path, named, rows, span), schema)

    if span is not None and num_rows is not None:
        num_rows = max(0, min(span[1], num_rows) - max(span[0], 0))
    header = tuple(schema.names)
    return TableFile(named, _checked(named, header), header, None, num_rows, frames, schema=schema)


def _typed_frames(batches: Iterator[Any], schema: Any) -> Iterator[Any]:
    """Frames of Arrow batches; the index counts rows, and a table without rows is one empty frame."""
    pandas = require("pandas", extra="tables", owner="open_table")
    start = 0
    for batch in batches:
        frame = frame_of(batch)
        frame.index = pandas.RangeIndex(start, start + len(frame))
        start += len(frame)
        yield frame
    if start == 0:
        yield frame_of(schema.empty_table())


def _from_pipe(**options: Any) -> TableFile:
    """Standard input, kept in a file while the table is in use: some formats are read more than once."""
    folder = Path(tempfile.mkdtemp(prefix="bayesdrop-"))
    try:
        plain = folder / "input"
        with plain.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        path = plain.rename(folder / f"input{kind_of(plain) or '.csv'}")
        table = _from_file(path, Path("standard input"), **options)
    except BaseException:
        shutil.rmtree(folder)
        raise

    def frames(rows: int) -> Iterator[Any]:
        return table.frames(rows)

    weakref.finalize(frames, shutil.rmtree, folder, ignore_errors=True)
    return replace(table, frames=frames)


def _from_folder(folder: Path, **options: Any) -> TableFile:
    """All tables of a folder, in the order of their names, as one; they must have the same columns."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))
    other = [path.name for path in files if path.is_dir() or not path.name.lower().endswith(ENDINGS)]
    if other or not files:
        got = f"{other[0]!r}" if other else "none"
        raise ValueError(f"the folder {folder} must hold tables and nothing else; got {got}.")
    tables = [_from_file(path, path, **options) for path in files]
    first = tables[0]
    for table in tables[1:]:
        if set(table.names) != set(first.names):
            lacking = [name for name in first.names if name not in table.names]
            added = [name for name in table.names if name not in first.names]
            said = "; ".join(
                f"{what} {', '.join(map(repr, names[:5]))}"
                for what, names in (("it lacks", lacking), ("it has also", added))
                if names
            )
            raise ValueError(f"{table.path} must have the columns of {first.path.name}: {said}.")
        if (table.separator is None) != (first.separator is None):
            raise ValueError(f"{table.path} must be typed or text, as {first.path.name} is; it is the other.")

    types = None if first.schema is None else _common_types(tables)

    def frames(rows: int) -> Iterator[Any]:
        start = 0
        for table in tables:
            before = start
            for frame in table.frames(rows):
                if not len(frame):
                    continue
                frame.index = frame.index + before
                start += len(frame)
                yield frame[list(first.names)] if types is None else frame.astype(types)[list(first.names)]
        if start == 0:
            yield from first.frames(rows)

    counts = [table.num_rows for table in tables]
    num_rows = None if None in counts else sum(count or 0 for count in counts)
    notes = tuple(note for table in tables for note in table.notes)
    return replace(first, path=folder, num_rows=num_rows, frames=frames, notes=notes)


def _common_types(tables: Sequence[TableFile]) -> dict[str, Any]:
    """By column, a type for the cells of all files: whole numbers and others together are floats."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    pandas = require("pandas", extra="tables", owner="open_table")
    types: dict[str, Any] = {}
    for table in tables:
        found = frame_of(table.schema.empty_table()).dtypes
        for name in table.names:
            new, old = found[name].pyarrow_dtype, types.get(name)
            try:
                pair = [arrow.schema([(name, one)]) for one in (new, new if old is None else old)]
                types[name] = arrow.unify_schemas(pair, promote_options="permissive").field(0).type
            except arrow.ArrowException:
                said = f"column {name!r} must be {old}, as in {tables[0].path.name}; it is {new}."
                raise ValueError(f"{table.path}: {said}") from None
    return {name: pandas.ArrowDtype(found) for name, found in types.items()}


def open_text(path: Path, mode: Literal["rt", "wt"], *, named: Path) -> TextIO:
    """A text file whose line ends are left as they are; packed if `named`, its final name, ends in .gz."""
    encoding = "utf-8-sig" if mode == "rt" else "utf-8"
    if named.name.lower().endswith(".gz"):
        return gzip.open(path, mode, encoding=encoding, newline="")
    return path.open(mode, encoding=encoding, newline="")


def _checked(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns without space around them; raises unless each is a text of its own."""
    # Without a name: the index of a frame that pandas wrote.
    named = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]
    twice = [name for name, count in Counter(named).items() if count > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:5]))
        hint = " Is there a header?" if all(map(number_like, filter(None, names))) else ""
        raise ValueError(
            f"{path}: every column must have its own name; more than one is called {shown}.{hint}"
        )
    void = [name for name in named if "\0" in name]
    if void:
        hint = "Is the file UTF-16? Say so with --encoding."
        raise ValueError(f"{path}: names of columns must be text; got {void[0]!r}. {hint}")
    if not named:
        raise ValueError(f"{path} has no columns.")
    return tuple(named)
