"""The command line: `bayesdrop demo`, `audit`, `experiments`, `fit`, `predict`, `evaluate`, `version`."""

from __future__ import annotations

import sys
from typing import Any

from bayesdrop.cli.audit import add_audit
from bayesdrop.cli.demo import add_demo
from bayesdrop.cli.experiments import add_experiments
from bayesdrop.cli.tables import add_tables
from bayesdrop.errors import MissingExtra, require

__all__ = ["build_app", "main"]


def build_app() -> Any:
    """The typer application. Its commands import what they need when they run."""
    typer = require("typer", extra="cli", owner="The command line")
    app = typer.Typer(
        name="bayesdrop",
        help="Honest uncertainty for any PyTorch network through Bayesian dropout.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
    )
    add_demo(app, typer)
    add_audit(app, typer)
    add_experiments(app, typer)
    add_tables(app, typer)

    @app.command()  # type: ignore[untyped-decorator, unused-ignore]
    def version() -> None:
        """Print the version."""
        from bayesdrop.version import __version__

        typer.echo(__version__)

    return app


def main() -> None:
    """The console entry point. Exits with 2 where something must be installed or put right first."""
    try:
        build_app()()
    except MissingExtra as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
