"""The pages of the desk."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from bayesdrop.serve.auth import Caller, session_with
from bayesdrop.serve.desk.pages import render

router = APIRouter(prefix="/desk", include_in_schema=False)


@router.get("")
async def front(request: Request, caller: Annotated[Caller, Depends(session_with("reader"))]) -> HTMLResponse:
    """How much waits."""
    counts = await asyncio.to_thread(request.app.state.service.store.overview.counts)
    return render(request, "front.html", counts=counts, person=caller.person, csrf=caller.csrf)
