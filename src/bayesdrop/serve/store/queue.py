"""Queue: which item a person gets next, and what becomes of it. Nobody gets an item that another has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Select, delete, func, insert, select, update

from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.events import add_event
from bayesdrop.serve.store.reading import load_items
from bayesdrop.serve.store.records import Item
from bayesdrop.serve.store.schema import items, labels, leases

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["LeaseLost", "Queue"]

#: the most uncertain items that one is chosen from, and the items handed out last that it should differ from
_CANDIDATES, _RECENT = 50, 20


class LeaseLost(ValueError):
    """An item is not this person's to label: the lease has ended, or somebody else was faster."""


class Queue:
    """The items that people are asked about, in two lanes.

    One lane has the items that the model handed over, the most uncertain first, and among these one that is
    unlike those handed out before. The other has the items that were picked at random when they came in,
    whatever the model thought of them, the oldest first: their labels show without bias how good the model
    is. An item of the random lane never jumps it, however uncertain it is.

    Args:
        database: where they are.
        lease: seconds that an item belongs to the person who got it.
        random_every: every so-many-th item is from the random lane.
    """

    def __init__(self, database: Database, *, lease: float = 300.0, random_every: int = 4) -> None:
        self._database, self._lease, self._every = database, lease, random_every

    def next_item(self, person_id: int) -> Item | None:
        """An item for a person, with a lease; the one they have already, if any; None if nothing is left."""
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            _release(connection, now)
            chosen = connection.scalar(
                select(leases.c.item_id).where(leases.c.person_id == person_id).order_by(leases.c.id)
            )
            if chosen is None:
                chosen = self._choice(connection, person_id)
            if chosen is None:
                return None
            return self._leased(connection, chosen, person_id, now)

    def _choice(self, connection: Connection, person_id: int) -> str | None:
        done = connection.scalar(
            select(func.count()).select_from(labels).where(labels.c.person_id == person_id)
        )
        random_turn = (done or 0) % self._every == self._every - 1
        for random in (True, False) if random_turn else (False, True):
            wanted = _open_items(person_id).where(items.c.random.is_(random))
            if random:
                oldest = connection.execute(wanted.order_by(items.c.created, items.c.id).limit(1)).first()
                if oldest is not None:
                    return str(oldest.id)
                continue
            ordered = wanted.order_by(items.c.uncertainty.desc(), items.c.created, items.c.id)
            rows = connection.execute(ordered.limit(_CANDIDATES)).all()
            if rows:
                return str(rows[_most_valuable(rows, _recent_sketches(connection))].id)
        return None

    def _leased(self, connection: Connection, item_id: str, person_id: int, now: float) -> Item:
        """The item, with a lease from now on."""
        own = (leases.c.item_id == item_id) & (leases.c.person_id == person_id)
        expires = now + self._lease
        if not connection.execute(update(leases).where(own).values(expires=expires)).rowcount:
            row = {"item_id": item_id, "person_id": person_id, "created": now, "expires": expires}
            connection.execute(insert(leases).values(**row))
        return replace(load_items(connection, [item_id])[0], expires=expires)

    def label(
        self,
        item_id: str,
        person_id: int,
        value: Any,
        *,
        note: str = "",
        source: str = "desk",
        external: str | None = None,
        needs_lease: bool = True,
    ) -> Item:
        """Keep what a person says of an item. The same label sent twice is one label.

        Args:
            item_id: which.
            person_id: who.
            value: a class, or a number.
            note: a remark.
            source: where it was given.
            external: its name there.
            needs_lease: whether the person must have been handed the item.

        Raises:
            LeaseLost: the person does not have the item any more, or has labelled it otherwise.
        """
        given = {"value_json": json.dumps(value), "skipped": False, "note": note}
        return self._spoken(item_id, person_id, given | {"source": source, "external": external}, needs_lease)

    def skip(self, item_id: str, person_id: int, *, note: str = "") -> Item:
        """Pass an item on to others; this person does not get it again."""
        return self._spoken(item_id, person_id, {"value_json": None, "skipped": True, "note": note}, True)

    def _spoken(self, item_id: str, person_id: int, given: dict[str, Any], needs_lease: bool) -> Item:
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            _release(connection, now)
            if connection.scalar(select(items.c.state).where(items.c.id == item_id)) is None:
                raise LeaseLost(f"there is no item {item_id!r}.")
            own = (
                (labels.c.item_id == item_id) & (labels.c.person_id == person_id) & labels.c.undone.is_(None)
            )
            before = connection.execute(select(labels).where(own)).first()
            if before is not None:
                if before.value_json != given["value_json"]:
                    raise LeaseLost("you have said something else of this item; undo that first.")
                return load_items(connection, [item_id])[0]
            mine = (leases.c.item_id == item_id) & (leases.c.person_id == person_id)
            since = connection.scalar(select(leases.c.created).where(mine))
            if since is None and needs_lease:
                raise LeaseLost("the time for this item has run out, and it went back to the queue.")
            given |= {"seconds": None if since is None else now - since, "created": now}
            connection.execute(insert(labels).values(item_id=item_id, person_id=person_id, **given))
            connection.execute(delete(leases).where(mine))
            kind = "skip" if given["skipped"] else "label"
            add_event(connection, now, kind, person_id=person_id, item_id=item_id)
            _settle(connection, item_id)
            return load_items(connection, [item_id])[0]

    def undo(self, person_id: int) -> Item | None:
        """Take back the last label or skip of a person and hand them the item again; None without any."""
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            _release(connection, now)
            live = (labels.c.person_id == person_id) & labels.c.undone.is_(None)
            last = connection.execute(
                select(labels.c.id, labels.c.item_id).where(live).order_by(labels.c.id.desc())
            ).first()
            if last is None:
                return None
            connection.execute(update(labels).where(labels.c.id == last.id).values(undone=now))
            add_event(connection, now, "undo", person_id=person_id, item_id=last.item_id)
            # What they had before them goes back: it is next after this one.
            connection.execute(delete(leases).where(leases.c.person_id == person_id))
            _settle(connection, last.item_id)
            return self._leased(connection, last.item_id, person_id, now)

    def take_back(self, external: str) -> None:
        """Take back a label that was given elsewhere, by its name there."""
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            live = (labels.c.external == external) & labels.c.undone.is_(None)
            for row in connection.execute(select(labels).where(live)).all():
                connection.execute(update(labels).where(labels.c.id == row.id).values(undone=now))
                add_event(connection, now, "undo", person_id=row.person_id, item_id=row.item_id)
                _settle(connection, row.item_id)

    def ask_opinions(self, item_id: str, count: int, *, person_id: int | None = None) -> None:
        """Ask for labels of several people: a second opinion is `count` 2."""
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            connection.execute(update(items).where(items.c.id == item_id).values(opinions=count))
            add_event(
                connection,
                now,
                "opinions asked",
                person_id=person_id,
                item_id=item_id,
                detail={"count": count},
            )
            _settle(connection, item_id, ask=True)

    def withdraw(self, item_id: str, *, person_id: int | None = None) -> None:
        """Ask nobody about an item any more."""
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            connection.execute(update(items).where(items.c.id == item_id).values(state="withdrawn"))
            connection.execute(delete(leases).where(leases.c.item_id == item_id))
            add_event(connection, now, "withdrawn", person_id=person_id, item_id=item_id)

    def let_go(self, person_id: int) -> None:
        """End the leases of a person who goes away."""
        with self._database.write(alone=True) as connection:
            connection.execute(delete(leases).where(leases.c.person_id == person_id))

    def release_expired(self) -> int:
        """End leases whose time is up; how many."""
        with self._database.write(alone=True) as connection:
            return _release(connection, self._database.clock())


