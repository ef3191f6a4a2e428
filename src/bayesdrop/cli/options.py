"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "DeferBy",
    "DeferError",
    "DeferShare",
    "Force",
    "Level",
    "ModelFolder",
    "Processes",
    "Quiet",
    "Seed",
    "Separator",
    "WrittenModel",
]

# what is read
ModelFolder = Annotated[Path, typer.Argument(help="A folder that `bayesdrop fit` wrote.")]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Between the cells; told from the header.")
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
Processes = Annotated[int, typer.Option("--processes", min=1, help="Work over so many processes.")]

# what a fitted model is asked for
Level = Annotated[float | None, typer.Option("--level", help="Coverage of the intervals; the model's own.")]
DeferShare = Annotated[
    float | None, typer.Option("--defer-share", help="Hand over at most this share of rows.")
]
DeferError = Annotated[
    float | None, typer.Option("--defer-error", help="Hand over what the error needs to be this low.")
]
DeferBy = Annotated[str | None, typer.Option("--defer-by", help="What rows are ranked by.")]
