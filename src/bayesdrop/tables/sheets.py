"""Sheets of .xlsx and .ods files as typed tables. Only values are read; nothing is run, no link followed."""

from __future__ import annotations

import datetime
import re
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bayesdrop.errors import MissingExtra, require
from bayesdrop.tables.ods import ods_rows
from bayesdrop.tables.sheet_checks import MOST_CELLS, chosen_sheet, refuse_merged, refuse_uncomputed
from bayesdrop.tables.unpacking import Bomb, Refused, check_zip

__all__ = ["SHEETS", "read_sheet"]

EXCEL = (".xlsx", ".xlsm")
SHEETS = (*EXCEL, ".ods")
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\b[^>]*\bref=["\']([A-Z]{1,3}\d{1,7}):([A-Z]{1,3}\d{1,7})["\']')
Row = Sequence[Any]


def read_sheet(path: Path, named: Path, sheet: str | None) -> tuple[tuple[str, ...], Any]:
    """The header and the rows of a sheet, as a table of Arrow whose columns have the types of their cells.

    The header is the first row that is not empty. A column whose cells are all numbers, all dates or all
    truth values has that type; any other is text.

    Args:
        path: the file.
        named: what it is called in errors.
        sheet: its name or its number, counted from 1; may be None if there is only one.
    """
    excel = path.name.lower().endswith(EXCEL)
    check_zip(path, "an .xlsx file" if excel else "an .ods file")
    try:
        rows = _excel_rows(path, named, sheet) if excel else ods_rows(path, named, sheet)
    except (MissingExtra, MemoryError, Refused):
        raise
    except Exception as error:  # a damaged file may raise anything
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        said = " ".join(f"{type(first).__name__}: {first}".split())[:200]
        raise ValueError(f"{named} is damaged or not a sheet that can be read ({said}).") from error
    return _table(rows, named)


def _excel_rows(path: Path, named: Path, sheet: str | None) -> list[Row]:
    """The rows of a sheet of an Excel file, as values; None for an empty cell."""
    openpyxl = require("openpyxl", extra="sheets", owner="open_table")
    require("defusedxml", extra="sheets", owner="open_table")
    with warnings.catch_warnings(), path.open("rb") as file:
        # It warns of styles and extensions, which do not matter here.
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        try:
            chosen = book.worksheets[chosen_sheet([one.title for one in book.worksheets], sheet, named)]
            # What a file says about its own size may be wrong.
            chosen.reset_dimensions()
            rows, cells = [], 0
            for row in chosen.iter_rows(values_only=True):
                cells += max(len(row), 1)
                if cells > MOST_CELLS:
                    raise Bomb(f"{named}: a sheet must have at most {MOST_CELLS:,} cells; it has more.")
                rows.append(row)
            _refuse_merged(path, named, str(getattr(chosen, "_worksheet_path", "")), rows)
        finally:
            book.close()
        if any(cell is None for row in rows for cell in row):
            _refuse_uncomputed(openpyxl, file, named, chosen.title, rows)
    return rows


def _refuse_merged(path: Path, named: Path, part: str, rows: Sequence[Row]) -> None:
    """Raise if cells of the table are merged: only the first of them has a value."""
    start = next((place for place, row in enumerate(rows, 1) if not _is_empty(row)), 0)
    with zipfile.ZipFile(path) as archive, archive.open(part.lstrip("/")) as file:
        rest = b""
        while block := file.read(1 << 20):
            text = rest + block
            for found in _MERGED.finditer(text):
                last = int(re.sub(rb"\D", b"", found[2]))
                if start <= last and int(re.sub(rb"\D", b"", found[1])) <= len(rows):
                    refuse_merged(named, f"{found[1].decode()}:{found[2].decode()}")
            rest = text[-200:]