def _release(connection: Connection, now: float) -> int:
    over = connection.execute(select(leases).where(leases.c.expires <= now)).all()
    for row in over:
        add_event(connection, now, "lease expired", person_id=row.person_id, item_id=row.item_id)
    connection.execute(delete(leases).where(leases.c.expires <= now))
    return len(over)


def _settle(connection: Connection, item_id: str, *, ask: bool = False) -> None:
    """Queued while labels are wanting, done when there are enough.

    Args:
        connection: of a transaction.
        item_id: which.
        ask: also of an item that nobody was asked about, or that was withdrawn.
    """
    row = connection.execute(select(items.c.state, items.c.opinions).where(items.c.id == item_id)).one()
    if row.state in ("answered", "withdrawn") and not ask:
        live = _live_labels(connection, item_id)
        state = "done" if live >= row.opinions else row.state
    else:
        state = "done" if _live_labels(connection, item_id) >= row.opinions else "queued"
    connection.execute(update(items).where(items.c.id == item_id).values(state=state))


def _live_labels(connection: Connection, item_id: str) -> int:
    live = (labels.c.item_id == item_id) & labels.c.undone.is_(None) & labels.c.skipped.is_(False)
    return int(connection.scalar(select(func.count()).select_from(labels).where(live)) or 0)


def _open_items(person_id: int) -> Select[Any]:
    """Items that wait for a label of a person: not theirs already, and not all promised to others."""
    live = (labels.c.item_id == items.c.id) & labels.c.undone.is_(None)
    own = select(labels.c.id).where(live, labels.c.person_id == person_id).exists()
    said = select(func.count()).select_from(labels).where(live, labels.c.skipped.is_(False)).scalar_subquery()
    held = select(func.count()).select_from(leases).where(leases.c.item_id == items.c.id).scalar_subquery()
    wanted = (items.c.state == "queued") & ~own & (said + held < items.c.opinions)
    return select(items.c.id, items.c.uncertainty, items.c.sketch_json).where(wanted)


def _recent_sketches(connection: Connection) -> list[list[float]]:
    """Sketches of the items that people have before them or spoke of last."""
    held = select(items.c.sketch_json).join(leases, leases.c.item_id == items.c.id)
    said = select(items.c.sketch_json).join(labels, labels.c.item_id == items.c.id)
    texts = connection.scalars(held.order_by(leases.c.id.desc()).limit(_RECENT)).all()
    texts = [*texts, *connection.scalars(said.order_by(labels.c.id.desc()).limit(_RECENT))]
    return [json.loads(text) for text in texts if text]


def _most_valuable(rows: Sequence[Any], recent: Sequence[Sequence[float]]) -> int:
    """The place of the item with the largest uncertainty times its distance from recent ones, at most 1.

    Distances are counted in the median distance of the candidates from recent items.
    """
    value = np.array([row.uncertainty for row in rows], dtype=np.float64)
    made = [json.loads(row.sketch_json) if row.sketch_json else None for row in rows]
    size = next((len(sketch) for sketch in made if sketch), 0)
    known = np.array([sketch for sketch in recent if len(sketch) == size], dtype=np.float64)
    if size and len(known) and all(sketch is not None and len(sketch) == size for sketch in made):
        away = np.linalg.norm(np.array(made)[:, None] - known[None], axis=2).min(1)
        usual = float(np.median(away))
        if usual > 0:
            value = value * np.minimum(1.0, away / usual)
    return int(value.argmax())
