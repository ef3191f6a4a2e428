"""Logging in and out of the desk."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response

from bayesdrop.serve.auth import COOKIE, Caller, guard_of, session_with
from bayesdrop.serve.desk.pages import render
from bayesdrop.serve.store.people import Session

router = APIRouter(prefix="/desk", include_in_schema=False)


@router.get("/login")
async def page(request: Request) -> Response:
    """The form; where everybody is let in, the local person is logged in without one."""
    local = await guard_of(request).open_to()
    if local is not None:
        return _entered(request, await guard_of(request).log_in_as(local))
    return render(request, "login.html", failed=False)


@router.post("/login")
async def log_in(request: Request, token: Annotated[str, Form(max_length=200)]) -> Response:
    """A cookie for whoever has the token."""
    session = await guard_of(request).log_in(token)
    if session is None:
        return render(request, "login.html", status=401, failed=True)
    return _entered(request, session)


@router.post("/logout")
async def log_out(request: Request, caller: Annotated[Caller, Depends(session_with("reader"))]) -> Response:
    """End the login."""
    assert caller.session is not None
    people = request.app.state.service.store.people
    await asyncio.to_thread(people.log_out, caller.session.cookie)
    response = RedirectResponse("/desk/login", 303)
    response.delete_cookie(COOKIE, path="/")
    return response


def _entered(request: Request, session: Session) -> Response:
    response = RedirectResponse("/desk", 303)
    secure = request.url.scheme == "https"
    lasts = int(guard_of(request).session_seconds)
    # The cookie is sent by pages of this server alone, and no script can read it.
    response.set_cookie(
        COOKIE, session.cookie, max_age=lasts, path="/", httponly=True, samesite="strict", secure=secure
    )
    return response
