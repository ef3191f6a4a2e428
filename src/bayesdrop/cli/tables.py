"""`bayesdrop fit`, `predict`, `evaluate`: from a table to predictions with uncertainty."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["add_tables", "plain_errors", "print_rows", "print_safely", "watched"]


def add_tables(app: Any, typer: Any) -> None:
    """Give the application its commands `fit`, `predict` and `evaluate`."""
    _add_fit(app, typer)
    _add_predict(app, typer)
    _add_evaluate(app, typer)


def _add_fit(app: Any, typer: Any) -> None:
    data_argument = typer.Argument(help="A CSV or Parquet table with a header.")
    target_option = typer.Option(..., "--target", "-t", help="The column to predict.")
    output_option = typer.Option(..., "--output", "-o", help="The folder to write the model in.")
    task_option = typer.Option("auto", "--task", help="auto, regression or classification.")
    method_option = typer.Option(
        None,
        "--method",
        help="bernoulli, concrete, learnable, gaussian, dropconnect, mixture, variational, meanfield.",
    )
    preset_option = typer.Option(None, "--preset", help="default, quick, gal2016, gal2018 or two-layers.")
    hidden_option = typer.Option(None, "--hidden", help="Widths of the hidden layers, as 64,64.")
    p_option = typer.Option(None, "--p", help="Chance of dropping, where learned rates start.")
    epochs_option = typer.Option(None, "--epochs", min=1, help="Passes over the data.")
    draws_option = typer.Option(None, "--draws", min=2, help="Functions drawn for a prediction.")
    held_option = typer.Option(0.15, "--held-out", help="Share of rows that the fit does not see.")
    refit_option = typer.Option(False, "--refit", help="Fit once more to all rows at the end.")
    level_option = typer.Option(0.95, "--level", help="Coverage of the intervals.")
    share_option = typer.Option(None, "--defer-share", help="Hand over at most this share of rows; 0.05.")
    error_option = typer.Option(None, "--defer-error", help="Hand over what the error needs to be this low.")
    by_option = typer.Option(
        None, "--defer-by", help="std, epistemic, aleatoric; entropy, mutual_information, max_prob."
    )
    categorical_option = typer.Option(
        [], "--categorical", help="A column of names, even if they are numbers."
    )
    ignore_option = typer.Option([], "--ignore", help="A column to leave out; may be given many times.")
    missing_option = typer.Option([], "--missing", help="A text that means missing, besides NA, NaN, ...")
    separator_option = typer.Option(None, "--separator", help="Between the cells; told from the header.")
    processes_option = typer.Option(1, "--processes", min=1, help="Train over so many processes.")
    seed_option = typer.Option(0, "--seed", min=0, max=2**32 - 1, help="The same seed, the same model.")
    force_option = typer.Option(False, "--force", help="Replace a model that is there.")
    quiet_option = typer.Option(False, "--quiet", "-q", help="Print the report's path and nothing else.")

    @app.command()  # type: ignore[untyped-decorator, unused-ignore]
    def fit(
        data: Path = data_argument,
        target: str = target_option,
        output: Path = output_option,
        task: str = task_option,
        method: str | None = method_option,
        preset: str | None = preset_option,
        hidden: str | None = hidden_option,
        p: float | None = p_option,
        epochs: int | None = epochs_option,
        draws: int | None = draws_option,
        held_out: float = held_option,
        refit: bool = refit_option,
        level: float = level_option,
        defer_share: float | None = share_option,
        defer_error: float | None = error_option,
        defer_by: str | None = by_option,
        categorical: list[str] = categorical_option,
        ignore: list[str] = ignore_option,
        missing: list[str] = missing_option,
        separator: str | None = separator_option,
        processes: int = processes_option,
        seed: int = seed_option,
        force: bool = force_option,
        quiet: bool = quiet_option,
    ) -> None:
        """Fit a table, try it on held-out rows, and write a model folder with a report."""
        with plain_errors():
            from bayesdrop.tables import FitOptions, Rule

            options = FitOptions(
                target,
                task=task,
                held_out=held_out,
                level=level,
                rule=Rule(defer_share, defer_error, defer_by),
                refit=refit,
                categorical=tuple(categorical),
                ignore=tuple(ignore),
                missing=tuple(missing),
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
            )
            _fit(data, output, options, separator, force, quiet)


def _add_predict(app: Any, typer: Any) -> None:
    model_argument = typer.Argument(help="A folder that `bayesdrop fit` wrote.")
    data_argument = typer.Argument(help="A CSV or Parquet table with the model's columns.")
    output_option = typer.Option(..., "--output", "-o", help="The table to write: .csv, .tsv or .parquet.")
    level_option = typer.Option(None, "--level", help="Coverage of the intervals; the model's own.")
    share_option = typer.Option(None, "--defer-share", help="Hand over at most this share of rows.")
    error_option = typer.Option(None, "--defer-error", help="Hand over what the error needs to be this low.")
    by_option = typer.Option(None, "--defer-by", help="What rows are ranked by.")
    prefix_option = typer.Option("", "--prefix", help="Put before the names of the new columns.")
    separator_option = typer.Option(None, "--separator", help="Between the cells; told from the header.")
    rows_option = typer.Option(10_000, "--chunk-rows", min=1, help="Rows that are held at a time.")
    force_option = typer.Option(False, "--force", help="Replace a file that is there.")
    quiet_option = typer.Option(False, "--quiet", "-q", help="Print the output's path and nothing else.")

    @app.command()  # type: ignore[untyped-decorator, unused-ignore]
    def predict(
        model: Path = model_argument,
        data: Path = data_argument,
        output: Path = output_option,
        level: float | None = level_option,
        defer_share: float | None = share_option,
        defer_error: float | None = error_option,
        defer_by: str | None = by_option,
        prefix: str = prefix_option,
        separator: str | None = separator_option,
        chunk_rows: int = rows_option,
        force: bool = force_option,
        quiet: bool = quiet_option,
    ) -> None:
        """Score a table of any length: its own columns, and the model's predictions beside them."""
        with plain_errors():
            from bayesdrop.tables import load_table_model, open_table, score_file

            _check_level(level)
            fitted = load_table_model(model)
            rule = _rule(fitted, defer_share, defer_error, defer_by)
            table = open_table(data, separator=separator)
            scored = score_file(
                fitted,
                table,
                output,
                level=level,
                rule=rule,
                prefix=prefix,
                force=force,
                chunk_rows=chunk_rows,
                progress=watched(quiet),
            )
            if not quiet:
                print_safely(f"Deferred, {fitted.deferral(rule)}.")
                for line in scored.lines():
                    print_safely(line)
                print(f"Written: {output.resolve()}")
            else:
                print(output.resolve())


