"""render(): a page from its template, everything in it escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

__all__ = ["render"]


@cache
def _environment() -> Environment:
    folder = Path(__file__).parent / "templates"
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page.

    Args:
        request: that it answers.
        template: a file in `templates`.
        status: of the answer.
        values: what the template speaks of, besides `model`, the name of what is served.
    """
    name = request.app.state.service.settings.model_name
    return HTMLResponse(_environment().get_template(template).render(model=name, **values), status)
