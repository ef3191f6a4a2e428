"""load_items(): items with their predictions and labels, in three questions whatever their number."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from bayesdrop.serve.store.records import Item, Label, SavedPrediction
from bayesdrop.serve.store.schema import items, labels, people, predictions

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["load_items"]

#: names that fit into one question
_AT_ONCE = 500


def load_items(connection: Connection, ids: Sequence[str]) -> list[Item]:
    """Items by their ids, in this order.

    Args:
        connection: to read with.
        ids: of items that are there.
    """
    found: dict[str, Item] = {}
    for start in range(0, len(ids), _AT_ONCE):
        part = list(ids[start : start + _AT_ONCE])
        said: dict[str, list[SavedPrediction]] = defaultdict(list)
        asked = select(predictions).where(predictions.c.item_id.in_(part)).order_by(predictions.c.id)
        for row in connection.execute(asked):
            said[row.item_id].append(_prediction(row))
        given: dict[str, list[Label]] = defaultdict(list)
        joined = select(labels, people.c.name.label("person")).join(people, people.c.id == labels.c.person_id)
        live = labels.c.item_id.in_(part) & labels.c.undone.is_(None)
        for row in connection.execute(joined.where(live).order_by(labels.c.id)):
            given[row.item_id].append(label_of(row))
        for row in connection.execute(select(items).where(items.c.id.in_(part))):
            found[row.id] = _item(row, said[row.id], given[row.id])
    return [found[one] for one in ids]


def _prediction(row: Any) -> SavedPrediction:
    names = ("model_id", "num_draws", "seed", "level", "uncertainty", "reason", "created")
    facts = {name: getattr(row, name) for name in names}
    return SavedPrediction(**facts, answer=json.loads(row.answer_json), defer=bool(row.defer))


def label_of(row: Any) -> Label:
    """A label from its row and the name of its person."""
    names = ("id", "item_id", "person_id", "person", "note", "seconds", "source", "created", "external")
    value = None if row.value_json is None else json.loads(row.value_json)
    return Label(**{name: getattr(row, name) for name in names}, value=value, skipped=bool(row.skipped))


def _item(row: Any, said: Sequence[SavedPrediction], given: Sequence[Label]) -> Item:
    names = ("id", "request_id", "place", "external", "state", "uncertainty", "opinions", "created")
    return Item(
        **{name: getattr(row, name) for name in names},
        data=json.loads(row.data_json),
        random=bool(row.random),
        predictions=tuple(said),
        labels=tuple(given),
    )
