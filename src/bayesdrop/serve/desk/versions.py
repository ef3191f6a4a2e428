"""Versions of the model: which answers, how they compare, a button to train the next one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from bayesdrop.serve.auth import Caller, session_with
from bayesdrop.serve.desk.pages import Message, back_to, page
from bayesdrop.serve.learning import Busy
from bayesdrop.serve.routes.speech import errors_told
from bayesdrop.tables.written import written

router = APIRouter(prefix="/desk/versions")

Admin = Annotated[Caller, Depends(session_with("admin"))]


@router.get("")
async def versions(
    request: Request, caller: Annotated[Caller, Depends(session_with("reader"))]
) -> HTMLResponse:
    """Every version, the newest first, and what the last refit did."""
    return await _page(request, caller)


@router.post("/refit", response_model=None)
async def refit(
    request: Request, caller: Admin, force: Annotated[bool, Form()] = False
) -> HTMLResponse | RedirectResponse:
    """Train on the old data and the labels."""
    learning = request.app.state.service.learning
    try:
        with errors_told():
            await asyncio.to_thread(learning.check)
            learning.start(force=force, person_id=caller.person.id)
    except Busy as error:
        return await _page(request, caller, Message(str(error), "bad"), 409)
    except HTTPException as error:
        return await _page(request, caller, Message(str(error.detail), "bad"), error.status_code)
    return back_to("/desk/versions")


@router.post("/activate", response_model=None)
async def activate(
    request: Request, caller: Admin, version: Annotated[int, Form(ge=1, le=10**9)]
) -> HTMLResponse | RedirectResponse:
    """Let another version answer."""
    service = request.app.state.service
    found = await asyncio.to_thread(service.store.versions.numbered, service.registry.name, version)
    if found is None:
        raise HTTPException(404, f"there is no version {version}")
    try:
        with errors_told():
            await asyncio.to_thread(service.activate, found, caller.person.id, "chosen at the desk")
    except HTTPException as error:
        return await _page(request, caller, Message(str(error.detail), "bad"), error.status_code)
    return back_to("/desk/versions")


async def _page(
    request: Request, caller: Caller, message: Message | None = None, status: int = 200
) -> HTMLResponse:
    service = request.app.state.service
    found, counts = await asyncio.to_thread(
        lambda: (service.store.versions.all(service.registry.name), service.store.overview.counts())
    )
    return page(
        request,
        "versions.html",
        caller,
        "/desk/versions",
        status=status,
        versions=[(one, _compared(one.comparison)) for one in found],
        refit=service.learning.status(),
        counts=counts,
        message=message,
    )


#: measures as people call them, and whether more is better
_MEASURES = {
    "accuracy": "accuracy",
    "log_score": "log score",
    "rmse": "root mean squared error",
    "coverage": "coverage",
}
_PARTS = {"held_out": "held-out rows", "random": "random items"}


def _compared(comparison: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Measures of a version beside those of the one it was made from: what, old, new."""
    trials = (comparison or {}).get("trials")
    found = []
    for part, trial in trials.items() if isinstance(trials, dict) else ():
        old, new = trial.get("old"), trial.get("new")
        if not isinstance(old, dict) or not isinstance(new, dict):
            continue
        for name in old:
            if name in new:
                what = f"{_MEASURES.get(name, name)}, {_PARTS.get(part, part)}"
                found.append((what, _number(old[name]), _number(new[name])))
    return found


def _number(value: Any) -> str:
    return written(float(value), digits=4) if isinstance(value, int | float) else "-"
