"""Labels on their way out, and items on their way in. The routes under /v1 do the work."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from bayesdrop.serve.auth import Caller, session_with
from bayesdrop.serve.desk.pages import page

router = APIRouter(prefix="/desk/data")


@router.get("")
async def data(request: Request, caller: Annotated[Caller, Depends(session_with("reader"))]) -> HTMLResponse:
    """What can be taken away, and a place to bring files to."""
    service = request.app.state.service
    counts = await asyncio.to_thread(service.store.overview.counts)
    return page(
        request,
        "data.html",
        caller,
        "/desk/data",
        counts=counts,
        image=service.registry.current.model.kind == "image",
        target=service.target_name(),
    )
