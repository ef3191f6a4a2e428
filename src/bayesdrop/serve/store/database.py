"""Database: an engine whose commits are on the disk, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from bayesdrop.errors import must, require
from bayesdrop.serve.store.migrate import upgrade

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["Database"]

#: what claims of items, and changes of versions, wait for on PostgreSQL
_CLAIM = 0x64726F70


class Database:
    """The connection to the store's database, migrated to the newest schema.

    Args:
        url: of SQLAlchemy: sqlite:///file, or postgresql+psycopg://...
        clock: seconds since 1970.
        migrate: bring the database to the newest schema first.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time, migrate: bool = True) -> None:
        self.clock = clock
        self.engine = _engine(url)
        try:
            if migrate:
                upgrade(self.engine)
        except OperationalError as error:
            self.engine.dispose()
            said = " ".join(str(error.orig).split())
            shown = self.engine.url.render_as_string(hide_password=True)
            raise ValueError(f"the database {shown} cannot be opened: {said}.") from error
        except BaseException:
            self.engine.dispose()
            raise

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of this machine."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for questions; all of them see the same state."""
        with self.engine.connect().execution_options(bayesdrop_reads=True) as connection:
            yield connection

    @contextmanager
    def write(self, *, alone: bool = False) -> Iterator[Connection]:
        """A transaction: at its end all of it is on the disk, after an exception none of it.

        Args:
            alone: no other transaction of this kind runs at the same time, in any process.
        """
        with self.engine.begin() as connection:
            if alone and not self.is_sqlite:
                connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _CLAIM})
            yield connection

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ValueError(must("serve", "database", "a URL, as sqlite:///desk.sqlite", url)) from error
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return _sqlite(parsed)
    if kind != "postgresql":
        raise ValueError(must("serve", "database", "an SQLite or PostgreSQL URL", kind))
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    require("psycopg", extra="postgres", owner="bayesdrop serve")
    try:
        return create_engine(parsed, pool_pre_ping=True, pool_size=10)
    except NoSuchModuleError as error:
        raise ValueError(must("serve", "database", "postgresql+psycopg://...", parsed.drivername)) from error


def _sqlite(url: Any) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise ValueError(must("serve", "database", "a file: what is in memory is lost", "sqlite in memory"))
    Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        # Transactions are begun below, not by the driver, which would leave tables' changes out of them.
        connection.isolation_level = None
        # Not every SQLite is built with it.
        connection.create_function("floor", 1, math.floor, deterministic=True)
        cursor = connection.cursor()
        cursor.execute("pragma journal_mode = wal")
        # A commit waits until the disk has it.
        cursor.execute("pragma synchronous = full")
        cursor.execute("pragma foreign_keys = on")
        cursor.execute("pragma busy_timeout = 30000")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that will write takes its lock at once: one that reads first could not get it later.
        reads = connection.get_execution_options().get("bayesdrop_reads", False)
        connection.exec_driver_sql("begin" if reads else "begin immediate")

    return engine
