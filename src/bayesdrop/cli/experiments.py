"""`bayesdrop experiments list | run | table`: the papers' results beside ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdrop.cli.options import Address, EngineName, Processes, Workers

if TYPE_CHECKING:
    from bayesdrop.engines import Engine

__all__ = ["experiments"]

experiments = typer.Typer(help="Published tables and figures, run again.", no_args_is_help=True)


@experiments.command("list")
def list_experiments() -> None:
    """List every experiment, and what it is."""
    from bayesdrop.experiments.registry import EXPERIMENTS, experiment_title

    width = max(map(len, EXPERIMENTS), default=0)
    for name in EXPERIMENTS:
        print(f"{name.ljust(width)}  {experiment_title(name)}")


@experiments.command()
def run(
    name: Annotated[str, typer.Argument(help="One of `bayesdrop experiments list`.")],
    preset: Annotated[
        str, typer.Option(help="default: the reproduction; smoke: a test of some seconds.")
    ] = "default",
    quick: Annotated[
        bool, typer.Option("--quick", help="Short for --preset quick, which some experiments have.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be given many times."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute all again instead of going on.")] = False,
    processes: Processes = 1,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of JSON and picture.")] = Path(
        "results"
    ),
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A results file: what it has of the same settings is not run again. May be given many"
            " times.",
        ),
    ] = None,
) -> None:
    """Run an experiment, or go on with it; write its numbers and its picture; print its table."""
    from bayesdrop.engines import make_engine
    from bayesdrop.experiments.registry import load_experiment
    from bayesdrop.experiments.runner import earlier_record
    from bayesdrop.experiments.settings import with_settings

    try:
        if quick and preset != "default":
            raise ValueError(f"--quick is --preset quick; got --preset {preset} too.")
        preset = "quick" if quick else preset
        overrides = _pairs(settings or ())
        with_settings(load_experiment(name).config(preset), overrides)
        if output.exists() and not output.is_dir():
            raise ValueError(f"--output must be a folder; {output} is a file.")
        for file in earlier or ():
            earlier_record(name, file)
        if engine == "local" and workers is not None:
            raise ValueError("--workers is for --engine ray; with --engine local, give --processes.")
        chosen = (
            None
            if (engine, address) == ("local", None)
            else make_engine(engine, address=address, workers=workers)
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _run(name, preset, overrides, fresh, processes, chosen, output, earlier or ())


@experiments.command()
def table(
    name: Annotated[
        str | None, typer.Argument(help="An experiment, or a results file's name; all if left out.")
    ] = None,
    results: Annotated[Path, typer.Option("--results", "-r", help="The folder that is read.")] = Path(
        "results"
    ),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Print "paper / ours" from results files; gaps show as "not run"."""
    try:
        _table(name, results, markdown)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"--set must be KEY=VALUE; got {setting!r}.")
        pairs[name.strip()] = value.strip()
    return pairs


def _run(
    name: str,
    preset: str,
    overrides: dict[str, str],
    fresh: bool,
    processes: int,
    engine: Engine | None,
    output: Path,
    earlier: Sequence[Path],
) -> None:
    from bayesdrop.data import DataNotFound
    from bayesdrop.errors import require
    from bayesdrop.experiments import run_experiment
    from bayesdrop.experiments.record import NotReusable
    from bayesdrop.experiments.table import print_table

    console = require("rich.console", extra="cli", owner="bayesdrop experiments").Console()
    try:
        with engine or nullcontext():
            record = run_experiment(
                name,
                preset=preset,
                overrides=overrides,
                fresh=fresh,
                processes=processes,
                engine=engine,
                output=output,
                earlier=earlier,
                progress=sys.stderr.isatty(),
            )
    except KeyboardInterrupt:
        note = "Stopped. What was finished is kept: the same command, without --fresh, goes on from there."
        print(note, file=sys.stderr)
        raise SystemExit(130) from None
    except (DataNotFound, NotReusable) as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from error
    print_table(record, console=console)
    for ending in ("json", "png"):
        path = (output / f"{record.stem}.{ending}").resolve()
        # soft_wrap: a path is never broken over lines, so that it can be copied
        console.print(f"Written: {path}", soft_wrap=True, highlight=False, markup=False)


def _table(name: str | None, results: Path, markdown: bool) -> None:
    from bayesdrop.experiments.record import read_records
    from bayesdrop.experiments.registry import EXPERIMENTS, unknown
    from bayesdrop.experiments.table import markdown_table, print_table

    records = read_records(results)
    if name is not None and name not in records and name not in EXPERIMENTS:
        raise ValueError(unknown("experiment", name, {**EXPERIMENTS, **records}))
    shown = [record for record in records.values() if name in (None, record.experiment)]
    if name in records and name not in EXPERIMENTS:
        shown = [records[name]]
    for record in shown:
        if markdown:
            print(f"## {record.title.rstrip('.')}\n\n{markdown_table(record)}\n")
        else:
            print_table(record)
    run = {record.experiment for record in shown}
    for missing in [each for each in EXPERIMENTS if name in (None, each) and each not in run]:
        print(f"{missing}: not run; there is no results file of it in {results}.")
