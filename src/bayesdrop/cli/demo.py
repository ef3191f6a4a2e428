"""`bayesdrop demo`: one network on the Mauna Loa CO2 record, with a picture and scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bayesdrop.cli.options import Quiet

__all__ = ["demo"]


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture to write: .png, .pdf or .svg.")
    ] = Path("bayesdrop-demo.png"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed, the same numbers.")] = 0,
    draws: Annotated[int, typer.Option(min=2, help="How many functions are drawn.")] = 100,
    quiet: Quiet = False,
) -> None:
    """Train a dropout network on the Mauna Loa CO2 record; plot and score its predictions."""
    from bayesdrop.plots import check_picture_path

    try:
        path = check_picture_path(output, owner="demo", argument="--output")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _demo(path.resolve(), seed=seed, draws=draws, quiet=quiet)


def _demo(path: Path, *, seed: int, draws: int, quiet: bool) -> None:
    from bayesdrop.errors import require

    # What may be missing is checked before training, which takes a while.
    console = require("rich.console", extra="cli", owner="bayesdrop demo")
    require("matplotlib.figure", extra="plot", owner="bayesdrop demo")
    require("statsmodels.datasets.co2", extra="data", owner="bayesdrop demo")
    from bayesdrop.demo import DemoConfig, draw_demo, print_report, run_demo
    from bayesdrop.plots import save_figure

    if not quiet:
        note = "Training a dropout network on the Mauna Loa CO2 record; about 10 seconds."
        console.Console(stderr=True).print(note, style="dim")
    result = run_demo(DemoConfig(seed=seed, num_draws=draws), progress=False if quiet else None)
    try:
        save_figure(draw_demo(result), path, colors=256)
    except OSError as error:
        print(f"demo: the picture could not be written to {path}: {error.strerror}.", file=sys.stderr)
        raise SystemExit(1) from error
    if quiet:
        print(path)
    else:
        print_report(result, path)
