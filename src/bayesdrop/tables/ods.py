"""Rows of a sheet of an OpenDocument file, read element by element: a tree of it would be large and slow."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bayesdrop.errors import require
from bayesdrop.tables.sheet_checks import (
    MOST_CELLS,
    cell_name,
    chosen_sheet,
    refuse_merged,
    refuse_uncomputed,
)
from bayesdrop.tables.unpacking import Bomb

__all__ = ["ods_rows"]

_NAMES = "urn:oasis:names:tc:opendocument:xmlns:"
_TABLE, _OFFICE, _TEXT = (f"{{{_NAMES}{part}:1.0}}" for part in ("table", "office", "text"))
_CELLS = (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell")


class NotASheet(Exception):
    """A cell of a type that the format does not have."""


class _Sheet:
    """The rows of one sheet; cells and rows that the file says are repeated are written out, within bounds.

    Args:
        named: the file, for errors.
    """

    def __init__(self, named: Path) -> None:
        self.rows: list[Sequence[Any]] = []
        self._named = named
        self._empty, self._cells = 0, 0

    def add(self, element: Any) -> None:
        """Add a `table-row` with all its cells."""
        row: list[Any] = []
        gap = 0
        for cell in element:
            if cell.tag not in _CELLS:
                continue
            place = cell_name(len(self.rows) + self._empty, len(row) + gap)
            value = self._value(cell, place)
            times = int(cell.get(f"{_TABLE}number-columns-repeated", 1))
            if value is None:
                gap += times
                continue
            self._count(gap + times)
            row += [None] * gap + [value] * times
            gap = 0
        times = int(element.get(f"{_TABLE}number-rows-repeated", 1))
        if not row:
            # Most sheets end in a million empty rows.
            self._empty += times
            return
        self._count(self._empty + (times - 1) * len(row))
        self.rows += [()] * self._empty + [row] * times
        self._empty = 0

    def _count(self, cells: int) -> None:
        self._cells += cells
        if self._cells > MOST_CELLS:
            raise Bomb(f"{self._named}: a sheet must have at most {MOST_CELLS:,} cells; it has more.")

    def _value(self, cell: Any, place: str) -> Any:
        spans = (int(cell.get(f"{_TABLE}number-{way}-spanned", 1)) for way in ("columns", "rows"))
        if max(spans) > 1:
            refuse_merged(self._named, f"those that begin at {place}")
        kind = cell.get(f"{_OFFICE}value-type")
        if kind in ("float", "percentage", "currency"):
            number = float(cell.get(f"{_OFFICE}value"))
            return int(number) if number.is_integer() and abs(number) < 2**53 else number
        if kind == "boolean":
            return cell.get(f"{_OFFICE}boolean-value") == "true"
        if kind == "date":
            return datetime.datetime.fromisoformat(cell.get(f"{_OFFICE}date-value"))
        if kind not in (None, "string", "time", "void"):
            raise NotASheet(f"cell {place} is of the unknown type {kind!r}")
        text = cell.get(f"{_OFFICE}string-value")
        if text is None:
            text = "\n".join("".join(_texts(part)) for part in cell if part.tag == f"{_TEXT}p")
        if not text and kind is None and cell.get(f"{_TABLE}formula"):
            refuse_uncomputed(self._named, place)
        return text or None


def _texts(element: Any) -> Iterator[str]:
    """The text of a paragraph, in which runs of spaces, tabs and line breaks are elements of their own."""
    yield element.text or ""
    for part in element:
        if part.tag == f"{_TEXT}s":
            yield " " * min(int(part.get(f"{_TEXT}c", 1)), 10_000)
        elif part.tag == f"{_TEXT}tab":
            yield "\t"
        elif part.tag == f"{_TEXT}line-break":
            yield "\n"
        else:
            yield from _texts(part)
        yield part.tail or ""


def ods_rows(path: Path, named: Path, sheet: str | None) -> list[Sequence[Any]]:
    """The rows of a sheet, as lists of values; None for an empty cell.

    Args:
        path: the file.
        named: what it is called in errors.
        sheet: its name or its number, counted from 1; may be None if there is only one.
    """
    with zipfile.ZipFile(path) as archive:
        names = [element.get(f"{_TABLE}name", "") for element, kind in _parts(archive) if kind == "sheet"]
        chosen = chosen_sheet(names, sheet, named)
        found, place = _Sheet(named), -1
        for element, kind in _parts(archive):
            if kind == "sheet":
                place += 1
            elif place == chosen:
                found.add(element)
    return found.rows


def _parts(archive: zipfile.ZipFile) -> Iterator[tuple[Any, str]]:
    """Elements and their kind: each "sheet" as it begins, then its rows, each emptied before the next one."""
    trees = require("defusedxml.ElementTree", extra="sheets", owner="open_table")
    depth = 0
    with archive.open("content.xml") as file:
        for event, element in trees.iterparse(file, events=("start", "end")):
            if element.tag == f"{_TABLE}table":
                depth += 1 if event == "start" else -1
                if event == "start" and depth == 1:
                    yield element, "sheet"
            elif element.tag == f"{_TABLE}table-row" and event == "end" and depth == 1:
                yield element, "row"
                element.clear()
