"""The table "paper / ours" of a record: as text, with rich, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bayesdrop.errors import require
from bayesdrop.experiments.record import Record
from bayesdrop.experiments.row import Row

__all__ = ["beside_claims", "beside_rows", "markdown_table", "print_table", "shown_number", "text_table"]

NOT_RUN = "not run"
NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def shown_number(value: float, standard_error: float | None = None) -> str:
    """A measured number with the digits that mean something.

    With a standard error, up to that error's second digit; without, four significant digits.

    >>> shown_number(2.97123, 0.0417), shown_number(1234.56, 20.3), shown_number(0.123456)
    ('2.971 ± 0.042', '1235 ± 20', '0.1235')
    """
    if standard_error:
        places = max(0, 1 - math.floor(math.log10(standard_error)))
        return f"{_fixed(value, places)} ± {_fixed(standard_error, places)}"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -4 <= size < 7:
        return f"{value:.3e}"
    return _fixed(value, max(0, 3 - size))


def text_table(record: Record) -> str:
    """The table in plain text, columns in line."""
    head, rows = _cells(record.outcome.rows)
    widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in (head, *rows)
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])


def markdown_table(record: Record) -> str:
    """The table in Markdown."""
    head, rows = _cells(record.outcome.rows)
    align = ["---:" if name in ("paper", "ours") else "---" for name in head]
    return _markdown(head, align, rows)


def beside_rows(records: Sequence[Record]) -> str:
    """The numbers that several runs of an experiment share, a column a preset, in Markdown; empty if none."""
    found = [{(row.setting, row.metric): row for row in record.outcome.rows} for record in records]
    shared = [key for key in found[0] if all(key in rows for rows in found)]
    if not shared:
        return ""
    lines = [[*key, _paper(found[0][key]), *(_ours(rows[key]) for rows in found)] for key in shared]
    head = ["setting", "metric", "paper", *(f"ours, {record.preset}" for record in records)]
    return _markdown(head, ["---", "---", *["---:"] * (len(head) - 2)], lines)


def beside_claims(records: Sequence[Record]) -> str:
    """Which claims hold in which run, a column a preset, in Markdown; empty if no two runs share one."""
    found = [{claim.text: claim.holds for claim in record.outcome.claims} for record in records]
    texts = [text for text in found[0] if any(text in claims for claims in found[1:])]
    if not texts:
        return ""
    verdict = {True: "holds", False: "**does not hold**", None: NONE}
    lines = [[text, *(verdict[claims.get(text)] for claims in found)] for text in texts]
    head = ["claim", *(f"preset {record.preset}" for record in records)]
    return _markdown(head, ["---"] * len(head), lines)


def print_table(record: Record, *, console: Any = None) -> None:
    """The table, the claims and the notes on a terminal.

    Args:
        record: of a run.
        console: a rich Console; standard output if None.
    """
    owner = "bayesdrop experiments table"
    console = require("rich.console", extra="cli", owner=owner).Console() if console is None else console
    text = require("rich.text", extra="cli", owner=owner).Text
    table = require("rich.table", extra="cli", owner=owner).Table()
    head, rows = _cells(record.outcome.rows)
    for name in head:
        table.add_column(name, justify="right" if name in ("paper", "ours") else "left")
    previous = None
    for line in rows:
        if previous not in (None, line[0]) and len({row[0] for row in rows}) < len(rows):
            table.add_section()
        shown = ["" if line[0] == previous else line[0], *line[1:]]
        table.add_row(*(text(cell, style="dim" if cell == NOT_RUN else "") for cell in shown))
        previous = line[0]
    # Above and below the table, not in it: a title is not folded to the width of a narrow table.
    console.print(text(record.title, style="bold"))
    console.print(table)
    console.print(text(caption(record), style="dim"))
    for claim in record.outcome.claims:
        verdict, style = ("holds", "green") if claim.holds else ("does not hold", "yellow")
        console.print(text.assemble((f"{verdict}: ", style), f"{claim.text} Measured: {claim.measured}"))
        if claim.correction:
            console.print(text(f"  {'to be precise' if claim.holds else 'instead'}: {claim.correction}"))
    for note in record.outcome.notes:
        console.print(text(f"note: {note}", style="dim"))


def caption(record: Record) -> str:
    """Which run a table is of."""
    settings = "".join(f", {name} = {value}" for name, value in record.overrides.items())
    commit = (
        f", commit {record.commit[:7]}{'+' if record.commit.endswith('-modified') else ''}"
        if record.commit
        else ""
    )
    return f"preset {record.preset}{settings}; bayesdrop {record.version}{commit}"


def _markdown(head: list[str], align: list[str], rows: list[list[str]]) -> str:
    lines = [head, align, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    head = ["setting", "metric", "paper", "ours"]
    lines = [[row.setting, row.metric, _paper(row), _ours(row)] for row in rows]
    if any(row.note for row in rows):
        head.append("note")
        lines = [[*line, row.note] for line, row in zip(lines, rows, strict=True)]
    return head, lines


def _paper(row: Row) -> str:
    if row.paper is None:
        return NONE
    return row.paper if isinstance(row.paper, str) else _minus(f"{row.paper:.10g}")


def _ours(row: Row) -> str:
    return NOT_RUN if row.ours is None else shown_number(row.ours, row.standard_error)


def _fixed(value: float, places: int) -> str:
    return _minus(f"{value:.{places}f}")


def _minus(number: str) -> str:
    """With a minus sign, and no minus before zero."""
    if number.startswith("-"):
        bare = number[1:]
        return bare if not bare.strip("0.") else MINUS + bare
    return number
