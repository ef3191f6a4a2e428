"""Runs migrations on the connection that `migrate.upgrade` gives."""

from __future__ import annotations

from alembic import context

from bayesdrop.serve.store.schema import metadata

connection = context.config.attributes["connection"]
# SQLite changes a table by copying it.
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
