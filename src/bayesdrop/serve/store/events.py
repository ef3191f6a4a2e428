"""Events: what happened, when, and by whom; nothing is ever taken away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from bayesdrop.serve.store.schema import events, people

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from bayesdrop.serve.store.database import Database

__all__ = ["Event", "Events", "add_event"]


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: str
    at: float
    person: str | None
    item_id: str | None
    model_id: int | None
    detail: dict[str, Any]


def add_event(
    connection: Connection,
    at: float,
    kind: str,
    *,
    person_id: int | None = None,
    item_id: str | None = None,
    model_id: int | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Write an event, in the transaction of what it tells of."""
    row = {"person_id": person_id, "item_id": item_id, "model_id": model_id}
    connection.execute(insert(events).values(kind=kind, at=at, detail_json=json.dumps(detail or {}), **row))


class Events:
    """The list of events.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, kind: str, **about: Any) -> None:
        """Something that happened now; `about` as for `add_event`."""
        with self._database.write() as connection:
            add_event(connection, self._database.clock(), kind, **about)

    def latest(self, count: int = 100, kind: str | None = None) -> list[Event]:
        """The latest events, the newest first.

        Args:
            count: at most so many.
            kind: of this kind alone.
        """
        wanted = select(events, people.c.name.label("person")).outerjoin(
            people, people.c.id == events.c.person_id
        )
        if kind is not None:
            wanted = wanted.where(events.c.kind == kind)
        with self._database.read() as connection:
            rows = connection.execute(wanted.order_by(events.c.id.desc()).limit(count)).all()
        return [
            Event(row.kind, row.at, row.person, row.item_id, row.model_id, json.loads(row.detail_json))
            for row in rows
        ]
