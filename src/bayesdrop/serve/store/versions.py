"""Versions: every model that was served, and which one answers now."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import func, insert, select, update

from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.events import add_event
from bayesdrop.serve.store.records import SavedModel
from bayesdrop.serve.store.schema import models

__all__ = ["Versions"]


class Versions:
    """The versions of models, numbered from 1 for each name.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        *,
        name: str,
        kind: str,
        task: str,
        digest: str,
        source: str,
        about: dict[str, Any],
        parent: int | None = None,
        comparison: dict[str, Any] | None = None,
    ) -> SavedModel:
        """The next version of a name; nothing answers with it yet.

        Args:
            name: of the model.
            kind: table, image or torch.
            task: classification or regression.
            digest: SHA-256 of what it is made of.
            source: "origin" for the model that the server was given, or the name of its folder.
            about: facts for a person.
            parent: version that it was made from.
            comparison: with its parent.
        """
        row: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "task": task,
            "digest": digest,
            "source": source,
            "parent": parent,
        }
        row |= {"about_json": json.dumps(about), "created": self._database.clock()}
        row["comparison_json"] = None if comparison is None else json.dumps(comparison)
        with self._database.write(alone=True) as connection:
            last = connection.scalar(select(func.max(models.c.version)).where(models.c.name == name))
            version = (last or 0) + 1
            connection.execute(insert(models).values(**row, version=version))
            own = (models.c.name == name) & (models.c.version == version)
            added = connection.execute(select(models).where(own)).one()
            add_event(connection, self._database.clock(), "version added", model_id=added.id)
        return _model(added)

    def activate(self, model: SavedModel, *, person_id: int | None = None, why: str = "") -> SavedModel:
        """Make a version the one that answers."""
        now = self._database.clock()
        with self._database.write(alone=True) as connection:
            connection.execute(update(models).where(models.c.name == model.name).values(active=False))
            connection.execute(
                update(models).where(models.c.id == model.id).values(active=True, activated=now)
            )
            add_event(
                connection,
                now,
                "version activated",
                person_id=person_id,
                model_id=model.id,
                detail={"why": why},
            )
        return self.get(model.id)

    def all(self, name: str) -> list[SavedModel]:
        """The versions of a name, the newest first."""
        wanted = select(models).where(models.c.name == name).order_by(models.c.version.desc())
        with self._database.read() as connection:
            return [_model(row) for row in connection.execute(wanted)]

    def active(self, name: str) -> SavedModel | None:
        """The version that answers."""
        return next((model for model in self.all(name) if model.active), None)

    def before(self, model: SavedModel) -> SavedModel | None:
        """One step back: the version that this one was made from, else the one numbered before it."""
        older = [one for one in self.all(model.name) if one.version < model.version]
        return next((one for one in older if one.version == model.parent), older[0] if older else None)

    def with_digest(self, name: str, digest: str) -> SavedModel | None:
        """The newest version with this digest."""
        return next((model for model in self.all(name) if model.digest == digest), None)

    def get(self, model_id: int) -> SavedModel:
        """A version by its id."""
        with self._database.read() as connection:
            return _model(connection.execute(select(models).where(models.c.id == model_id)).one())

    def numbered(self, name: str, version: int) -> SavedModel | None:
        """A version by its number."""
        return next((model for model in self.all(name) if model.version == version), None)


def _model(row: Any) -> SavedModel:
    facts = {
        name: getattr(row, name) for name in ("id", "name", "version", "kind", "task", "digest", "source")
    }
    facts |= {name: getattr(row, name) for name in ("parent", "created", "activated")}
    comparison = None if row.comparison_json is None else json.loads(row.comparison_json)
    return SavedModel(
        **facts, active=bool(row.active), about=json.loads(row.about_json), comparison=comparison
    )
