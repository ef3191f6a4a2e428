"""upgrade(): bring a database to the newest schema, whatever it is now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["migrations", "upgrade"]

#: processes that start together on one PostgreSQL migrate one after the other: the name of their lock
_LOCK = 0x62617965


def migrations() -> ScriptDirectory:
    """The steps that come with the package."""
    return ScriptDirectory.from_config(_config())


def upgrade(engine: Engine, to: str = "head") -> None:
    """Run the steps that a database lacks, all in one transaction: after a failure it is as it was.

    Args:
        engine: of the database.
        to: the step to stop at.
    """
    scripts = migrations()
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        now = MigrationContext.configure(connection).get_current_revision()
        known = {script.revision for script in scripts.walk_revisions()}
        if now is not None and now not in known:
            raise ValueError(
                f"the database was made by a newer bayesdrop (its schema is {now}); upgrade the package."
            )
        if now == (scripts.get_current_head() if to == "head" else to):
            return
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)


def _config() -> Config:
    config = Config()
    folder = Path(__file__).parent / "migrations"
    # Alembic reads its options with configparser, to which % is special.
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config
