"""Who calls, and what they may do: tokens for programs, cookies with CSRF protection for browsers."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hmac import compare_digest
from time import monotonic
from typing import TYPE_CHECKING

from fastapi import HTTPException, Request

from bayesdrop.serve.store.people import Session
from bayesdrop.serve.store.records import Person, Role

if TYPE_CHECKING:
    from bayesdrop.serve.store import Store

__all__ = ["COOKIE", "Caller", "Guard", "NeedsLogin", "guard_of", "may", "session_with"]

COOKIE = "bayesdrop_session"
#: seconds for which it is remembered whose token it is; a token that was taken away works that much longer
_REMEMBERED = 5.0
_MOST_REMEMBERED = 10_000
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Attributes:
        person: in the store.
        session: the login, for browsers.
    """

    person: Person
    session: Session | None = None

    @property
    def csrf(self) -> str:
        """What forms and scripts of a page must send back."""
        return "" if self.session is None else self.session.csrf


class NeedsLogin(Exception):
    """A page was asked for by somebody who is not logged in."""


class Guard:
    """Tells callers apart.

    Where nobody has a token, everybody who reaches the server is the local person, an admin: the command
    refuses to listen on an address that others reach before there is a token.

    Args:
        store: where people are.
        session_seconds: how long a login lasts.
    """

    def __init__(self, store: Store, session_seconds: float) -> None:
        self._store, self.session_seconds = store, session_seconds
        self._remembered: dict[str, tuple[float, Person | None]] = {}
        self._open: tuple[float, Person | None] = (0.0, None)

    async def open_to(self) -> Person | None:
        """The local person, if everybody is let in; None where tokens are needed."""
        until, person = self._open
        if until > monotonic():
            return person
        people = self._store.people
        needs_token = await asyncio.to_thread(people.have_tokens)
        person = None if needs_token else await asyncio.to_thread(people.local)
        self._open = (monotonic() + _REMEMBERED, person)
        return person

    def forget(self) -> None:
        """Look everything up again: a token was given out or taken away."""
        self._remembered.clear()
        self._open = (0.0, None)

    async def by_token(self, token: str) -> Person | None:
        """Whose token it is."""
        until, person = self._remembered.get(token, (0.0, None))
        if until > monotonic():
            return person
        person = await asyncio.to_thread(self._store.people.by_token, token)
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        if person is not None:
            self._remembered[token] = (monotonic() + _REMEMBERED, person)
        return person

    async def caller(self, request: Request) -> Caller | None:
        """Who sent a request; None if it is nobody known."""
        token = _token_in(request.headers.get("authorization", ""))
        if token is not None:
            person = await self.by_token(token)
            return None if person is None else Caller(person)
        session = await self.session(request)
        if session is not None:
            return session
        local = await self.open_to()
        return None if local is None else Caller(local)

    async def session(self, request: Request) -> Caller | None:
        """Who is logged in with the cookie of a request."""
        cookie = request.cookies.get(COOKIE)
        if not cookie:
            return None
        found = await asyncio.to_thread(self._store.people.by_cookie, cookie)
        if found is None or (not found[0].has_token and await self.open_to() is None):
            # The local person's login ends with the first token that is given out.
            return None
        return Caller(*found)

    async def log_in(self, token: str) -> Session | None:
        """A login for whoever has the token."""
        person = await asyncio.to_thread(self._store.people.by_token, token)
        return None if person is None else await self.log_in_as(person)

    async def log_in_as(self, person: Person) -> Session:
        """A login for a person."""
        return await asyncio.to_thread(self._store.people.log_in, person, self.session_seconds)


def guard_of(request: Request) -> Guard:
    """The guard of the application that a request came to."""
    found: Guard = request.app.state.service.guard
    return found


def may(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency of routes: the caller, who must have this role or a higher one.

    Args:
        role: reader, labeller or admin.
    """

    async def allowed(request: Request) -> Caller:
        caller = await guard_of(request).caller(request)
        if caller is None:
            raise HTTPException(401, "a token is needed", {"WWW-Authenticate": 'Basic realm="bayesdrop"'})
        await _check(request, caller, role)
        return caller

    return allowed


def session_with(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency of pages: somebody logged in, who must have this role or a higher one.

    Raises `NeedsLogin`, which the application answers with a way to the login page. Where everybody is let
    in, the login page logs in the local person without asking.

    Args:
        role: reader, labeller or admin.
    """

    async def allowed(request: Request) -> Caller:
        caller = await guard_of(request).session(request)
        if caller is None:
            raise NeedsLogin
        await _check(request, caller, role)
        return caller

    return allowed


async def _check(request: Request, caller: Caller, role: Role) -> None:
    if not caller.person.may(role):
        raise HTTPException(403, f"this needs the role {role}")
    if caller.session is None or request.method in _SAFE:
        return
    sent = request.headers.get("x-csrf-token")
    if sent is None and request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    ):
        value = (await request.form()).get("csrf")
        sent = value if isinstance(value, str) else None
    if sent is None or not compare_digest(sent.encode(), caller.csrf.encode()):
        raise HTTPException(403, "the form has expired; load the page again")


def _token_in(header: str) -> str | None:
    """The token of an Authorization header: Bearer, or the password of Basic."""
    kind, _, rest = header.partition(" ")
    if kind.lower() == "bearer":
        return rest.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return None
