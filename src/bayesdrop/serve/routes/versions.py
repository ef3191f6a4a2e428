"""Versions of the model: which there are, a refit, another one made active; and what is counted."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, StrictBool

from bayesdrop.serve.auth import Caller, may
from bayesdrop.serve.learning import Busy
from bayesdrop.serve.routes.speech import errors_told, reply, service_of
from bayesdrop.serve.store import SavedModel

router = APIRouter()

Admin = Annotated[Caller, Depends(may("admin"))]


class RefitBody(BaseModel):
    """How to refit: `force` makes the new version active whether it is better or not."""

    model_config = ConfigDict(extra="forbid")
    force: StrictBool = False


@router.get("/v1/versions")
async def versions(request: Request, caller: Annotated[Caller, Depends(may("reader"))]) -> Response:
    """Every version, the newest first."""
    service = service_of(request)
    found = await asyncio.to_thread(service.store.versions.all, service.registry.name)
    return reply({"name": service.registry.name, "versions": [_as_dict(one) for one in found]})


@router.post("/v1/versions/{version}/activate")
async def activate(request: Request, version: int, caller: Admin) -> Response:
    """Make a version the one that answers; requests that were accepted before keep theirs."""
    service = service_of(request)
    found = await asyncio.to_thread(service.store.versions.numbered, service.registry.name, version)
    if found is None:
        raise HTTPException(404, f"there is no version {version}")
    with errors_told():
        made = await asyncio.to_thread(service.activate, found, caller.person.id, "asked for")
    service.rescore()
    return reply(_as_dict(made))


@router.post("/v1/versions/back")
async def back(request: Request, caller: Admin) -> Response:
    """One step back: the version that the active one was made from."""
    service = service_of(request)
    before = await asyncio.to_thread(service.store.versions.before, service.registry.current.record)
    if before is None:
        raise HTTPException(409, "there is no version before this one")
    with errors_told():
        made = await asyncio.to_thread(service.activate, before, caller.person.id, "one step back")
    service.rescore()
    return reply(_as_dict(made))


@router.post("/v1/refit", status_code=202)
async def refit(request: Request, caller: Admin, body: RefitBody | None = None) -> Response:
    """Start to train on the old data and the labels; GET the same address to see how it goes."""
    learning = service_of(request).learning
    try:
        with errors_told():
            await asyncio.to_thread(learning.check)
            learning.start(force=body is not None and body.force, person_id=caller.person.id)
    except Busy as error:
        raise HTTPException(409, str(error)) from error
    return reply(learning.status(), 202)


@router.get("/v1/refit")
async def refit_status(request: Request, caller: Annotated[Caller, Depends(may("reader"))]) -> Response:
    """What the last refit did, or is doing."""
    return reply(service_of(request).learning.status())


@router.get("/metrics")
async def metrics(request: Request, caller: Annotated[Caller, Depends(may("reader"))]) -> Response:
    """Counters for Prometheus; Label Studio, which asks for JSON, is given {} as it expects."""
    accepted = request.headers.get("accept", "")
    if "application/json" in accepted and "text/plain" not in accepted:
        return reply({})
    service = service_of(request)
    counts = await asyncio.to_thread(service.store.overview.counts)
    states = ("queued", "leased", "done", "withdrawn")
    gauges: dict[str, Any] = {
        "bayesdrop_items": {(("state", state),): getattr(counts, state) for state in states},
        "bayesdrop_rows_waiting": {(): service.batcher.rows_waiting},
        "bayesdrop_model_version": {
            (("model", service.registry.name),): service.registry.current.record.version
        },
    }
    return Response(service.metrics.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")


def _as_dict(model: SavedModel) -> dict[str, Any]:
    names = ("version", "kind", "task", "digest", "active", "parent", "created", "activated")
    shown = {name: getattr(model, name) for name in names}
    return {**shown, "about": model.about, "comparison": model.comparison}
