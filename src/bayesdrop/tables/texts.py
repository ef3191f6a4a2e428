"""Tables of text: their encoding, their separator, and their rows; no cell is ever changed."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesdrop.errors import must, require
from bayesdrop.tables.spelling import number_like
from bayesdrop.tables.unpacking import PACKED, kind_of, open_bytes
from bayesdrop.tables.written import counted

__all__ = ["CSV", "TextTable", "open_csv"]

_PLAIN = (".csv", ".tsv", ".txt")
CSV = (*_PLAIN, *(plain + packed for packed in PACKED for plain in _PLAIN))
_SEPARATORS = ("\t", ";", ",", "|")
#: byte order marks, which say how a file is encoded; those that others begin with come later
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: a first line by which spreadsheets are told what separates cells; it is no row
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?\s*', re.IGNORECASE)
#: rows that are compared with the header, to see whether it is one
_LOOKED_AT = 3
#: bytes that are decoded at a time
_BYTES = 1 << 20
#: control characters that texts do not have
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f"))


class _BadCells(ValueError):
    """Cells that cannot be told apart."""


@dataclass(frozen=True)
class TextTable:
    """A CSV whose encoding, separator and header are known.

    Attributes:
        path: the file.
        named: what it is called in errors.
        ending: of its name, which says how it is packed.
        encoding: of its text.
        separator: between its cells.
        header: the names as they stand in the file.
        notes: what was assumed, for a person.
        skip: whether the first line names the separator, and is left out.
    """

    path: Path
    named: Path
    ending: str
    encoding: str
    separator: str = ","
    header: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skip: bool = False

    @contextmanager
    def records(self, separator: str | None = None) -> Iterator[Iterator[list[str]]]:
        """The rows as lists of cells, the header first. An empty line is an empty list."""
        reader: Any = None
        try:
            with (
                open_bytes(self.path, self.ending) as data,
                io.TextIOWrapper(data, encoding=self.encoding, newline="") as file,
            ):
                if self.skip:
                    file.readline()
                reader = csv.reader(file, delimiter=separator or self.separator, strict=True)
                # Skips empty lines before the header, ",,," of a spreadsheet's empty row among them.
                header = next((cells for cells in reader if _may_be_header(cells)), None)
                if header is None:
                    raise ValueError(f"{self.named} is empty: it has no header.")
                yield itertools.chain([header], reader)
        except csv.Error as error:
            said = f"the cells of line {reader.line_num:,} cannot be told apart ({error})."
            raise _BadCells(f"{self.named}: {said}") from error
        except UnicodeError as error:
            raise ValueError(_undecodable(self.named, self.encoding, error)) from error

    def frames(self, names: tuple[str, ...], rows: int) -> Iterator[Any]:
        """Pandas frames of texts, of at most so many rows."""
        pandas = require("pandas", extra="tables", owner="open_table")
        with self.records() as records:
            next(records)  # the header
            start = 0
            while chunk := list(itertools.islice(self._rows(records, start), rows)):
                columns = dict(zip(names, map(list, zip(*chunk, strict=True)), strict=True))
                index = pandas.RangeIndex(start, start + len(chunk))
                yield pandas.DataFrame(columns, index=index, dtype=str)
                start += len(chunk)
            if start == 0:
                yield pandas.DataFrame({name: [] for name in names}, dtype=str)

    def _rows(self, records: Iterator[list[str]], start: int) -> Iterator[list[str]]:
        """Rows of cells. An empty line is a row of a table with one column, and nothing in any other."""
        width = len(self.header)
        row = start
        for cells in records:
            if not cells and width > 1:
                continue
            row += 1
            found = cells or [""]
            if len(found) != width:
                said = f"{counted(width, 'cell')}, as the header has, but {len(found):,}"
                hint = f" {_TITLE}" if row == 1 and width < len(found) else ""
                raise ValueError(f"{self.named}: row {row:,} does not have {said}.{hint}")
            yield found


_TITLE = "Is the header the first line? If not, remove what stands above it."


def _may_be_header(cells: list[str]) -> bool:
    """Whether a line has a name of a column, or is of a single column."""
    return len(cells) == 1 or any(cell.strip() for cell in cells)


def open_csv(
    path: Path, named: Path, ending: str, *, separator: str | None, encoding: str | None
) -> TextTable:
    """A CSV, with its encoding and separator found and its header read.

    Args:
        path: the file.
        named: what it is called in errors.
        ending: of its name, which says how it is packed.
        separator: between the cells; found from the header if None.
        encoding: of the text; found from the bytes if None.
    """
    if separator is not None and (len(separator) != 1 or separator in '"\r\n\0 '):
        want = "one character, no quote, space or line end"
        raise ValueError(must("open_table", "separator", want, separator))
    if not ending and (other := kind_of(path)) is not None:
        hint = "Give its name that ending."
        raise ValueError(f"{named} is no text: it looks like a file that ends in {other}. {hint}")
    encoding, note = _encoding(path, named, ending, encoding)
    table = TextTable(path, named, ending, encoding)
    if told := _told_separator(table):
        table, separator = replace(table, skip=True), separator or told
    separator = separator or _separator(table)
    with table.records(separator) as records:
        header = tuple(next(records))
    if (kind := _other_kind(header[0])) is not None:
        raise ValueError(f"{named} must be a table; it looks like {kind}, by its first line.")
    notes = [note, _title_note(table, header), _nameless_note(table, header)]
    return replace(table, separator=separator, header=header, notes=tuple(filter(None, notes)))


def _other_kind(cell: str) -> str | None:
    """What a text is whose first cell says that it is no table; None for all others."""
    start = cell.lstrip().lower()
    if start.startswith(("<!doctype html", "<html")):
        return "a web page"
    if start.startswith("<?xml"):
        return "XML"
    return "JSON" if re.match(r'[\[{]\s*([\[{"]|$)', start) else None


def _told_separator(table: TextTable) -> str | None:
    """The separator that a first line such as "sep=;" names; None where there is no such line."""
    with open_bytes(table.path, table.ending) as data:
        file = io.TextIOWrapper(data, encoding=table.encoding, newline="")
        found, more = _SEPARATOR_LINE.fullmatch(file.readline(100)), file.read(1)
    return found[1] if found and more else None


def _title_note(table: TextTable, header: tuple[str, ...]) -> str:
    """A word where the first line looks like a title above the header: one cell, and several below it."""
    if not header[0].strip() or any(cell.strip() for cell in header[1:]):
        return ""
    for mark in _SEPARATORS:
        try:
            with table.records(mark) as records:
                rows = [cells for cells in itertools.islice(records, 1 + _LOOKED_AT) if cells][1:]
        except _BadCells:
            continue
        widths = {len(cells) for cells in rows}
        if len(rows) > 1 and len(widths) == 1 and sum(map(bool, rows[0])) > 1:
            said = f"the first line is {header[0].strip()[:40]!r}, and those below it have {widths.pop():,}"
            return f"{table.named}: {said} cells. {_TITLE}"
    return ""


def _separator(table: TextTable) -> str:
    """The mark that cuts the first row into the most cells."""
    found = {}
    for mark in _SEPARATORS:
        try:
            with table.records(mark) as records:
                found[mark] = len(next(records))
        except _BadCells:  # quotes that make no sense with this mark
            found[mark] = 0
    best = max(found, key=lambda mark: found[mark])
    return best if found[best] > 1 else ","


def _encoding(path: Path, named: Path, ending: str, asked: str | None) -> tuple[str, str]:
    """How the text is encoded, and what to say about it."""
    if asked is not None:
        try:
            "a".encode(asked)
        except (LookupError, ValueError):
            raise ValueError(
                must("open_table", "encoding", "one that Python knows, as cp1252", asked)
            ) from None
        _decoded(path, named, ending, asked)
        return asked, ""
    with open_bytes(path, ending) as file:
        start = file.read(4096)
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            _decoded(path, named, ending, encoding)
            note = f"{named} is {encoding.upper()}, by its byte order mark."
            return encoding, "" if encoding == "utf-8-sig" else note
    try:
        _decoded(path, named, ending, "utf-8")
    except _NotDecoded as error:
        if b"\0" in start or sum(byte in _CONTROLS for byte in start) > len(start) / 100:
            wide = start.count(b"\0") > len(start) / 4
            hint = (
                "Is it UTF-16? Say so with --encoding utf-16-le." if wide else "Is it another kind of file?"
            )
            raise ValueError(f"{error} It does not look like text of any other kind. {hint}") from None
    else:
        return "utf-8", ""
    try:
        _decoded(path, named, ending, "cp1252")
        found, name = "cp1252", "Windows-1252 (cp1252)"
    except _NotDecoded:
        found, name = "latin-1", "Latin-1"
    return found, f"{named} is not UTF-8; it is read as {name}. If that is wrong: --encoding."


def _nameless_note(table: TextTable, header: tuple[str, ...]) -> str:
    """A word where the first line seems to be a row: all its cells are numbers."""
    cells = [cell.strip() for cell in header]
    if len(cells) < 2 or not all(map(number_like, cells)):
        return ""
    return (
        f"{table.named}: the names of its columns are numbers, {', '.join(cells[:3])} ... Is there a header?"
    )


class _NotDecoded(ValueError):
    """Bytes that are no text of an encoding."""


def _decoded(path: Path, named: Path, ending: str, encoding: str) -> None:
    """Raise unless the whole file is text of this encoding, so that an error comes before any row is used."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    with open_bytes(path, ending) as file:
        try:
            while part := file.read(_BYTES):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeError as error:
            raise _NotDecoded(_undecodable(named, encoding, error)) from error


def _undecodable(named: Path, encoding: str, error: UnicodeError) -> str:
    name = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8"}.get(encoding, encoding)
    reason = getattr(error, "reason", str(error))
    return f"{named}: the text must be {name}; it is not ({reason})."
