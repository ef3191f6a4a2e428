"""seed_past(): a week in which callers asked and two people labelled, as the store would have seen it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

from bayesdrop.serve.demo.models import Stage
from bayesdrop.serve.routes.speech import collected
from bayesdrop.serve.service import Service

__all__ = ["seed_past", "seeded"]

_WEEK = 7 * 86_400.0
_REQUESTS = 24


class _Clock:
    """Seconds that the past takes."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def seed_past(stage: Stage, *, rows: int, labels: int, seed: int = 0, now: float | None = None) -> int:
    """Fill a store that has nothing: requests of a week, and labels of Ada and Ben.

    They are right nearly always: 3 in 100 labels are not, and numbers are rounded. Random items are labelled
    first, so that the dashboard has something to show; the rest waits for the visitor.

    Args:
        stage: a model and its rows.
        rows: that callers sent.
        labels: that were given.
        seed: of everything random.
        now: the end of the week, in seconds since 1970; this moment if None.

    Returns: rows that were sent; 0 if the store has a past already.
    """
    service = Service(stage.settings)
    end = time.time() if now is None else now
    clock = _Clock(end - _WEEK)
    service.store.database.clock = clock
    await service.start()
    try:
        if service.store.overview.counts().items:
            return 0
        truth: dict[str, Any] = {}
        source = np.random.default_rng(seed)
        people = [service.store.people.local(f"{name} (simulated)", "labeller") for name in ("Ada", "Ben")]
        said = 0
        for part in np.array_split(np.arange(rows), _REQUESTS):
            clock.now += _WEEK / (_REQUESTS + 1) * float(source.uniform(0.6, 1.2))
            clock.now = min(clock.now, end - 600)
            serving = service.registry.current
            sent = [stage.rows[place] for place in part.tolist()]
            order = service.answering.order(
                serving, sent, service.answering.ask(serving, {}), route="predict"
            )
            _, answered = await collected(service, order)
            truth |= dict(zip(answered.items, (stage.truth[place] for place in part.tolist()), strict=True))
            due = round(labels * (part[-1] + 1) / rows)
            for turn in range(max(0, due - said)):
                clock.now += float(source.uniform(3, 20))
                said += _label(service, people[(turn % 3) // 2], truth, source, clock)
        return rows
    finally:
        await service.stop()


def _label(service: Service, person: Any, truth: dict[str, Any], source: Any, clock: _Clock) -> int:
    """One label of a simulated person; 0 if nothing waits."""
    item = service.store.queue.next_item(person.id)
    if item is None:
        return 0
    clock.now += float(source.gamma(3.0, 2.5))
    right = truth[item.id]
    if isinstance(right, float):
        service.store.queue.label(item.id, person.id, float(round(right)))
        return 1
    classes = service.registry.current.model.classes
    if source.random() < 0.02:
        service.store.queue.skip(item.id, person.id, note="cannot be read")
        return 1
    value = str(source.choice(classes)) if source.random() < 0.03 else right
    service.store.queue.label(item.id, person.id, value)
    return 1


def seeded(stage: Stage, **options: Any) -> int:
    """`seed_past` from a program that has no event loop."""
    return asyncio.run(seed_past(stage, **options))
