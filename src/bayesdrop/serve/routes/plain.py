"""POST /predict with rows of JSON; requests as they are stored, and answered once more from their record."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response

from bayesdrop.serve.adaptive import stretched_as
from bayesdrop.serve.answering import Order
from bayesdrop.serve.auth import Caller, may
from bayesdrop.serve.routes import label_studio
from bayesdrop.serve.routes.speech import (
    collected,
    errors_told,
    json_body,
    named,
    reply,
    service_of,
    streamed,
)
from bayesdrop.serve.served import Ask
from bayesdrop.serve.store.ids import is_id
from bayesdrop.serve.transfer import item_as_dict

router = APIRouter()

_PARAMETERS = ("num_draws", "seed", "level")


@router.post("/predict")
async def predict(request: Request, caller: Annotated[Caller, Depends(may("reader"))]) -> Response:
    """Answers of {"rows": [...], "num_draws"?, "seed"?, "level"?}; of tasks of Label Studio by their form."""
    payload, body = await json_body(request)
    if isinstance(payload, dict) and "tasks" in payload:
        return await label_studio.predict(request, caller, payload)
    rows = payload.get("rows") if isinstance(payload, dict) else payload
    if not isinstance(rows, list):
        raise HTTPException(422, 'the body must be {"rows": [...]}, or a list of rows')
    parameters = payload if isinstance(payload, dict) else {}
    wrong = sorted(set(parameters) - {"rows", *_PARAMETERS})
    if wrong:
        raise HTTPException(422, f"there is no parameter {wrong[0]!r}; there are {', '.join(_PARAMETERS)}")
    service = service_of(request)
    with errors_told():
        serving = service.registry.current
        ask = service.answering.ask(serving, parameters)
        about = {"route": "predict", "person_id": caller.person.id, **named(request, body)}
        order = service.answering.order(serving, rows, ask, **about)
    lines = "application/x-ndjson" in request.headers.get("accept", "")
    if lines:
        return await streamed(service, order, "", "\n", "\n", "application/x-ndjson")
    if len(rows) > service.settings.batch_rows:
        with errors_told():
            order = await service.answering.known(order)
        head = json.dumps(heading(order))[:-1] + ', "predictions": ['
        return await streamed(service, order, head, "]}", ", ", "application/json")
    order, part = await collected(service, order)
    pairs = zip(part.items, part.answers, strict=True)
    return reply({**heading(order), "predictions": [{"item": item, **answer} for item, answer in pairs]})


def heading(order: Order) -> dict[str, Any]:
    """What an answer can be reproduced by."""
    record = order.serving.record
    return {
        "model": {"name": record.name, "version": record.version, "digest": record.digest},
        "request": order.id,
        "parameters": parameters_of(order.ask),
    }


def parameters_of(ask: Ask) -> dict[str, Any]:
    """As they are sent and echoed."""
    level = {} if ask.level is None else {"level": ask.level}
    return {"num_draws": ask.num_draws, "seed": ask.seed, **level}


@router.get("/v1/requests/{request_id}")
async def stored(
    request: Request, request_id: str, caller: Annotated[Caller, Depends(may("reader"))]
) -> Response:
    """A request as it is stored, with its items, answers and labels."""
    found, record = await _found(request, request_id)
    ask = Ask(found.num_draws, found.seed, found.level)
    return reply(
        {
            "request": found.id,
            "route": found.route,
            "received": found.received,
            "model": {"name": record.name, "version": record.version, "digest": record.digest},
            "parameters": parameters_of(ask),
            "num_rows": found.num_rows,
            "items": [item_as_dict(item) for item in found.items],
        }
    )


@router.post("/v1/requests/{request_id}/replay")
async def replay(
    request: Request, request_id: str, caller: Annotated[Caller, Depends(may("reader"))]
) -> Response:
    """Answer a stored request once more, by the same version with the same draws, and compare."""
    found, record = await _found(request, request_id)
    service = service_of(request)
    ask = Ask(found.num_draws, found.seed, found.level)

    def again() -> list[dict[str, Any]]:
        model = service.registry.load(record).model
        said = model.predict([item.data for item in found.items], ask).rows()
        given = (item.predictions[0].answer for item in found.items)
        return [stretched_as(old, new) for old, new in zip(given, said, strict=True)]

    with errors_told():
        answers = await asyncio.to_thread(again)
    pairs = zip((item.predictions[0].answer for item in found.items), answers, strict=True)
    away = max((_difference(old, new) for old, new in pairs), default=0.0)
    largest = away if math.isfinite(away) else None
    return reply({"request": found.id, "largest_difference": largest, "predictions": answers})


async def _found(request: Request, request_id: str) -> tuple[Any, Any]:
    store = service_of(request).store
    found = await asyncio.to_thread(store.requests.get, request_id) if is_id(request_id) else None
    if found is None or found.model_id is None:
        raise HTTPException(404, "there is no such request")
    return found, await asyncio.to_thread(store.versions.get, found.model_id)


def _difference(old: Any, new: Any) -> float:
    """The largest difference of numbers, relative to their size where that is above 1.

    Infinite where a label or a decision is another one. Reasons are not compared: they round numbers.
    """
    if isinstance(new, Mapping):
        named = ((old.get(name), value) for name, value in new.items() if name != "reason")
        return max((_difference(*pair) for pair in named), default=0.0)
    if isinstance(new, list) and isinstance(old, list) and len(old) == len(new):
        return max((_difference(a, b) for a, b in zip(old, new, strict=True)), default=0.0)
    if isinstance(new, float) and isinstance(old, float | int):
        return abs(new - old) / max(1.0, abs(old))
    return 0.0 if old == new else math.inf
