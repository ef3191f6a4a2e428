"""render(): a page from its template, everything in it escaped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

if TYPE_CHECKING:
    from bayesdrop.serve.auth import Caller

__all__ = ["Message", "back_to", "message_of", "page", "render", "told_time"]


@dataclass(frozen=True)
class Message:
    """What is said on top of a page."""

    text: str
    kind: str = ""  #: "", "good" or "bad"
    link: str = ""


@cache
def _environment() -> Environment:
    folder = Path(__file__).parent / "templates"
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["time"] = told_time
    return made


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


def page(
    request: Request, template: str, caller: Caller, here: str, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page for somebody who is logged in, with the bar on top.

    Args:
        request: that it answers.
        template: a file in `templates`.
        caller: who looks at it.
        here: the address in the bar that it belongs to.
        status: of the answer.
        values: what the template speaks of.
    """
    return render(
        request,
        template,
        status=status,
        person=caller.person,
        csrf=caller.csrf,
        here=here,
        may_label=caller.person.may("labeller"),
        is_admin=caller.person.may("admin"),
        **values,
    )


def back_to(address: str, said: str = "", **about: str) -> RedirectResponse:
    """The way to another page after something was done, and what is said there.

    Args:
        address: of the page.
        said: a word of `message_of`.
        about: further parts of the address.
    """
    asked = urlencode({name: value for name, value in {"said": said, **about}.items() if value})
    return RedirectResponse(f"{address}?{asked}" if asked else address, 303)


#: what addresses may ask pages to say: words of ours, never a text from an address
_MESSAGES = {
    "labelled": Message("Saved.", "good"),
    "skipped": Message("Skipped: somebody else gets it."),
    "undone": Message("Undone: here it is again."),
    "nothing": Message("There is nothing to undo."),
    "lost": Message("Your time for that item had run out and it went back to the queue: not saved.", "bad"),
    "changed": Message("You have labelled that item otherwise before: not saved. Undo that first.", "bad"),
    "wrong": Message("That is not one of the answers: not saved.", "bad"),
    "opinion": Message("A second person will be asked too.", "good"),
    "withdrawn": Message("Nobody is asked about this item any more."),
    "disagree": Message("Saved. You and somebody else see this item differently.", "bad"),
}


def message_of(said: str | None, item_id: str | None = None) -> Message | None:
    """What a page says for a word of its address; None for words that are not known.

    Args:
        said: the word.
        item_id: an item that it is about.
    """
    found = _MESSAGES.get(said or "")
    if found is None or not item_id:
        return found
    return Message(found.text, found.kind, f"/desk/items/{item_id}")


def told_time(seconds: float | None) -> str:
    """A time since 1970 as people read it, in UTC.

    >>> told_time(0.0)
    '1 Jan 1970, 00:00 UTC'
    """
    if seconds is None:
        return ""
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when.day} {when:%b %Y, %H:%M} UTC"