def _refuse_uncomputed(openpyxl: Any, file: BinaryIO, named: Path, title: str, rows: Sequence[Row]) -> None:
    """Raise if a cell is a formula whose value is not in the file."""
    book = openpyxl.load_workbook(file, read_only=True, keep_links=False)
    try:
        formulas = book[title]
        formulas.reset_dimensions()
        for values, row in zip(rows, formulas.iter_rows(), strict=False):
            for value, cell in zip(values, row, strict=False):
                if value is None and cell.value is not None:
                    refuse_uncomputed(named, cell.coordinate)
    finally:
        book.close()


def _is_empty(row: Row) -> bool:
    return all(cell is None or cell == "" for cell in row)


def _table(rows: Sequence[Row], named: Path) -> tuple[tuple[str, ...], Any]:
    """The header, and the cells below it as an Arrow table; the first row that is not empty is the header."""
    arrow = require("pyarrow", extra="tables", owner="open_table")
    start = next((place for place, row in enumerate(rows) if not _is_empty(row)), None)
    if start is None:
        raise ValueError(f"{named} is empty: it has no header.")
    top = rows[start]
    filled = [place for place, cell in enumerate(top) if cell is not None and cell != ""]
    first, last = filled[0], filled[-1]
    body = list(rows[start + 1 :])
    while body and _is_empty(body[-1]):
        body.pop()
    # As in a CSV, an empty row is a row of a table with one column, and no row of any other.
    kept = [(place, row) for place, row in enumerate(body, start + 2) if first == last or not _is_empty(row)]
    for place, row in kept:
        if not _is_empty((*row[:first], *row[last + 1 :])):
            said = f"row {place:,} of the sheet has a cell beside the columns that the header names."
            hint = (
                " Is the header the first row? If not, remove what stands above it." if first == last else ""
            )
            raise ValueError(f"{named}: {said}{hint}")
    header, columns = [], []
    for place in range(first, last + 1):
        cells = [row[place] if place < len(row) else None for _, row in kept]
        if place in filled or not _is_empty(cells):
            header.append(_text(top[place]) if place in filled else "")
            columns.append(_typed(cells, arrow))
    return tuple(header), arrow.Table.from_arrays(columns, names=_distinct(header))


def _distinct(header: Sequence[str]) -> list[str]:
    """Names for Arrow, which must differ; a name that is there twice is refused later, with a sentence."""
    return [f"{place} {name}" for place, name in enumerate(header)]


def _typed(cells: Sequence[Any], arrow: Any) -> Any:
    """Cells as an Arrow column of their type; of texts if they are of several types."""
    cells = [None if cell == "" else cell for cell in cells]
    kinds = {type(cell) for cell in cells if cell is not None}
    if not kinds:
        return arrow.nulls(len(cells))
    if kinds <= {datetime.datetime, datetime.date}:
        moments = [_moment(cell) for cell in cells]
        if all(moment is None or moment.time() == datetime.time() for moment in moments):
            return arrow.array([moment and moment.date() for moment in moments], arrow.date32())
        return arrow.array(moments, arrow.timestamp("us"))
    if kinds == {bool}:
        return arrow.array(cells, arrow.bool_())
    if kinds == {int} and all(cell is None or -(2**63) <= cell < 2**63 for cell in cells):
        return arrow.array(cells, arrow.int64())
    if kinds <= {int, float}:
        return arrow.array([None if cell is None else float(cell) for cell in cells], arrow.float64())
    return arrow.array([None if cell is None else _text(cell) for cell in cells], arrow.string())


def _moment(cell: Any) -> datetime.datetime | None:
    if cell is None or isinstance(cell, datetime.datetime):
        return cell
    return datetime.datetime.combine(cell, datetime.time())


def _text(cell: Any) -> str:
    """A cell of a column that has cells of several types."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    text = str(cell)
    # The number 1.234 becomes "1.2340": among texts, "1.234" might be read as 1234.
    if isinstance(cell, float) and re.fullmatch(r"-?\d+\.\d{3}", text):
        text += "0"
    return text
