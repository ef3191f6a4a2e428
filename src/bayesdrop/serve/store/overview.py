"""Overview: what the dashboard counts, and labels on their way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, case, cast, func, select

from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.reading import load_items
from bayesdrop.serve.store.records import Item
from bayesdrop.serve.store.schema import items, labels, leases, people, predictions, requests

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

__all__ = ["Counts", "Overview", "PersonCount", "Span"]

_AT_ONCE = 500


@dataclass(frozen=True)
class Counts:
    """How much there is of everything."""

    requests: int
    items: int
    queued: int  #: items that wait for a label, leased ones too
    queued_random: int  #: those of the random lane
    leased: int
    done: int
    withdrawn: int
    labels: int
    skips: int
    deferred: int  #: predictions that went to a person


@dataclass(frozen=True)
class PersonCount:
    """What one person did."""

    person: str
    labels: int
    skips: int
    seconds: float | None  #: mean time of a label


@dataclass(frozen=True)
class Span:
    """What came in during a span of time that begins at `start`."""

    start: float
    items: int
    deferred: int
    uncertainty: float  #: mean


class Overview:
    """Questions about everything that is stored.

    Args:
        database: where it is.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self) -> Counts:
        """How much there is of everything."""
        with self._database.read() as connection:

            def count(table: Any, *where: ColumnElement[bool]) -> int:
                return int(connection.scalar(select(func.count()).select_from(table).where(*where)) or 0)

            live = labels.c.undone.is_(None)
            return Counts(
                requests=count(requests),
                items=count(items),
                queued=count(items, items.c.state == "queued"),
                queued_random=count(items, items.c.state == "queued", items.c.random.is_(True)),
                leased=count(leases, leases.c.expires > self._database.clock()),
                done=count(items, items.c.state == "done"),
                withdrawn=count(items, items.c.state == "withdrawn"),
                labels=count(labels, live, labels.c.skipped.is_(False)),
                skips=count(labels, live, labels.c.skipped.is_(True)),
                deferred=count(predictions, predictions.c.defer.is_(True)),
            )

    def spans(self, seconds: float, *, since: float = 0.0, model_id: int | None = None) -> list[Span]:
        """What came in, span by span: share deferred and mean uncertainty; spans without any are left out.

        Args:
            seconds: length of a span.
            since: seconds since 1970.
            model_id: of one version alone.
        """
        start = cast(func.floor(predictions.c.created / seconds), Integer).label("span")
        asked = select(
            start,
            func.count().label("items"),
            func.sum(case((predictions.c.defer.is_(True), 1), else_=0)).label("deferred"),
            func.avg(predictions.c.uncertainty).label("uncertainty"),
        ).where(predictions.c.created >= since)
        if model_id is not None:
            asked = asked.where(predictions.c.model_id == model_id)
        with self._database.read() as connection:
            rows = connection.execute(asked.group_by("span").order_by("span")).all()
        return [
            Span(row.span * seconds, row.items, int(row.deferred), float(row.uncertainty)) for row in rows
        ]

    def per_person(self) -> list[PersonCount]:
        """What everybody did, the busiest first."""
        said = func.sum(case((labels.c.skipped.is_(False), 1), else_=0)).label("labels")
        skipped = func.sum(case((labels.c.skipped.is_(True), 1), else_=0)).label("skips")
        asked = (
            select(people.c.name, said, skipped, func.avg(labels.c.seconds).label("seconds"))
            .join(labels, labels.c.person_id == people.c.id)
            .where(labels.c.undone.is_(None))
            .group_by(people.c.name)
            .order_by(said.desc(), people.c.name)
        )
        with self._database.read() as connection:
            rows = connection.execute(asked).all()
        return [PersonCount(row.name, int(row.labels), int(row.skips), row.seconds) for row in rows]

    def labelled(
        self, *, random: bool | None = None, since: float | None = None, disagreeing: bool = False
    ) -> Iterator[Item]:
        """Items with at least one label that holds, in the order of their coming.

        Args:
            random: only those picked at random, or only the others; all if None.
            since: came in at this time or later.
            disagreeing: only those that people label differently.
        """
        live = (labels.c.item_id == items.c.id) & labels.c.undone.is_(None) & labels.c.skipped.is_(False)
        asked = select(items.c.id).where(select(labels.c.id).where(live).exists())
        if random is not None:
            asked = asked.where(items.c.random.is_(random))
        if since is not None:
            asked = asked.where(items.c.created >= since)
        for item in self._in_parts(asked):
            if not disagreeing or item.disagreement:
                yield item

    def items(self, *, state: str | None = None, count: int = 100, offset: int = 0) -> list[Item]:
        """Items of a state, the newest first.

        Args:
            state: answered, queued, done or withdrawn; any if None.
            count: at most so many.
            offset: after so many.
        """
        asked = select(items.c.id)
        if state is not None:
            asked = asked.where(items.c.state == state)
        ordered = asked.order_by(items.c.created.desc(), items.c.id.desc()).limit(count).offset(offset)
        with self._database.read() as connection:
            return load_items(connection, connection.scalars(ordered).all())

    def item(self, item_id: str) -> Item | None:
        """One item."""
        with self._database.read() as connection:
            known = connection.scalar(select(items.c.id).where(items.c.id == item_id))
            return load_items(connection, [item_id])[0] if known else None

    def many(self, ids: Sequence[str]) -> list[Item]:
        """Items that are there, by their ids."""
        with self._database.read() as connection:
            return load_items(connection, ids)

    def by_external(self, external: str) -> Item | None:
        """The newest item with a name from elsewhere."""
        asked = select(items.c.id).where(items.c.external == external).order_by(items.c.created.desc())
        with self._database.read() as connection:
            found = connection.scalar(asked.limit(1))
            return load_items(connection, [found])[0] if found else None

    def queued(self) -> Iterator[Item]:
        """All items that wait for a label, in the order of their coming."""
        yield from self._in_parts(select(items.c.id).where(items.c.state == "queued"))

    def _in_parts(self, asked: Any) -> Iterator[Item]:
        with self._database.read() as connection:
            ids = connection.scalars(asked.order_by(items.c.created, items.c.id)).all()
        for start in range(0, len(ids), _AT_ONCE):
            with self._database.read() as connection:
                yield from load_items(connection, ids[start : start + _AT_ONCE])
