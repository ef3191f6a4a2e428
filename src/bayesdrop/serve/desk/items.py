"""Items: lists of them, and all that is known of one."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from bayesdrop.serve.auth import Caller, session_with
from bayesdrop.serve.desk.pages import back_to, message_of, page
from bayesdrop.serve.desk.showing import show
from bayesdrop.serve.store import Item
from bayesdrop.serve.store.ids import is_id

router = APIRouter(prefix="/desk/items")

#: lists that can be chosen, and what they are called
_LISTS = {
    "all": "All",
    "queued": "Waiting",
    "done": "Done",
    "disagreeing": "Disagreement",
    "answered": "Answered alone",
    "withdrawn": "Withdrawn",
}
_PAGE = 50

Reader = Annotated[Caller, Depends(session_with("reader"))]
Labeller = Annotated[Caller, Depends(session_with("labeller"))]


@router.get("")
async def listed(request: Request, caller: Reader, which: str = "all", start: int = 0) -> HTMLResponse:
    """Fifty items of a list, the newest first."""
    if which not in _LISTS:
        raise HTTPException(404, "there is no such list")
    start = max(0, min(start, 10**9))
    service = request.app.state.service
    overview, model = service.store.overview, service.registry.current.model

    def read() -> list[Any]:
        if which == "disagreeing":
            found = list(islice(overview.labelled(disagreeing=True), start, start + _PAGE + 1))
        else:
            state = None if which == "all" else which
            found = overview.items(state=state, count=_PAGE + 1, offset=start)
        return [(item, show(item, model, now=0.0)) for item in found]

    rows = await asyncio.to_thread(read)
    return page(
        request,
        "items.html",
        caller,
        "/desk/items",
        rows=[(item, shown, _said(item)) for item, shown in rows[:_PAGE]],
        lists=_LISTS,
        which=which,
        start=start,
        following=start + _PAGE if len(rows) > _PAGE else None,
        before=max(0, start - _PAGE) if start else None,
    )


@router.get("/{item_id}")
async def one(request: Request, caller: Reader, item_id: str, said: str | None = None) -> HTMLResponse:
    """All that is known of an item: what versions said of it, and people."""
    service = request.app.state.service
    item = await _found(request, item_id)
    versions = await asyncio.to_thread(service.store.versions.all, service.registry.name)
    shown = await asyncio.to_thread(show, item, service.registry.current.model, now=0.0)
    own = any(one.person_id == caller.person.id for one in item.labels)
    # Who is still to be asked should not know what others said.
    blind = item.state == "queued" and not own and caller.person.may("labeller")
    return page(
        request,
        "item.html",
        caller,
        "/desk/items",
        item=item,
        shown=shown,
        blind=blind,
        versions={version.id: version.version for version in versions},
        answers=[(one, _answer_text(one.answer)) for one in item.predictions],
        message=message_of(said),
    )


@router.post("/{item_id}/opinion")
async def opinion(request: Request, caller: Labeller, item_id: str) -> RedirectResponse:
    """Ask one person more."""
    item = await _found(request, item_id)
    spoken = sum(not one.skipped for one in item.labels)
    queue = request.app.state.service.store.queue
    await asyncio.to_thread(queue.ask_opinions, item.id, max(1, spoken + 1), person_id=caller.person.id)
    return back_to(f"/desk/items/{item.id}", "opinion")


@router.post("/{item_id}/withdraw")
async def withdraw(
    request: Request,
    caller: Annotated[Caller, Depends(session_with("admin"))],
    item_id: str,
) -> RedirectResponse:
    """Ask nobody any more."""
    item = await _found(request, item_id)
    queue = request.app.state.service.store.queue
    await asyncio.to_thread(queue.withdraw, item.id, person_id=caller.person.id)
    return back_to(f"/desk/items/{item.id}", "withdrawn")


async def _found(request: Request, item_id: str) -> Item:
    overview = request.app.state.service.store.overview
    item: Item | None = await asyncio.to_thread(overview.item, item_id) if is_id(item_id) else None
    if item is None:
        raise HTTPException(404, "there is no such item")
    return item


def _said(item: Item) -> str:
    values = [str(label.value) for label in item.labels if not label.skipped]
    return " / ".join(dict.fromkeys(values))


def _answer_text(answer: dict[str, Any]) -> str:
    if "label" in answer:
        probs = answer.get("probs")
        best = max((prob for prob in probs if prob is not None), default=None) if probs else None
        return f"{answer['label']}" + (f" ({100 * best:.0f} %)" if best is not None else "")
    mean, lower, upper = (answer.get(name) for name in ("mean", "lower", "upper"))
    if isinstance(mean, int | float):
        ends = [f"{end:.4g}" if isinstance(end, int | float) else "unknown" for end in (lower, upper)]
        return f"{mean:.4g} ({ends[0]} to {ends[1]})"
    return str(mean)
