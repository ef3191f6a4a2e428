"""Migrations of the store, run by Alembic; one file a step in `versions`."""
