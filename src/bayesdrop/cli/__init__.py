"""The command line: `bayesdrop demo`, `audit`, `experiments`, `fit`, `predict`, `recommend` and more."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from bayesdrop.cli.stopping import clean_stops
from bayesdrop.version import __version__

__all__ = ["build_app", "main"]


def build_app() -> Any:
    """The typer application. Its commands import what they need, torch too, when they run."""
    typer = _typer()
    # Imported only now, since each declares its options with typer.
    from bayesdrop.cli.audit import audit
    from bayesdrop.cli.demo import demo
    from bayesdrop.cli.desk_demo import desk_demo
    from bayesdrop.cli.experiments import experiments
    from bayesdrop.cli.explain import explain
    from bayesdrop.cli.export import export
    from bayesdrop.cli.inspect import inspect
    from bayesdrop.cli.recommend import recommend
    from bayesdrop.cli.serve import people, refit, serve
    from bayesdrop.cli.tables import evaluate, fit, predict

    app = typer.Typer(
        name="bayesdrop",
        help="Honest uncertainty for any PyTorch network through Bayesian dropout.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
    )

    def print_version(asked: bool) -> None:
        if asked:
            typer.echo(__version__)
            raise typer.Exit

    version_option = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Print the version."
    )

    @app.callback()  # type: ignore[untyped-decorator, unused-ignore]
    def start(version: bool = version_option) -> None:
        """Honest uncertainty for any PyTorch network through Bayesian dropout."""

    def version() -> None:
        """Print the version."""
        typer.echo(__version__)

    tables = (inspect, fit, predict, evaluate, explain, export)
    for command in (demo, audit, *tables, serve, refit, people, desk_demo, version):
        app.command()(command)
    app.add_typer(experiments, name="experiments")
    app.add_typer(recommend, name="recommend")
    return app


def main() -> None:
    """The console entry point. Exits with 2 where something must be installed or put right first."""
    with clean_stops():
        try:
            build_app()()
        except ImportError as error:
            from bayesdrop.errors import MissingExtra

            if not isinstance(error, MissingExtra):
                raise
            print(error, file=sys.stderr)
            raise SystemExit(2) from error


def _typer() -> Any:
    try:
        return importlib.import_module("typer")
    except ImportError:
        # Imported only now, since it imports torch, which help and version do without.
        from bayesdrop.errors import require

        return require("typer", extra="cli", owner="The command line")
