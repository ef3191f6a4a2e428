"""Which sheet of a file is meant, and what a sheet must not hold if it is to be read as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bayesdrop.tables.unpacking import Refused

__all__ = ["MOST_CELLS", "cell_name", "chosen_sheet", "refuse_merged", "refuse_uncomputed"]

#: cells of a sheet that are read; a larger table is better kept as CSV or Parquet
MOST_CELLS = 20_000_000


def chosen_sheet(names: Sequence[str], asked: str | None, named: Path) -> int:
    """The place, from 0, of the sheet that was asked for by name or by number.

    Args:
        names: of all sheets.
        asked: a name, or a number that is counted from 1; may be None if there is only one.
        named: the file, for errors.
    """
    if asked is None and len(names) == 1:
        return 0
    if asked in names:
        return names.index(str(asked))
    if asked is not None and asked.isdecimal() and 1 <= int(asked) <= len(names):
        return int(asked) - 1
    shown = ", ".join(f"{place} {name!r}" for place, name in enumerate(names[:20], 1)) or "none"
    if asked is None:
        raise Refused(f"{named} has {len(names)} sheets; say which with --sheet: {shown}.")
    raise Refused(f"{named} has no sheet {asked!r}. It has {shown}.")


def refuse_merged(named: Path, cells: str) -> NoReturn:
    """Raise: merged cells cannot be read, since only the first of them has a value."""
    hint = "Unmerge them, so that every cell has a value of its own."
    raise Refused(f"{named}: no cells of a table may be merged; {cells} are. {hint}")


def refuse_uncomputed(named: Path, cell: str) -> NoReturn:
    """Raise: a formula has no value in the file, and formulas are not computed here."""
    hint = "Open the file in a spreadsheet and save it, or put values in their place."
    raise Refused(f"{named}: cell {cell} is a formula without a value; formulas are not computed. {hint}")


def cell_name(row: int, column: int) -> str:
    """What a spreadsheet calls the cell of a row and a column, both counted from 0.

    >>> cell_name(0, 0), cell_name(9, 27)
    ('A1', 'AB10')
    """
    letters = ""
    while column >= 0:
        letters, column = chr(ord("A") + column % 26) + letters, column // 26 - 1
    return f"{letters}{row + 1}"
