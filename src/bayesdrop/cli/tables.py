"""`bayesdrop fit`, `predict`, `evaluate`: from a table to predictions with uncertainty."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesdrop.cli.options import (
    Address,
    AsJson,
    Categorical,
    Dates,
    DeferBy,
    DeferError,
    DeferShare,
    Encoding,
    EngineName,
    Force,
    Ignore,
    Keep,
    Level,
    Missing,
    ModelFolder,
    Numbers,
    Processes,
    Quiet,
    SchemaFile,
    Seed,
    Separator,
    Sheet,
    Workers,
    WrittenModel,
)
from bayesdrop.cli.printing import plain_errors, print_rows, print_safely, shows_progress
from bayesdrop.cli.schema_table import print_schema
from bayesdrop.harmless import visible

__all__ = ["check_level", "evaluate", "fit", "predict", "rule_of", "written_as"]


def fit(
    data: Annotated[Path, typer.Argument(help="A table with a header: a file, a folder of files, or -.")],
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    output: WrittenModel,
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    method: Annotated[
        str | None,
        typer.Option(
            help="bernoulli, concrete, learnable, gaussian, dropconnect, mixture, variational, meanfield."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="default, quick, best, gal2016, gal2018 or two-layers.")
    ] = None,
    hidden: Annotated[str | None, typer.Option(help="Widths of the hidden layers, as 64,64.")] = None,
    p: Annotated[
        float | None, typer.Option("--p", help="Chance of dropping, where learned rates start.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.")] = None,
    draws: Annotated[int | None, typer.Option(min=2, help="Functions drawn for a prediction.")] = None,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of rows that no network sees; if left out, each holds out other rows."),
    ] = None,
    refit: Annotated[bool, typer.Option("--refit", help="Fit once more to all rows at the end.")] = False,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    defer_share: Annotated[
        float | None, typer.Option(help="Hand at most this share of rows to a person; 0.05 if left out.")
    ] = None,
    defer_error: DeferError = None,
    defer_by: Annotated[
        str | None, typer.Option(help="std, epistemic, aleatoric; entropy, mutual_information, max_prob.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="A column, as of patients: rows of one value are held out together.")
    ] = None,
    schema: SchemaFile = None,
    categorical: Categorical = None,
    ignore: Ignore = None,
    keep: Keep = None,
    missing: Missing = None,
    numbers: Numbers = None,
    dates: Dates = None,
    keep_rows: Annotated[
        int, typer.Option(min=0, help="Rows of the fit that the folder keeps, for `explain`; 0 for none.")
    ] = 1000,
    separator: Separator = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    processes: Processes = 1,
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Fit a table, measure the model on held-out rows, and write its folder with a report."""
    with plain_errors():
        from bayesdrop.tables import FitOptions, Rule, read_schema

        numbers_of, dates_of = _ways(numbers, dates)
        options = FitOptions(
            target,
            task=task,
            held_out=held_out,
            level=level,
            rule=Rule(defer_share, defer_error, defer_by),
            refit=refit,
            categorical=tuple(categorical or ()),
            ignore=tuple(ignore or ()),
            missing=tuple(missing or ()),
            keep_rows=keep_rows,
            seed=seed,
            estimator={
                "preset": preset,
                "method": method,
                "hidden": _widths(hidden),
                "p": p,
                "epochs": epochs,
                "num_draws": draws,
                "processes": processes,
            },
            keep=tuple(keep or ()),
            numbers=numbers_of,
            dates=dates_of,
            schema=None if schema is None else read_schema(schema),
            groups=groups,
        )
        reading = {"separator": separator, "encoding": encoding, "sheet": sheet}
        _fit(data, output, options, reading, force, quiet)


