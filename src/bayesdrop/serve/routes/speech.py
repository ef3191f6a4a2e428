"""What all protocols share: bodies of JSON, errors as they are told, names that callers give requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NoReturn

from fastapi import HTTPException, Request
from fastapi.responses import Response, StreamingResponse

from bayesdrop.serve.answering import Order, StoredRows
from bayesdrop.serve.batching import Full, Stopping
from bayesdrop.serve.service import Service
from bayesdrop.serve.store import KeyTaken

__all__ = ["collected", "errors_told", "json_body", "named", "reply", "service_of", "streamed"]

#: bytes of a body from which on it is parsed in a thread, so that nobody else waits for it
_LARGE = 2**16
_LONGEST_KEY = 200


def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    found: Service = request.app.state.service
    return found


async def json_body(request: Request) -> tuple[Any, bytes]:
    """The body of a request as JSON, and as it came."""
    body = await request.body()
    try:
        value = _parsed(body) if len(body) < _LARGE else await asyncio.to_thread(_parsed, body)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise HTTPException(400, f"the body must be JSON: {said}") from error
    return value, body


def _parsed(body: bytes) -> Any:
    return json.loads(body, parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write null for a missing number")


def named(request: Request, body: bytes) -> dict[str, Any]:
    """The name that a caller gave a request, in Idempotency-Key, and the digest of what it is of."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return {}
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
        raise HTTPException(400, f"Idempotency-Key must be 1 to {_LONGEST_KEY} printable characters")
    return {"key": key, "body_digest": sha256(body).hexdigest()}


@contextmanager
def errors_told() -> Iterator[None]:
    """A context: what went wrong becomes an answer that says so."""
    try:
        yield
    except Full as error:
        raise HTTPException(
            429, "too much waits to be answered", {"Retry-After": str(error.retry_after)}
        ) from error
    except Stopping as error:
        raise HTTPException(503, "the server is about to stop", {"Retry-After": "5"}) from error
    except KeyTaken as error:
        raise HTTPException(409, str(error)) from error
    except (ValueError, TypeError) as error:
        raise HTTPException(422, str(error)) from error


async def collected(service: Service, order: Order) -> tuple[Order, StoredRows]:
    """All answers of an order."""
    with errors_told():
        order = await service.answering.known(order)
        await service.answering.check(order)
        try:
            parts = [part async for part in service.answering.parts(order)]
        except KeyTaken:
            # The same request, sent twice at once: the other one was faster, and has been answered.
            order = await service.answering.known(order)
            parts = [part async for part in service.answering.parts(order)]
    return order, StoredRows(
        [one for part in parts for one in part.items], [a for part in parts for a in part.answers]
    )


def reply(value: Any, status: int = 200) -> Response:
    """JSON."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


async def streamed(
    service: Service, order: Order, head: str, tail: str, separator: str, media_type: str
) -> Response:
    """An answer that is sent while it is made, so that a long one is never held as a whole.

    What is wrong with any row is told before the first byte. If the server is stopped meanwhile, the answer
    ends in the middle: it is no whole JSON, and the connection is closed without its last chunk.

    Args:
        service: that answers.
        order: what is asked.
        head: sent first.
        tail: sent last.
        separator: between rows.
        media_type: of the answer.
    """
    with errors_told():
        order = await service.answering.known(order)
        await service.answering.check(order)
        parts = service.answering.parts(order)
        # The first part before the status: a full queue, or a bad row, is an error and no answer.
        first = await anext(parts)

    async def pieces() -> AsyncIterator[str]:
        yield head
        yield await asyncio.to_thread(_rows, first, separator)
        async for part in parts:
            yield separator + await asyncio.to_thread(_rows, part, separator)
        yield tail

    return StreamingResponse(pieces(), media_type=media_type)


def _rows(part: StoredRows, separator: str) -> str:
    pairs = zip(part.items, part.answers, strict=True)
    return separator.join(json.dumps({"item": item, **answer}, allow_nan=False) for item, answer in pairs)
