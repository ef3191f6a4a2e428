"""What people and programs do with items: take, label, skip, undo; labels out and tasks in."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from io import StringIO
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from starlette.concurrency import iterate_in_threadpool

from bayesdrop.serve.auth import Caller, may
from bayesdrop.serve.routes.speech import collected, errors_told, json_body, reply, service_of
from bayesdrop.serve.store import LeaseLost
from bayesdrop.serve.store.ids import is_id
from bayesdrop.serve.transfer import csv_lines, item_as_dict, label_of_annotation, tasks_of

router = APIRouter(prefix="/v1")

Reader = Annotated[Caller, Depends(may("reader"))]
Labeller = Annotated[Caller, Depends(may("labeller"))]
Admin = Annotated[Caller, Depends(may("admin"))]
_T = TypeVar("_T")
#: without characters that a database cannot hold
Note = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]


class LabelBody(BaseModel):
    """A label: a class, or a number; `new_class` for a class that the model does not know."""

    model_config = ConfigDict(extra="forbid")
    value: StrictStr | StrictInt | StrictFloat
    note: Note = ""
    new_class: StrictBool = False


class NoteBody(BaseModel):
    """A remark."""

    model_config = ConfigDict(extra="forbid")
    note: Note = ""


class OpinionsBody(BaseModel):
    """How many people should speak."""

    model_config = ConfigDict(extra="forbid")
    count: Annotated[int, Field(ge=1, le=20)] = 2


async def _leased(work: Callable[[], _T]) -> _T:
    """Run something of the queue in a thread; a lost lease is a conflict."""
    try:
        return await asyncio.to_thread(work)
    except LeaseLost as error:
        raise HTTPException(409, str(error)) from error


def _checked(item_id: str) -> str:
    if not is_id(item_id):
        raise HTTPException(404, "there is no such item")
    return item_id


@router.post("/next")
async def next_item(request: Request, caller: Labeller) -> Response:
    """An item to label, with a lease; 204 if nothing is left."""
    queue = service_of(request).store.queue
    item = await asyncio.to_thread(queue.next_item, caller.person.id)
    return Response(status_code=204) if item is None else reply(item_as_dict(item))


@router.get("/items/{item_id}")
async def item(request: Request, item_id: str, caller: Reader) -> Response:
    """An item with all that is known of it."""
    found = await asyncio.to_thread(service_of(request).store.overview.item, _checked(item_id))
    if found is None:
        raise HTTPException(404, "there is no such item")
    return reply(item_as_dict(found))


@router.post("/items/{item_id}/label")
async def label(request: Request, item_id: str, body: LabelBody, caller: Labeller) -> Response:
    """Label an item that one was handed."""
    service = service_of(request)
    with errors_told():
        value = service.checked_label(body.value, new_class=body.new_class)
    queue, person = service.store.queue, caller.person.id
    found = await _leased(lambda: queue.label(_checked(item_id), person, value, note=body.note))
    return reply(item_as_dict(found))


@router.post("/items/{item_id}/skip")
async def skip(request: Request, item_id: str, caller: Labeller, body: NoteBody | None = None) -> Response:
    """Leave an item to others."""
    queue, note = service_of(request).store.queue, "" if body is None else body.note
    found = await _leased(lambda: queue.skip(_checked(item_id), caller.person.id, note=note))
    return reply(item_as_dict(found))


@router.post("/undo")
async def undo(request: Request, caller: Labeller) -> Response:
    """Take back the last label or skip; 204 if there is none."""
    found = await asyncio.to_thread(service_of(request).store.queue.undo, caller.person.id)
    return Response(status_code=204) if found is None else reply(item_as_dict(found))


@router.post("/items/{item_id}/opinions")
async def opinions(request: Request, item_id: str, body: OpinionsBody, caller: Labeller) -> Response:
    """Ask several people about an item."""
    store = service_of(request).store
    if await asyncio.to_thread(store.overview.item, _checked(item_id)) is None:
        raise HTTPException(404, "there is no such item")
    await asyncio.to_thread(lambda: store.queue.ask_opinions(item_id, body.count, person_id=caller.person.id))
    return reply({"item": item_id, "opinions": body.count})


@router.post("/items/{item_id}/withdraw")
async def withdraw(request: Request, item_id: str, caller: Admin) -> Response:
    """Ask nobody about an item any more."""
    store = service_of(request).store
    if await asyncio.to_thread(store.overview.item, _checked(item_id)) is None:
        raise HTTPException(404, "there is no such item")
    await asyncio.to_thread(lambda: store.queue.withdraw(item_id, person_id=caller.person.id))
    return reply({"item": item_id, "state": "withdrawn"})


@router.get("/overview")
async def overview(request: Request, caller: Reader) -> Response:
    """How much there is of everything, and what people did."""
    found = service_of(request).store.overview
    counts, people = await asyncio.to_thread(lambda: (found.counts(), found.per_person()))
    return reply({"counts": asdict(counts), "people": [asdict(one) for one in people]})


# out and in


@router.get("/labels")
async def labels(request: Request, caller: Reader, format: str = "label-studio") -> Response:
    """All labelled items: format=label-studio, json or csv."""
    service = service_of(request)
    found = service.store.overview.labelled()
    if format == "csv":
        lines: Iterator[str] = csv_lines(found, service.column_names())
        return StreamingResponse(iterate_in_threadpool(lines), media_type="text/csv; charset=utf-8")
    if format == "json":
        made: Iterator[Any] = (item_as_dict(one) for one in found)
    elif format == "label-studio":
        all_versions = await asyncio.to_thread(service.store.versions.all, service.registry.name)
        made = tasks_of(found, {one.id: one for one in all_versions})
    else:
        raise HTTPException(422, "format must be label-studio, json or csv")
    return StreamingResponse(iterate_in_threadpool(_array(made)), media_type="application/json")


def _array(values: Iterator[Any]) -> Iterator[str]:
    separator = "["
    for value in values:
        yield separator + json.dumps(value)
        separator = ",\n"
    yield "[]" if separator == "[" else "]"


@router.post("/import")
async def bring_in(request: Request, caller: Labeller) -> Response:
    """Items for the queue: tasks of Label Studio as JSON, whose annotations become labels; or a CSV.

    A column of a CSV that is called as the model's target, or "label", is the label.
    """
    service = service_of(request)
    if request.headers.get("content-type", "").startswith("text/csv"):
        body = await request.body()
        with errors_told():
            rows = await asyncio.to_thread(_csv_rows, body, service.target_name())
    else:
        payload, _ = await json_body(request)
        rows = _task_rows(payload)
    with errors_told():
        serving = service.registry.current
        ask = service.answering.ask(serving, {})
        given = {
            place: service.checked_label(row[1], new_class=False)
            for place, row in enumerate(rows)
            if row[1] is not None
        }
        about = {"route": "import", "person_id": caller.person.id, "queued": True}
        order = service.answering.order(serving, [row[0] for row in rows], ask, **about)
    _, part = await collected(service, order)

    def store() -> None:
        for place, value in given.items():
            service.store.queue.label(
                part.items[place], caller.person.id, value, source="import", needs_lease=False
            )

    await asyncio.to_thread(store)
    return reply({"items": part.items, "labels": len(given)})


def _task_rows(payload: Any) -> list[tuple[Any, Any]]:
    if not isinstance(payload, list) or not all(
        isinstance(task, dict) and isinstance(task.get("data"), dict) for task in payload
    ):
        raise HTTPException(422, 'the body must be a list of tasks, {"data": {...}}')
    rows = []
    for task in payload:
        annotations = task.get("annotations")
        found = [label_of_annotation(one) for one in annotations] if isinstance(annotations, list) else []
        given = [value for value, skipped in (one for one in found if one is not None) if not skipped]
        data = {name: value for name, value in task["data"].items() if name != "bayesdrop_item"}
        rows.append((data, given[-1] if given else None))
    return rows


def _csv_rows(body: bytes, target: str) -> list[tuple[Any, Any]]:
    try:
        reader = csv.DictReader(StringIO(body.decode("utf-8-sig")), strict=True)
        lines = [dict(line) for line in reader]
        names = list(reader.fieldnames or [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"the CSV cannot be read: {error}.") from error
    if len(set(names)) != len(names):
        raise ValueError("every column of the CSV must have its own name.")
    own = target if target in names else "label" if "label" in names else None
    rows = []
    for line in lines:
        if None in line or None in line.values():
            raise ValueError("every line of the CSV must have as many cells as its header.")
        value = line.pop(own) if own is not None else None
        rows.append((line, value or None))
    return rows
