"""Logins, and the names that items and labels have in Label Studio."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add them; labels that are there were given at the desk."""
    op.create_table(
        "sessions",
        sa.Column("id_hash", sa.String(64), nullable=False),
        sa.Column("person_id", sa.Integer, nullable=False),
        sa.Column("csrf", sa.String(64), nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id_hash", name="pk_sessions"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_sessions_person_id"),
    )
    op.add_column("items", sa.Column("external", sa.String(200)))
    op.create_index("ix_items_external", "items", ["external"])
    op.add_column("labels", sa.Column("source", sa.String(20), nullable=False, server_default="desk"))
    op.add_column("labels", sa.Column("external", sa.String(200)))
