"""`bayesdrop audit`: what is random in a model, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["audit"]


def audit(
    target: Annotated[
        str, typer.Argument(help="package.module:function that returns a model, or (model, inputs).")
    ],
) -> None:
    """List what is random in a model, what is not, and why."""
    from bayesdrop.audit import audit_target
    from bayesdrop.errors import require

    try:
        report = audit_target(target, directory=Path.cwd())
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint="TARGET") from error
    require("rich.console", extra="cli", owner="bayesdrop audit").Console().print(report)
