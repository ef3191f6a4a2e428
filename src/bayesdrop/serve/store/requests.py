"""Requests: what was asked and answered, written many at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.reading import load_items
from bayesdrop.serve.store.records import NewItem, NewPrediction, NewRequest, Request
from bayesdrop.serve.store.schema import items, predictions, requests

__all__ = ["KeyTaken", "Requests"]

_SHARED = ("item_id", "model_id", "num_draws", "seed", "level", "uncertainty", "defer", "reason")


class KeyTaken(ValueError):
    """A request was sent under a name that another one has."""


class Requests:
    """Stored requests.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, new: Sequence[NewRequest]) -> None:
        """Write requests with their items and predictions in one transaction: all or none.

        Raises:
            KeyTaken: the key of one of them is known already; nothing is written.
        """
        now = self._database.clock()
        first = [one for one in new if one.first]
        pairs = [(one, item) for one in new for item in one.items]
        try:
            with self._database.write() as connection:
                if first:
                    connection.execute(insert(requests), [_request_row(one, now) for one in first])
                if pairs:
                    connection.execute(insert(items), [_item_row(one, item, now) for one, item in pairs])
                    connection.execute(
                        insert(predictions), [_prediction_row(one, item, now) for one, item in pairs]
                    )
        except IntegrityError as error:
            keys = [one.key for one in first if one.key is not None]
            with self._database.read() as connection:
                taken = connection.scalars(select(requests.c.key).where(requests.c.key.in_(keys))).all()
            if not taken and len(set(keys)) == len(keys):
                raise
            raise KeyTaken("a request of this name is there already.") from error

    def add_predictions(self, new: Sequence[NewPrediction]) -> None:
        """Write what another version says of items that are there; the queue goes by it from now on."""
        now = self._database.clock()
        rows = []
        for one in new:
            row = {name: getattr(one, name) for name in _SHARED}
            rows.append(row | {"answer_json": json.dumps(one.answer), "created": now})
        with self._database.write() as connection:
            connection.execute(insert(predictions), rows)
            for one in new:
                changed: dict[str, Any] = {"uncertainty": one.uncertainty}
                if one.sketch:
                    changed["sketch_json"] = json.dumps(one.sketch)
                connection.execute(update(items).where(items.c.id == one.item_id).values(**changed))

    def by_key(self, key: str) -> Request | None:
        """The request that was sent under a name, with its items."""
        return self._found(requests.c.key == key)

    def get(self, request_id: str) -> Request | None:
        """A request by its id, with its items in their order."""
        return self._found(requests.c.id == request_id)

    def _found(self, wanted: Any) -> Request | None:
        with self._database.read() as connection:
            row = connection.execute(select(requests).where(wanted)).first()
            if row is None:
                return None
            found = connection.scalars(
                select(items.c.id).where(items.c.request_id == row.id).order_by(items.c.place)
            ).all()
            own = load_items(connection, found)
        facts = row._asdict()
        return Request(**facts, items=tuple(own))


def _request_row(one: NewRequest, now: float) -> dict[str, Any]:
    names = (
        "id",
        "key",
        "body_digest",
        "route",
        "person_id",
        "model_id",
        "num_draws",
        "seed",
        "level",
        "num_rows",
    )
    return {name: getattr(one, name) for name in names} | {"received": now}


def _item_row(one: NewRequest, item: NewItem, now: float) -> dict[str, Any]:
    return {
        "id": item.id,
        "request_id": one.id,
        "place": item.place,
        "external": item.external,
        "data_json": json.dumps(item.data),
        "sketch_json": json.dumps(item.sketch) if item.sketch else None,
        "state": "queued" if item.defer or item.random or item.queued else "answered",
        "random": item.random,
        "uncertainty": item.uncertainty,
        "opinions": item.opinions,
        "created": now,
    }


def _prediction_row(one: NewRequest, item: NewItem, now: float) -> dict[str, Any]:
    return {
        "item_id": item.id,
        "model_id": one.model_id,
        "num_draws": one.num_draws,
        "seed": one.seed,
        "level": one.level,
        "answer_json": json.dumps(item.answer),
        "uncertainty": item.uncertainty,
        "defer": item.defer,
        "reason": item.reason,
        "created": now,
    }
