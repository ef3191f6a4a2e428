"""The queue: one item at a time, and what a person says of it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from bayesdrop.serve.auth import Caller, session_with
from bayesdrop.serve.desk import charts
from bayesdrop.serve.desk.pages import back_to, message_of, page
from bayesdrop.serve.desk.showing import show
from bayesdrop.serve.store import Item, LeaseLost
from bayesdrop.serve.store.ids import is_id

router = APIRouter(prefix="/desk")

Labeller = Annotated[Caller, Depends(session_with("labeller"))]
ItemId = Annotated[str, Form(max_length=32)]
Note = Annotated[str, Form(max_length=2000)]


@router.get("")
async def front(
    request: Request,
    caller: Annotated[Caller, Depends(session_with("reader"))],
    said: str | None = None,
    item: str | None = None,
) -> HTMLResponse:
    """The next item of whoever asks, with a lease."""
    # Whoever labels will want to see the dashboard.
    charts.get_ready()
    service = request.app.state.service
    store, serving = service.store, service.registry.current

    def read() -> tuple[Item | None, Any, int]:
        mine = None
        if caller.person.may("labeller"):
            mine = store.queue.next_item(caller.person.id)
        done = [one.labels for one in store.overview.per_person() if one.person == caller.person.name]
        return mine, store.overview.counts(), done[0] if done else 0

    mine, counts, done = await asyncio.to_thread(read)
    shown = None
    if mine is not None:
        shown = await asyncio.to_thread(show, mine, serving.model, now=store.now())
    return page(
        request,
        "queue.html",
        caller,
        "/desk",
        shown=shown,
        counts=counts,
        mine=done,
        version=serving.record.version,
        question=_question(serving.model),
        message=message_of(said, item if item and is_id(item) else None),
    )


@router.post("/label")
async def label(
    request: Request,
    caller: Labeller,
    item: ItemId,
    value: Annotated[str, Form(max_length=1000)],
    note: Note = "",
) -> RedirectResponse:
    """Keep a label."""
    service = request.app.state.service
    try:
        given = service.checked_label(value, new_class=False)
    except ValueError:
        return back_to("/desk", "wrong")
    try:
        told = await asyncio.to_thread(
            service.store.queue.label, item, caller.person.id, given, note=note.strip()
        )
    except LeaseLost:
        return back_to("/desk", await _why_lost(service, item, caller))
    if told.disagreement:
        return back_to("/desk", "disagree", item=told.id)
    return back_to("/desk", "labelled", item=told.id)


@router.post("/skip")
async def skip(request: Request, caller: Labeller, item: ItemId, note: Note = "") -> RedirectResponse:
    """Pass an item on."""
    queue = request.app.state.service.store.queue
    try:
        await asyncio.to_thread(queue.skip, item, caller.person.id, note=note.strip())
    except LeaseLost:
        return back_to("/desk", "lost")
    return back_to("/desk", "skipped")


@router.post("/undo")
async def undo(request: Request, caller: Labeller) -> RedirectResponse:
    """Take back the last label or skip."""
    queue = request.app.state.service.store.queue
    found = await asyncio.to_thread(queue.undo, caller.person.id)
    return back_to("/desk", "nothing" if found is None else "undone")


@router.post("/opinion")
async def opinion(request: Request, caller: Labeller, item: ItemId) -> RedirectResponse:
    """Ask one person more about an item than were asked."""
    store = request.app.state.service.store
    found = await asyncio.to_thread(store.overview.item, item) if is_id(item) else None
    if found is None:
        return back_to("/desk", "lost")
    spoken = sum(not one.skipped for one in found.labels)
    await asyncio.to_thread(
        store.queue.ask_opinions,
        found.id,
        max(2, min(found.opinions, spoken) + 1),
        person_id=caller.person.id,
    )
    return back_to("/desk", "opinion")


async def _why_lost(service: Any, item_id: str, caller: Caller) -> str:
    found = await asyncio.to_thread(service.store.overview.item, item_id) if is_id(item_id) else None
    said = () if found is None else found.labels
    return "changed" if any(one.person_id == caller.person.id for one in said) else "lost"


def _question(model: Any) -> str:
    if model.kind == "image":
        return "What is this?"
    target = model.about.get("target", "") if model.kind == "table" else ""
    return f"What is {target}?" if target else "What is right?"