def _add_evaluate(app: Any, typer: Any) -> None:
    model_argument = typer.Argument(help="A folder that `bayesdrop fit` wrote.")
    data_argument = typer.Argument(help="A table with the model's columns and its target.")
    level_option = typer.Option(None, "--level", help="Coverage of the intervals; the model's own.")
    share_option = typer.Option(None, "--defer-share", help="Hand over at most this share of rows.")
    error_option = typer.Option(None, "--defer-error", help="Hand over what the error needs to be this low.")
    by_option = typer.Option(None, "--defer-by", help="What rows are ranked by.")
    report_option = typer.Option(None, "--report", help="Write a report of these rows: an .html file.")
    separator_option = typer.Option(None, "--separator", help="Between the cells; told from the header.")
    json_option = typer.Option(False, "--json", help="Print JSON.")
    force_option = typer.Option(False, "--force", help="Replace a report that is there.")

    @app.command()  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(
        model: Path = model_argument,
        data: Path = data_argument,
        level: float | None = level_option,
        defer_share: float | None = share_option,
        defer_error: float | None = error_option,
        defer_by: str | None = by_option,
        report: Path | None = report_option,
        separator: str | None = separator_option,
        as_json: bool = json_option,
        force: bool = force_option,
    ) -> None:
        """Compare predictions with the targets of a table: errors, calibration, what deferral buys."""
        with plain_errors():
            from bayesdrop.tables import load_table_model, open_table
            from bayesdrop.tables.evaluate import check_report, evaluate_table

            _check_level(level)
            if report is not None:
                check_report(report, force=force)
            fitted = load_table_model(model)
            rule = _rule(fitted, defer_share, defer_error, defer_by)
            result = evaluate_table(fitted, open_table(data, separator=separator), level=level, rule=rule)
            if as_json:
                print(json.dumps(result.as_dict(), indent=1))
            else:
                print_rows(result.rows())
            if report is not None:
                result.write_report(report, force=force)
                print(f"Report: {report.resolve()}", file=sys.stderr if as_json else sys.stdout)


