"""`bayesdrop desk-demo`: a desk to try, with two models, simulated callers and a week of history."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from bayesdrop.cli.printing import plain_errors, print_safely

__all__ = ["desk_demo"]


def desk_demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep models and labels here, and go on from them; nothing is kept if left out."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1, max=65534, help="Port of the digits; that of the table is the next one.")
    ] = 8080,
    traffic: Annotated[
        float, typer.Option(min=0, help="Seconds between simulated requests; 0 for none.")
    ] = 5.0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the addresses.")] = False,
) -> None:
    """Serve two small models with simulated callers, and open the desk: handwritten digits, and a table."""
    with plain_errors(), ExitStack() as stack:
        from bayesdrop.errors import require

        for module in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "jinja2", "PIL", "pandas", "sklearn"):
            require(module, extra="serve", owner="bayesdrop desk-demo")
        require("matplotlib.figure", extra="plot", owner="bayesdrop desk-demo")
        from bayesdrop.serve.demo.show import show

        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bayesdrop-desk-")))
        try:
            show(place, port=port, traffic=traffic, browser=not no_browser, say=print_safely)
        except KeyboardInterrupt:
            print_safely("Stopped.")
