"""Learning: a refit beside the running server, in a process of its own, and what came of it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bayesdrop.processes import process_pool
from bayesdrop.serve.refit import RefitResult, check_refit, refit, refit_apart

if TYPE_CHECKING:
    from bayesdrop.serve.registry import Registry
    from bayesdrop.serve.settings import ServeSettings
    from bayesdrop.serve.store import Store

__all__ = ["Busy", "Learning"]

_log = logging.getLogger("bayesdrop.serve")


class Busy(Exception):
    """A refit is going on already."""


class Learning:
    """Refits of the model, one at a time. Training runs in another process, so that answers do not wait.

    Args:
        settings: of the server.
        store: with labels and versions.
        registry: of versions.
        done: is called when a new version may be active.
    """

    def __init__(
        self, settings: ServeSettings, store: Store, registry: Registry, done: Callable[[], Awaitable[None]]
    ) -> None:
        self._settings, self._store, self._registry, self._done = settings, store, registry, done
        self._task: asyncio.Task[None] | None = None
        self._status: dict[str, Any] = {"state": "none"}

    def check(self) -> None:
        """Raise where a refit is not possible."""
        check_refit(self._settings, self._registry.current.record)
        if next(iter(self._store.overview.labelled()), None) is None:
            raise ValueError("there are no labels to learn from.")

    def status(self) -> dict[str, Any]:
        """Of the last refit: "none", "running", "done" with its result, or "failed" with the reason."""
        return dict(self._status)

    def start(self, *, force: bool, person_id: int | None) -> None:
        """Begin a refit; raises `Busy`."""
        if self._task is not None and not self._task.done():
            raise Busy("a refit is going on already.")
        self._status = {"state": "running", "started": self._store.now()}
        self._task = asyncio.create_task(self._run(force, person_id))

    async def refit_quietly(self, person_id: int | None) -> None:
        """Begin a refit if it is possible and none is going on; nobody waits for it."""
        try:
            await asyncio.to_thread(self.check)
            self.start(force=False, person_id=person_id)
        except (Busy, ValueError) as error:
            _log.info("no refit: %s", error)

    async def finished(self) -> dict[str, Any]:
        """Wait for the refit that is going on."""
        if self._task is not None:
            await self._task
        return self.status()

    async def stop(self) -> None:
        """Wait for nothing: a refit that is going on is given up, and no half-written version is left."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, force: bool, person_id: int | None) -> None:
        started = self._status["started"]
        try:
            result = await self._apart(force, person_id)
            self._status = {"state": "done", "started": started, "result": asdict(result)}
            await self._done()
        except asyncio.CancelledError:
            self._status = {"state": "failed", "started": started, "error": "the server stopped"}
            raise
        except Exception as error:
            if not isinstance(error, ValueError | OSError):
                _log.exception("the refit failed")
            self._status = {"state": "failed", "started": started, "error": str(error) or repr(error)}

    async def _apart(self, force: bool, person_id: int | None) -> RefitResult:
        if not self._settings.refit_apart:
            return await asyncio.to_thread(
                refit, self._settings, self._store, force=force, person_id=person_id
            )
        # Processes start and end in a thread: both take a while.
        stack = ExitStack()
        pool = await asyncio.to_thread(stack.enter_context, process_pool(1))
        try:
            future = await asyncio.to_thread(pool.submit, refit_apart, self._settings, force, person_id)
            result = await asyncio.wrap_future(future)
        except BaseException:
            await asyncio.to_thread(stack.__exit__, *sys.exc_info())
            raise
        await asyncio.to_thread(stack.close)
        return result
