"""The tables of the store. Migrations bring an older database to this shape."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

__all__ = [
    "events",
    "items",
    "labels",
    "leases",
    "metadata",
    "models",
    "people",
    "predictions",
    "requests",
    "sessions",
]

#: names of constraints, so that migrations can speak of them on any database
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Times are seconds since 1970; texts in columns that end in _json are JSON. Requests and items are named by
# 32 hexadecimal digits that grow with time (`ids.new_id`).

#: every version of a model that was ever served
models = Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("version", Integer, nullable=False),
    Column("kind", String(20), nullable=False),  # table, image, torch
    Column("task", String(20), nullable=False),  # classification, regression
    Column("digest", String(64), nullable=False),
    Column("source", Text, nullable=False),  # "origin", or the name of a folder in home/versions
    Column("active", Boolean, nullable=False, server_default=false()),
    Column("parent", Integer),  # version that it was made from
    Column("created", Double, nullable=False),
    Column("activated", Double),
    Column("about_json", Text, nullable=False, server_default="{}"),
    Column("comparison_json", Text),
    UniqueConstraint("name", "version"),
)

people = Table(
    "people",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("role", String(20), nullable=False),  # reader, labeller, admin
    Column("token_hash", String(64), unique=True),
    Column("disabled", Boolean, nullable=False, server_default=false()),
    Column("created", Double, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id_hash", String(64), primary_key=True),
    Column("person_id", Integer, ForeignKey("people.id"), nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("expires", Double, nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("key", String(200), unique=True),  # a caller's own name of it: sent twice, answered once
    Column("body_digest", String(64)),
    Column("route", String(40), nullable=False),
    Column("person_id", Integer, ForeignKey("people.id")),
    Column("model_id", Integer, ForeignKey("models.id")),
    Column("num_draws", Integer),
    Column("seed", Integer),
    Column("level", Double),
    Column("num_rows", Integer, nullable=False),
    Column("received", Double, nullable=False, index=True),
)

items = Table(
    "items",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("request_id", String(32), ForeignKey("requests.id"), nullable=False),
    Column("place", Integer, nullable=False),
    Column("external", String(200)),  # its name elsewhere: a task of Label Studio
    Column("data_json", Text, nullable=False),
    Column("sketch_json", Text),  # a few numbers; near ones are alike
    Column("state", String(20), nullable=False),  # answered, queued, done, withdrawn
    Column("random", Boolean, nullable=False, server_default=false()),
    Column("uncertainty", Double, nullable=False),  # 0 to 1, of the latest prediction
    Column("opinions", Integer, nullable=False, server_default="1"),  # labels that are wanted
    Column("created", Double, nullable=False),
    UniqueConstraint("request_id", "place"),
    Index("ix_items_queue", "state", "random", "uncertainty"),
    Index("ix_items_external", "external"),
)

predictions = Table(
    "predictions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", String(32), ForeignKey("items.id"), nullable=False, index=True),
    Column("model_id", Integer, ForeignKey("models.id"), nullable=False),
    Column("num_draws", Integer, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("level", Double),
    Column("answer_json", Text, nullable=False),
    Column("uncertainty", Double, nullable=False),
    Column("defer", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created", Double, nullable=False, index=True),
)

labels = Table(
    "labels",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", String(32), ForeignKey("items.id"), nullable=False, index=True),
    Column("person_id", Integer, ForeignKey("people.id"), nullable=False),
    Column("value_json", Text),  # null for a skip
    Column("skipped", Boolean, nullable=False, server_default=false()),
    Column("note", Text, nullable=False, server_default=""),
    Column("seconds", Double),  # from the lease to the label
    Column("source", String(20), nullable=False, server_default="desk"),
    Column("external", String(200)),  # its name elsewhere: an annotation of Label Studio
    Column("created", Double, nullable=False, index=True),
    Column("undone", Double),
)

leases = Table(
    "leases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", String(32), ForeignKey("items.id"), nullable=False),
    Column("person_id", Integer, ForeignKey("people.id"), nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False, index=True),
    UniqueConstraint("item_id", "person_id"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", String(40), nullable=False, index=True),
    Column("at", Double, nullable=False, index=True),
    Column("person_id", Integer, ForeignKey("people.id")),
    Column("item_id", String(32), ForeignKey("items.id")),
    Column("model_id", Integer, ForeignKey("models.id")),
    Column("detail_json", Text, nullable=False, server_default="{}"),
)
