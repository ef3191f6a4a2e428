"""What is known of a table's columns, as a table on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from bayesdrop.harmless import visible

__all__ = ["print_inspection", "print_schema"]

#: characters of a line that is written to a file or a pipe
_WIDE = 150


def print_schema(schema: Any) -> None:
    """Print what a fit makes of every column."""
    rows = [
        (column.name, column.kind, column.format, str(column.width or ""), column.why)
        for column in schema.columns
    ]
    _print(("column", "kind", "written as", "inputs", "what becomes of it"), rows, right=(3,))


def print_inspection(found: Any) -> None:
    """Print how a table would be read, and below, what to look at."""
    rows = [
        (
            column.name,
            column.kind,
            column.how,
            f"{column.missing:,}",
            f"{column.values:,}",
            "; ".join(column.examples),
            column.becomes,
        )
        for column in found.columns
    ]
    header = ("column", "kind", "read as", "missing", "values", "examples", "what becomes of it")
    _print(header, rows, right=(3, 4))
    for column in found.columns:
        for warning in (one for one in column.warnings if one != column.becomes):
            print(visible(f"Look at {column.name}: {warning}"))


def _print(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        # As texts: cells of a table are no markup, and their control characters are written out.
        table.add_row(*(Text(visible(cell)) for cell in row))
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE
    Console(file=sys.stdout, width=wide, highlight=False).print(table)
