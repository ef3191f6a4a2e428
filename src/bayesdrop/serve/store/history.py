"""ServedHistory: rows and labels over time, which drift and throughput are told from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from bayesdrop.serve.store.schema import items, labels, people, predictions

if TYPE_CHECKING:
    from bayesdrop.serve.store.database import Database

__all__ = ["ServedHistory"]


class ServedHistory:
    """Questions about what came when.

    Args:
        database: where it is.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def first_time(self) -> float | None:
        """When the first prediction was made; None without any."""
        with self._database.read() as connection:
            found = connection.scalar(select(func.min(predictions.c.created)))
        return None if found is None else float(found)

    def rows(self, count: int, *, newest: bool) -> list[dict[str, Any]]:
        """Rows as they came in, in the order of their coming; images as the numbers of their sketches.

        Args:
            count: at most so many.
            newest: the last ones, else the first ones.
        """
        order = items.c.id.desc() if newest else items.c.id
        asked = select(items.c.data_json, items.c.sketch_json).order_by(order).limit(count)
        with self._database.read() as connection:
            found = connection.execute(asked).all()
        made = []
        for row in reversed(found) if newest else found:
            data = json.loads(row.data_json)
            if set(data) == {"image"}:
                sketch = json.loads(row.sketch_json or "[]")
                data = {f"part {place}": value for place, value in enumerate(sketch, 1)}
            made.append(data)
        return made

    def label_times(self, since: float = 0.0) -> list[tuple[str, float]]:
        """Who labelled and when, in order: every label that holds.

        Args:
            since: seconds since 1970.
        """
        live = labels.c.undone.is_(None) & labels.c.skipped.is_(False) & (labels.c.created >= since)
        asked = select(people.c.name, labels.c.created).join(people, people.c.id == labels.c.person_id)
        with self._database.read() as connection:
            rows = connection.execute(asked.where(live).order_by(labels.c.created)).all()
        return [(row.name, row.created) for row in rows]

    def label_mark(self) -> tuple[int, int]:
        """Two numbers that change whenever a label is given or taken back."""
        asked = select(func.coalesce(func.max(labels.c.id), 0), func.count(labels.c.undone))
        with self._database.read() as connection:
            row = connection.execute(asked).one()
        return int(row[0]), int(row[1])