def _fit(data: Path, output: Path, options: Any, separator: str | None, force: bool, quiet: bool) -> None:
    from bayesdrop.errors import require

    # All that can be missing or wrong is asked for before training, which takes a while.
    for module, extra in (("pandas", "tables"), ("sklearn", "tables"), ("matplotlib.figure", "plot")):
        require(module, extra=extra, owner="bayesdrop fit")
    from bayesdrop.tables import fit_table, open_table, save_table_model
    from bayesdrop.tables.evaluate import fit_evaluation
    from bayesdrop.tables.model import check_folder

    check_folder(output, force=force)

    def say(line: str) -> None:
        if not quiet:
            print_safely(line)

    def read() -> Any:
        frame = open_table(data, separator=separator).read()
        say(f"{data}: {len(frame):,} rows, {len(frame.columns)} columns.")
        return frame

    # The frame is given away, so that it is gone when it is not needed any more.
    fitted = fit_table(read(), options, say=say, progress=watched(quiet))
    result = fit_evaluation(fitted)
    save_table_model(
        fitted.model, output, report=result.report(f"{data.name}: {options.target}"), force=force
    )
    if quiet:
        print((output / "report.html").resolve())
        return
    print("On the rows that were held out:")
    print_rows(result.rows())
    print(f"Model:  {output.resolve()}")
    print(f"Report: {(output / 'report.html').resolve()}")


def print_rows(rows: Any) -> None:
    """Rows of a name, a value and a hint, in columns."""
    rows = list(rows)
    width = max(len(name) for name, _, _ in rows)
    wide = max(len(value) for _, value, _ in rows)
    for name, value, hint in rows:
        print_safely(f"  {name.ljust(width)}  {value.rjust(wide)}  {hint}".rstrip())


def print_safely(line: str) -> None:
    """A line with texts of the table in it, which must not give orders to the terminal."""
    from bayesdrop.tables.harmless import visible

    print(visible(line), flush=True)


def _rule(model: Any, share: float | None, error: float | None, by: str | None) -> Any:
    from bayesdrop.tables import Rule

    if share is None and error is None:
        share, error = model.rule.share, model.rule.error
    return Rule(share, error, model.rule.by if by is None else by).for_task(model.schema.task)


def _check_level(level: float | None) -> None:
    if level is not None and not 0 < level < 1:
        raise ValueError(f"--level must be in (0, 1); got {level}.")


def _widths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        widths = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"--hidden must be widths such as 64,64; got {text!r}.") from error
    if min(widths) < 1:
        raise ValueError(f"--hidden must be widths such as 64,64; got {text!r}.")
    return widths


def watched(quiet: bool) -> bool:
    """Whether somebody looks on who has not asked for quiet."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say what is wrong in a sentence and exit with 2; nothing has been written by then."""
    try:
        yield
    except BrokenPipeError:  # whoever read what is printed has gone: no fault of the table
        raise
    except KeyboardInterrupt:
        print("Stopped; nothing was written.", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        from bayesdrop.errors import Diverged
        from bayesdrop.tables.harmless import visible

        if not isinstance(error, ValueError | TypeError | OSError | Diverged | MemoryError):
            raise
        said = str(error) or "there is not enough memory."
        print(f"Error: {visible(said)}", file=sys.stderr)
        raise SystemExit(2) from error
