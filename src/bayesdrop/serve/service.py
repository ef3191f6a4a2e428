"""Service: the parts of a running server, and how they start and stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesdrop.serve.auth import Guard
from bayesdrop.serve.store import Store

if TYPE_CHECKING:
    from bayesdrop.serve.settings import Settings

__all__ = ["Service"]


class Service:
    """What routes work with; `request.app.state.service`.

    Attributes:
        settings: how it runs.
        store: what it remembers.
        guard: who may do what.

    Args:
        settings: how it runs.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.url, lease=settings.lease, random_every=settings.random_every)
        self.guard = Guard(self.store, settings.session)

    async def start(self) -> None:
        """Get ready to answer."""

    async def stop(self) -> None:
        """Finish what was accepted."""
        self.store.close()
