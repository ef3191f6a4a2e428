"""Store: all that a server remembers, each part under its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.events import Events
from bayesdrop.serve.store.overview import Overview
from bayesdrop.serve.store.people import People
from bayesdrop.serve.store.queue import Queue
from bayesdrop.serve.store.records import NewRequest
from bayesdrop.serve.store.requests import Requests
from bayesdrop.serve.store.versions import Versions

__all__ = ["Store"]


class Store:
    """The database of a server. Every method is safe in any thread, and blocks: call it in one.

    What a method has written when it returns is on the disk.

    Attributes:
        requests: what was asked: `add`, `by_key`, `get`.
        queue: what people are asked: `next_item`, `label`, `skip`, `undo`, `ask_opinions`, `withdraw`,
            `release_expired`.
        people: `add`, `renew`, `disable`, `by_token`, `log_in`, `by_cookie`.
        versions: of the model: `add`, `activate`, `active`, `before`, `all`.
        overview: `counts`, `spans`, `per_person`, `labelled`, `items`.
        events: `add`, `latest`.

    Args:
        url: sqlite:///FILE or postgresql+psycopg://...; an older schema is migrated.
        lease: seconds that an item belongs to the person who got it.
        random_every: every so-many-th item that is handed out was picked at random.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float = 300.0,
        random_every: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.database = Database(url, clock=clock)
        self.requests = Requests(self.database)
        self.queue = Queue(self.database, lease=lease, random_every=random_every)
        self.people = People(self.database)
        self.versions = Versions(self.database)
        self.overview = Overview(self.database)
        self.events = Events(self.database)

    def add(self, requests: Sequence[NewRequest]) -> None:
        """Write requests with their items and predictions in one transaction."""
        self.requests.add(requests)

    def now(self) -> float:
        """Seconds since 1970."""
        return self.database.clock()

    def close(self) -> None:
        """Give back all connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