def predict(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            help="A table with the model's columns, or - for standard input; or several: folders, patterns."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="The table to write: .csv, .tsv or .parquet; or a folder for parts."
        ),
    ],
    level: Level = None,
    defer_share: DeferShare = None,
    defer_error: DeferError = None,
    defer_by: DeferBy = None,
    prefix: Annotated[str, typer.Option(help="Put before the names of the new columns.")] = "",
    numbers: Numbers = None,
    dates: Dates = None,
    separator: Separator = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows that are held at a time.")] = 9_600,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    part_rows: Annotated[int, typer.Option(min=1, help="Rows of a part of a Parquet file.")] = 249_600,
    format: Annotated[
        str | None, typer.Option(help="Of parts: parquet, csv or csv.gz; as the data if left out.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Score tables of any length: their own columns, and the model's predictions beside them.

    Into a folder, tables are scored in parts, several at a time; the same command goes on where one stopped.
    """
    with plain_errors():
        from bayesdrop.tables import load_table_model

        check_level(level)
        fitted = written_as(load_table_model(model), numbers, dates)
        rule = rule_of(fitted, defer_share, defer_error, defer_by)
        asked = {"level": level, "rule": rule, "prefix": prefix, "chunk_rows": chunk_rows, "force": force}
        asked |= {"progress": shows_progress(quiet)}
        reading = {"separator": separator, "encoding": encoding, "sheet": sheet}
        if _is_for_parts(data, output):
            parts = {"part_rows": part_rows, "format": format, "schema": fitted.schema, "reading": reading}
            scored, notes, written = _score_parts(
                model,
                data,
                output,
                {"name": engine, "address": address, "workers": workers},
                {**asked, **parts},
            )
        else:
            if (engine, address, workers, format) != ("local", None, None, None):
                want = "for a folder of parts; give a folder as --output"
                raise ValueError(f"--engine, --address, --workers and --format are {want}.")
            scored, notes, written = _score_one(fitted, data[0], Path(output), reading, asked)
        if quiet:
            print(written)
            return
        for note in notes:
            print_safely(note)
        print_safely(f"Deferred, {fitted.deferral(rule)}.")
        for line in scored.lines():
            print_safely(line)
        print(f"Written: {written}")


def _is_for_parts(data: Sequence[str], output: str) -> bool:
    """Whether the output is a folder for parts: it is one, or has no ending. Raises if it cannot be one."""
    is_folder = "://" in output or output.endswith("/") or Path(output).is_dir() or not Path(output).suffix
    if len(data) > 1 and not is_folder:
        raise ValueError(f"the output of {len(data)} tables must be a folder; got {output}.")
    if is_folder and "-" in data:
        raise ValueError("the output of standard input must be a file that ends in .csv, .tsv or .parquet.")
    return is_folder


def _score_one(
    fitted: Any, data: str, output: Path, reading: dict[str, str | None], asked: dict[str, Any]
) -> tuple[Any, Sequence[str], str]:
    """Counts of what was met, notes for a person, and where the output is."""
    from bayesdrop.tables import open_table, score_file

    options: dict[str, Any] = dict(reading)
    table = open_table(data, **options)
    return score_file(fitted, table, output, **asked), table.notes, str(output.resolve())


def _score_parts(
    model: Path, data: Sequence[str], output: str, engine: dict[str, Any], asked: dict[str, Any]
) -> tuple[Any, Sequence[str], str]:
    """Counts of what was met, notes for a person, and where the output is."""
    from bayesdrop.engines import WorkersLost, make_engine
    from bayesdrop.scoring import score_tables

    try:
        with make_engine(**engine) as chosen:
            found = score_tables(model, data, output, engine=chosen, **asked)
    except KeyboardInterrupt:
        print("Stopped. Finished parts are kept: the same command goes on from there.", file=sys.stderr)
        raise SystemExit(130) from None
    except WorkersLost as error:
        raise ValueError(str(error)) from error
    said = [] if not found.found else [f"{found.found:,} of {len(found.records):,} parts were there already."]
    return found.scored, [*found.notes, *said], found.output


def evaluate(
    model: ModelFolder,
    data: Annotated[Path, typer.Argument(help="A table with the model's columns and its target.")],
    level: Level = None,
    defer_share: DeferShare = None,
    defer_error: DeferError = None,
    defer_by: DeferBy = None,
    report: Annotated[Path | None, typer.Option(help="Write a report of these rows: an .html file.")] = None,
    numbers: Numbers = None,
    dates: Dates = None,
    separator: Separator = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Compare predictions with the targets of a table: errors, calibration, what deferral does to errors."""
    with plain_errors():
        from bayesdrop.storage import write_file
        from bayesdrop.tables import load_table_model, open_table
        from bayesdrop.tables.evaluate import evaluate_table
        from bayesdrop.tables.writing import check_free

        check_level(level)
        if report is not None:
            check_free(report, force=force, owner="evaluate")
        fitted = written_as(load_table_model(model), numbers, dates)
        rule = rule_of(fitted, defer_share, defer_error, defer_by)
        table = open_table(data, separator=separator, encoding=encoding, sheet=sheet)
        for note in table.notes:
            print(visible(note), file=sys.stderr)
        result = evaluate_table(fitted, table, level=level, rule=rule)
        if as_json:
            print(json.dumps(result.as_dict(), indent=1))
        else:
            print_rows(result.rows())
        if report is not None:
            check_free(report, force=force, owner="evaluate")
            write_file(report, result.report(), owner="evaluate")
            print(f"Report: {report.resolve()}", file=sys.stderr if as_json else sys.stdout)


def _fit(data: Path, output: Path, options: Any, reading: dict[str, Any], force: bool, quiet: bool) -> None:
    from bayesdrop.errors import require

    # What may be missing or wrong is checked before training, which takes a while.
    for module, extra in (("pandas", "tables"), ("sklearn", "tables"), ("matplotlib.figure", "plot")):
        require(module, extra=extra, owner="bayesdrop fit")
    from bayesdrop.tables import fit_table, open_table, save_table_model
    from bayesdrop.tables.evaluate import fit_evaluation
    from bayesdrop.tables.model import check_folder
    from bayesdrop.tables.written import counted

    check_folder(output, force=force)

    def say(line: str) -> None:
        if not quiet:
            print_safely(line)

    def show(schema: Any) -> None:
        """Print the schema: a table on a terminal, lines in a file or a pipe."""
        if sys.stdout.isatty() and not quiet:
            print_schema(schema)
            return
        for line in schema.lines():
            say(f"  {line}")

    def read() -> Any:
        frame = table.read()
        say(f"{table.path}: {counted(len(frame), 'row')}, {counted(len(frame.columns), 'column')}.")
        for note in table.notes:
            say(note)
        return frame

    table = open_table(data, **reading)
    # No name is kept for the frame, so that `fit_table` can free it.
    fitted = fit_table(read(), options, say=say, show=show, progress=shows_progress(quiet))
    result = fit_evaluation(fitted)
    report = result.report(f"{table.path.name}: {options.target}")
    save_table_model(fitted.model, output, report=report, force=force)
    if quiet:
        print((output / "report.html").resolve())
        return
    print("On rows that the networks had not seen:")
    print_rows(result.rows())
    print(f"Model:  {output.resolve()}")
    print(f"Report: {(output / 'report.html').resolve()}")


def _ways(
    numbers: Sequence[str] | None, dates: Sequence[str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Ways to write numbers and dates, by name of column."""
    from bayesdrop.tables.spelling import DATES, NUMBERS
    from bayesdrop.tables.wishes import ways_of

    return ways_of(numbers or (), NUMBERS, "--numbers"), ways_of(dates or (), DATES, "--dates")


def written_as(model: Any, numbers: Sequence[str] | None, dates: Sequence[str] | None) -> Any:
    """The model with its schema changed for a table that writes numbers or dates in another way."""
    from bayesdrop.tables.wishes import check_known

    numbers_of, dates_of = _ways(numbers, dates)
    schema = model.schema
    check_known([name for name in (*numbers_of, *dates_of) if name], [schema.target, *_names(schema)])
    return replace(model, schema=schema.written(numbers_of, dates_of))


def _names(schema: Any) -> list[str]:
    return [column.name for column in schema.columns]


def rule_of(model: Any, share: float | None, error: float | None, by: str | None) -> Any:
    """The deferral rule that the options ask for; the model's own where they are left out."""
    from bayesdrop.tables import Rule

    if share is None and error is None:
        share, error = model.rule.share, model.rule.error
    return Rule(share, error, model.rule.by if by is None else by).for_task(model.schema.task)


def check_level(level: float | None) -> None:
    """Raise unless a level is a probability."""
    if level is not None and not 0 < level < 1:
        raise ValueError(f"--level must be in (0, 1); got {level}.")


def _widths(text: str | None) -> tuple[int, ...] | None:
    """Widths of hidden layers from "64,64"."""
    if text is None:
        return None
    try:
        widths = tuple(map(int, text.split(",")))
    except ValueError:
        widths = (0,)
    if min(widths) < 1:
        raise ValueError(f"--hidden must be widths such as 64,64; got {text!r}.")
    return widths
