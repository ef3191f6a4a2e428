"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Address",
    "AsJson",
    "Categorical",
    "Dates",
    "DeferBy",
    "DeferError",
    "DeferShare",
    "Encoding",
    "EngineName",
    "Force",
    "Ignore",
    "Keep",
    "Level",
    "Missing",
    "ModelFolder",
    "Numbers",
    "Processes",
    "Quiet",
    "SchemaFile",
    "Seed",
    "Separator",
    "Sheet",
    "Workers",
    "WrittenModel",
]

# what is read
ModelFolder = Annotated[Path, typer.Argument(help="A folder that `bayesdrop fit` wrote.")]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Between the cells of a CSV; detected if left out.")
]

Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Of a CSV, such as cp1252; detected if left out.")
]
Sheet = Annotated[
    str | None, typer.Option("--sheet", help="Of an .xlsx or .ods file: its name, or its number from 1.")
]
Numbers = Annotated[
    list[str] | None,
    typer.Option("--numbers", help="How 1234.5 is written, such as 1.234,5; in one column: price=1.234,5."),
]
Dates = Annotated[
    list[str] | None,
    typer.Option(
        "--dates", help="How 31 March 2024 is written, such as 31/03/2024; in one column: day=31/03/2024."
    ),
]

# what becomes of columns
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="What the columns are: a file that `inspect --save` wrote.")
]
Categorical = Annotated[
    list[str] | None, typer.Option("--categorical", help="A column of categories, even if they are numbers.")
]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", help="A column to leave out; may be given many times.")
]
Keep = Annotated[
    list[str] | None, typer.Option("--keep", help="A column to use, even if it seems to identify rows.")
]
Missing = Annotated[
    list[str] | None, typer.Option("--missing", help="A text that means missing, besides NA, NaN, ...")
]

# what is written and printed
WrittenModel = Annotated[Path, typer.Option("--output", "-o", help="The folder to write the model in.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the path of what was written and nothing else.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# how it is computed
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="The same seed, the same model.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="local: processes of this machine; ray: a cluster (extra ray).")
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a Ray cluster, such as auto; a new one on this machine if left out."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes that work at a time; all cores if left out.")
]
Processes = Annotated[int, typer.Option("--processes", min=1, help="Work in so many processes.")]

# what a fitted model is asked for
Level = Annotated[
    float | None, typer.Option("--level", help="Coverage of the intervals; the model's own if left out.")
]
DeferShare = Annotated[
    float | None, typer.Option("--defer-share", help="Hand at most this share of rows to a person.")
]
DeferError = Annotated[
    float | None, typer.Option("--defer-error", help="Hand over as few rows as keep the error this low.")
]
DeferBy = Annotated[
    str | None, typer.Option("--defer-by", help="What rows are ranked by, such as std or entropy.")
]
