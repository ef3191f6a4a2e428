"""The first tables: models, people, requests, items, predictions, labels, leases, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "models",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("task", sa.String(20), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("parent", sa.Integer),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("activated", sa.Double),
        sa.Column("about_json", sa.Text, nullable=False, server_default="{}"),
        sa.Column("comparison_json", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sa.UniqueConstraint("name", "version", name="uq_models_name_version"),
    )
    op.create_table(
        "people",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("token_hash", sa.String(64)),
        sa.Column("disabled", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_people"),
        sa.UniqueConstraint("name", name="uq_people_name"),
        sa.UniqueConstraint("token_hash", name="uq_people_token_hash"),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("key", sa.String(200)),
        sa.Column("body_digest", sa.String(64)),
        sa.Column("route", sa.String(40), nullable=False),
        sa.Column("person_id", sa.Integer),
        sa.Column("model_id", sa.Integer),
        sa.Column("num_draws", sa.Integer),
        sa.Column("seed", sa.Integer),
        sa.Column("level", sa.Double),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("received", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("key", name="uq_requests_key"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_requests_person_id"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_requests_model_id"),
    )
    op.create_index("ix_requests_received", "requests", ["received"])
    op.create_table(
        "items",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("request_id", sa.String(32), nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("data_json", sa.Text, nullable=False),
        sa.Column("sketch_json", sa.Text),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("random", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("uncertainty", sa.Double, nullable=False),
        sa.Column("opinions", sa.Integer, nullable=False, server_default="1"),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_items"),
        sa.UniqueConstraint("request_id", "place", name="uq_items_request_id_place"),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_items_request_id"),
    )
    op.create_index("ix_items_queue", "items", ["state", "random", "uncertainty"])
    op.create_table(
        "predictions",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("item_id", sa.String(32), nullable=False),
        sa.Column("model_id", sa.Integer, nullable=False),
        sa.Column("num_draws", sa.Integer, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("level", sa.Double),
        sa.Column("answer_json", sa.Text, nullable=False),
        sa.Column("uncertainty", sa.Double, nullable=False),
        sa.Column("defer", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_predictions"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="fk_predictions_item_id"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_predictions_model_id"),
    )
    op.create_index("ix_predictions_item_id", "predictions", ["item_id"])
    op.create_index("ix_predictions_created", "predictions", ["created"])
    op.create_table(
        "labels",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("item_id", sa.String(32), nullable=False),
        sa.Column("person_id", sa.Integer, nullable=False),
        sa.Column("value_json", sa.Text),
        sa.Column("skipped", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.Column("seconds", sa.Double),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("undone", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_labels"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="fk_labels_item_id"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_labels_person_id"),
    )
    op.create_index("ix_labels_item_id", "labels", ["item_id"])
    op.create_index("ix_labels_created", "labels", ["created"])
    op.create_table(
        "leases",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("item_id", sa.String(32), nullable=False),
        sa.Column("person_id", sa.Integer, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_leases"),
        sa.UniqueConstraint("item_id", "person_id", name="uq_leases_item_id_person_id"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="fk_leases_item_id"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_leases_person_id"),
    )
    op.create_index("ix_leases_expires", "leases", ["expires"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("person_id", sa.Integer),
        sa.Column("item_id", sa.String(32)),
        sa.Column("model_id", sa.Integer),
        sa.Column("detail_json", sa.Text, nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_events_person_id"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="fk_events_item_id"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_events_model_id"),
    )
    op.create_index("ix_events_kind", "events", ["kind"])
    op.create_index("ix_events_at", "events", ["at"])
