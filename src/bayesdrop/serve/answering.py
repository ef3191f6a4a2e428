"""Answering: from a caller's rows to answers that are stored and can be reproduced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bayesdrop.errors import must, real_number, whole_number
from bayesdrop.serve.adaptive import stretched
from bayesdrop.serve.batching import Answered, BatchedJob, Batcher
from bayesdrop.serve.served import Ask
from bayesdrop.serve.store import Item, KeyTaken, NewItem, NewRequest
from bayesdrop.serve.store.ids import new_id

if TYPE_CHECKING:
    from bayesdrop.serve.adaptive import Adaptive
    from bayesdrop.serve.registry import Registry, Serving
    from bayesdrop.serve.settings import ServeSettings
    from bayesdrop.serve.store import Store

__all__ = ["Answering", "Order", "StoredRows"]


@dataclass(frozen=True, eq=False)
class Order:
    """What a caller wants.

    Attributes:
        serving: the version that answers.
        rows: as `ServedModel.row` gave them.
        ask: with which draws.
        route: the protocol it came by.
        person_id: who sent it.
        key: the caller's own name of it: sent again, it is answered from the store.
        body_digest: of what was sent.
        external: names of the rows elsewhere.
        queued: ask people about all rows, whatever the model thinks.
        id: of the stored request.
        known: items of it that were answered before.
    """

    serving: Serving
    rows: Sequence[dict[str, Any]]
    ask: Ask
    route: str
    person_id: int | None = None
    key: str | None = None
    body_digest: str | None = None
    external: Sequence[str] = ()
    queued: bool = False
    id: str = ""
    known: Sequence[Item] = field(default=())


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Some rows of an order that were answered and stored.

    Attributes:
        items: their ids.
        answers: what the model said, a dict a row.
    """

    items: list[str]
    answers: list[dict[str, Any]]


class Answering:
    """Takes orders.

    Args:
        settings: of the server.
        store: where answers are kept.
        registry: of versions.
        batcher: that runs them.
        adaptive: stretches intervals; None leaves them as the model has them.
    """

    def __init__(
        self,
        settings: ServeSettings,
        store: Store,
        registry: Registry,
        batcher: Batcher,
        adaptive: Adaptive | None = None,
    ) -> None:
        self._settings, self._store, self._registry, self._batcher = settings, store, registry, batcher
        self._adaptive = adaptive
        self._chance = random.SystemRandom()

    def ask(self, serving: Serving, parameters: dict[str, Any]) -> Ask:
        """What the parameters of a request say, gaps filled.

        Args:
            serving: the version.
            parameters: num_draws, seed, level; others are not looked at.
        """
        model, most = serving.model, self._settings.max_draws
        draws, seed, level = (parameters.get(name) for name in ("num_draws", "seed", "level"))
        if level is not None:
            level = real_number("predict", "level", level, "in (0, 1)", above=0, below=1)
        return Ask(
            num_draws=model.num_draws
            if draws is None
            else whole_number("predict", "num_draws", draws, at_least=2, at_most=max(most, model.num_draws)),
            seed=self._settings.seed
            if seed is None
            else whole_number("predict", "seed", seed, at_least=0, at_most=2**31 - 1),
            level=None if model.level is None else (level or model.level),
        )

    def order(self, serving: Serving, rows: Sequence[Any], ask: Ask, **about: Any) -> Order:
        """An order of rows as a request gave them; raises `BadRow` and ValueError."""
        if not rows:
            raise ValueError("there must be at least one row.")
        if len(rows) > self._settings.max_rows:
            raise ValueError(must("predict", "rows", f"at most {self._settings.max_rows}", len(rows)))
        made = [serving.model.row(row) for row in rows]
        return Order(serving, made, ask, id=new_id(self._store.now()), **about)

    async def known(self, order: Order) -> Order:
        """The order, joined with what is stored of it if it was sent before.

        Raises:
            KeyTaken: something else was sent under this name.
        """
        if order.key is None:
            return order
        found = await asyncio.to_thread(self._store.requests.by_key, order.key)
        if found is None:
            return order
        if found.body_digest != order.body_digest:
            raise KeyTaken("another request was sent under this name.")
        if len(found.items) < found.num_rows and found.model_id != order.serving.record.id:
            raise KeyTaken("another version answered the first part of this request; use another name.")
        serving = order.serving
        if found.model_id is not None and found.model_id != serving.record.id:
            record = await asyncio.to_thread(self._store.versions.get, found.model_id)
            serving = await asyncio.to_thread(self._registry.load, record)
        ask = Ask(found.num_draws, found.seed, found.level)
        return replace(order, serving=serving, ask=ask, id=found.id, known=found.items)

    async def check(self, order: Order) -> None:
        """Raise `BadRow` for rows that will be refused, before anything is answered."""
        if len(order.rows) > self._settings.batch_rows:
            await asyncio.to_thread(order.serving.model.check, order.rows)

    async def parts(self, order: Order) -> AsyncIterator[StoredRows]:
        """The answers, some rows at a time, in order; each part is stored when it is given out.

        Raises `Full` and `Stopping` before the first part, `BadRow` likewise after `check`.
        """
        if order.known:
            yield _stored(order.known)
        start, size = len(order.known), self._settings.batch_rows
        left = len(order.rows) - start
        if not left:
            return
        self._batcher.reserve(left)
        try:
            while start < len(order.rows):
                rows = order.rows[start : start + size]
                part = await self._part(order, rows, start)
                start += len(rows)
                self._batcher.release(len(rows))
                left -= len(rows)
                yield part
        finally:
            if left:
                self._batcher.release(left)

    async def _part(self, order: Order, rows: Sequence[dict[str, Any]], start: int) -> StoredRows:
        made: list[NewItem] = []

        def record(answered: Answered) -> NewRequest:
            made[:] = self._items(order, answered, start)
            ask = order.ask
            return NewRequest(
                order.id,
                order.route,
                order.serving.record.id,
                ask.num_draws,
                ask.seed,
                ask.level,
                tuple(made),
                len(order.rows),
                order.key,
                order.body_digest,
                order.person_id,
                first=start == 0,
            )

        done = self._batcher.submit(BatchedJob(order.serving.model, rows, order.ask, record))
        # Shielded: a caller who goes away does not undo what was accepted.
        await asyncio.shield(asyncio.wrap_future(done))
        return StoredRows([item.id for item in made], [item.answer for item in made])

    def _items(self, order: Order, answered: Answered, start: int) -> list[NewItem]:
        now, chance, settings = self._store.now(), self._chance, self._settings
        said = answered.answers
        made = []
        for place, (row, answer) in enumerate(zip(answered.rows, said.rows(), strict=True)):
            answer["uncertainty"] = float(said.uncertainty[place])
            if self._adaptive is not None and order.ask.level is not None:
                factor = self._adaptive.factor(order.serving.record.id, order.ask.level, row)
                answer.update(stretched(answer, factor))
            made.append(
                NewItem(
                    new_id(now),
                    row,
                    answer,
                    answer["uncertainty"],
                    answer["defer"],
                    answer["reason"],
                    random=chance.random() < settings.random_share,
                    sketch=tuple(said.sketch[place].tolist()),
                    external=order.external[start + place] if order.external else None,
                    place=start + place,
                    queued=order.queued,
                    opinions=2 if chance.random() < settings.second_share else 1,
                )
            )
        return made


def _stored(items: Sequence[Item]) -> StoredRows:
    return StoredRows([item.id for item in items], [item.predictions[0].answer for item in items])
