"""Service: the parts of a running server, and how they start and stop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bayesdrop.errors import must
from bayesdrop.serve.adaptive import Adaptive
from bayesdrop.serve.answering import Answering
from bayesdrop.serve.auth import Guard
from bayesdrop.serve.batching import BatchedJob, Batcher, Full, Stopping
from bayesdrop.serve.learning import Learning
from bayesdrop.serve.metrics import Metrics
from bayesdrop.serve.registry import Registry, Serving
from bayesdrop.serve.served import BadRow
from bayesdrop.serve.store import Item, NewPrediction, SavedModel, Store

if TYPE_CHECKING:
    from bayesdrop.serve.settings import ServeSettings

__all__ = ["Service"]

_log = logging.getLogger("bayesdrop.serve")


class Service:
    """What routes work with; `request.app.state.service`.

    Attributes:
        settings: how it runs.
        store: what it remembers.
        guard: who may do what.
        registry: the versions of the model; `registry.current` answers.
        batcher: runs rows.
        answering: from rows to stored answers.
        learning: refits.
        metrics: what it counts.
        adaptive: stretches intervals, where asked for.

    Args:
        settings: how it runs.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.store = Store(settings.url, lease=settings.lease, random_every=settings.random_every)
        self.guard = Guard(self.store, settings.session)
        self.registry = Registry(settings, self.store)
        self.batcher = Batcher(
            self.store.add,
            workers=settings.workers,
            batch_rows=settings.batch_rows,
            linger=settings.linger,
            queue_rows=settings.queue_rows,
            told=self.metrics.answered,
        )
        wanted = settings.adaptive or settings.adaptive_by is not None
        self.adaptive = Adaptive(self.store, group=settings.adaptive_by) if wanted else None
        self.answering = Answering(settings, self.store, self.registry, self.batcher, self.adaptive)
        self.learning = Learning(settings, self.store, self.registry, self._learned)
        self._following: asyncio.Task[None] | None = None
        self._rescoring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the model, and look from now on for versions that other processes make active."""
        await asyncio.to_thread(self.registry.open)
        if self.adaptive is not None:
            await asyncio.to_thread(self.adaptive.refresh)
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Finish what was accepted."""
        await self.learning.stop()
        for task in (self._following, self._rescoring):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        if not await asyncio.to_thread(self.batcher.stop, self.settings.stop_after):
            _log.warning("stopped after %g s with requests unanswered", self.settings.stop_after)
        self.store.close()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.settings.poll)
            try:
                await self._learned()
                await asyncio.to_thread(self.store.queue.release_expired)
                if self.adaptive is not None:
                    await asyncio.to_thread(self.adaptive.refresh)
            except Exception:
                # A database that is away for a moment must not end the looking.
                _log.exception("looking for new versions failed")

    async def _learned(self) -> None:
        """Answer with the version that is active by now, and let it order the queue."""
        if await asyncio.to_thread(self.registry.follow):
            self.rescore()

    def activate(self, record: SavedModel, person_id: int | None, why: str) -> SavedModel:
        """Answer with another version from now on. It is loaded first: if that fails, nothing changes."""
        self.registry.load(record)
        made = self.store.versions.activate(record, person_id=person_id, why=why)
        self.registry.use(made)
        return made

    # what waits, seen by a new version

    def rescore(self) -> None:
        """Ask the version that answers now about all items that wait, in the background."""
        if self._rescoring is not None:
            self._rescoring.cancel()
        self._rescoring = asyncio.create_task(self._rescore())

    async def _rescore(self) -> None:
        serving = self.registry.current
        waiting = await asyncio.to_thread(lambda: list(self.store.overview.queued()))
        todo = [item for item in waiting if item.predictions[-1].model_id != serving.record.id]
        for start in range(0, len(todo), self.settings.batch_rows):
            try:
                await self.rescored(todo[start : start + self.settings.batch_rows], serving)
            except (BadRow, Full):
                # A row that the new version cannot read stays where it is.
                _log.warning("some items that wait were not scored anew")
            except Stopping:
                return

    async def rescored(self, items: Sequence[Item], serving: Serving) -> list[Item]:
        """What a version says of items that are there, stored with them."""
        model, ask = serving.model, self.answering.ask(serving, {})
        self.batcher.reserve(len(items))
        try:
            done = self.batcher.submit(BatchedJob(model, [model.row(item.data) for item in items], ask, None))
            answers = (await asyncio.shield(asyncio.wrap_future(done))).answers
        finally:
            self.batcher.release(len(items))
        new = []
        for place, (item, answer) in enumerate(zip(items, answers.rows(), strict=True)):
            doubt = float(answers.uncertainty[place])
            new.append(
                NewPrediction(
                    item.id,
                    serving.record.id,
                    ask.num_draws,
                    ask.seed,
                    ask.level,
                    answer | {"uncertainty": doubt},
                    doubt,
                    answer["defer"],
                    answer["reason"],
                    tuple(answers.sketch[place].tolist()),
                )
            )
        await asyncio.to_thread(self.store.requests.add_predictions, new)
        return await asyncio.to_thread(self.store.overview.many, [item.id for item in items])

    # labels

    def checked_label(self, value: Any, *, new_class: bool) -> Any:
        """A label as it is stored; raises ValueError if it is none.

        Args:
            value: a class, or a number; a text that is a number will do.
            new_class: whether a class may be one that the model does not know.
        """
        model = self.registry.current.model
        if model.task == "regression":
            number = (
                float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
            )
            if number is None or not math.isfinite(number):
                raise ValueError(must("label", "value", "a finite number", value))
            return number
        text = str(value).strip()
        if text in model.classes:
            return text
        if not new_class or not 1 <= len(text) <= 200:
            known = ", ".join(map(repr, model.classes[:20]))
            raise ValueError(must("label", "value", f"one of {known}", value))
        if model.kind != "table":
            raise ValueError("label: only a table can learn new classes.")
        return text

    def target_name(self) -> str:
        """What labels are called in a table."""
        return str(self.registry.current.model.about.get("target", "label"))

    def column_names(self) -> list[str]:
        """The cells of a table's row; none for images."""
        model = self.registry.current.model
        return [spec.name for spec in model.inputs] if model.kind == "table" else []
