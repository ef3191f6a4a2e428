"""Shield: what every request must pass before a route sees it, and what every answer carries."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bayesdrop.serve.settings import ServeSettings

__all__ = ["HEADERS", "BodyTooLarge", "RateLimit", "Shield"]

#: pages may load what this server has, and nothing else; no page may frame them
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With "no-referrer" browsers send forms with the origin "null", which is refused below.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_MOST_CALLERS = 10_000


class BodyTooLarge(HTTPException):
    """A body is larger than allowed.

    Args:
        most: bytes that are.
    """

    def __init__(self, most: int) -> None:
        super().__init__(413, f"a request may have {most} bytes at most")


class RateLimit:
    """A bucket of requests for each caller, which fills up again at a steady rate.

    Args:
        rate: requests a second; 0 for any number.
        burst: requests that a full bucket has.
        clock: seconds.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str) -> float:
        """Seconds that a caller must wait before the next request; 0 if this one is within the limit."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, then = self._buckets.pop(caller, (float(self._burst), now))
        left = min(float(self._burst), left + (now - then) * self._rate)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate


class Shield:
    """Checks the name that the server was called by, where a page that calls comes from, sizes and rates.

    A page of another site can make a browser send requests to this machine, under any name that leads here:
    both are refused.

    Args:
        app: what comes behind.
        settings: limits, and names of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app, self._most = app, settings.max_body
        named = {settings.host, *settings.allowed_hosts, "127.0.0.1", "localhost", "::1", "testserver"}
        self._names = {name.lower() for name in named}
        self._any_name = "*" in self._names
        self._limit = RateLimit(settings.rate, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise BodyTooLarge(self._most)
            return message

        async def shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message.get("headers", [])}
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [
                    *message.get("headers", []),
                    *(pair for pair in own if pair[0] not in present),
                ]
            await send(message)

        await self._app(scope, counted, shielded)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str, dict[str, str]] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._any_name and _name_of(host) not in self._names:
            return 421, "this server does not go by that name; see --allow-host", {}
        origin = headers.get(b"origin")
        if (
            origin is not None
            and scope["method"].encode() not in _SAFE
            and urlsplit(origin.decode("latin-1")).netloc.lower() != host.lower()
        ):
            return 403, "requests of other sites' pages are not accepted", {}
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return 400, "content-length must be a number", {}
        if int(length) > self._most:
            return 413, f"a request may have {self._most} bytes at most", {}
        client = scope.get("client")
        caller = headers.get(b"authorization", b"").decode("latin-1") or (client[0] if client else "")
        wait = self._limit.wait(caller)
        if wait:
            return 429, "too many requests", {"retry-after": str(int(wait) + 1)}
        return None


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


async def _refuse(send: Send, status: int, why: str, extra: dict[str, str]) -> None:
    body = json.dumps({"error": why}).encode()
    headers: dict[str, Any] = {
        **HEADERS,
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    pairs = [(name.encode(), value.encode()) for name, value in {**headers, **extra}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
