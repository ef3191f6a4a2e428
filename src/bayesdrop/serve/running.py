"""run(): a server from start to graceful stop."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

from bayesdrop.errors import require
from bayesdrop.serve.app import create_app
from bayesdrop.serve.settings import ServeSettings, is_loopback
from bayesdrop.serve.store import Store

__all__ = ["check_address", "run"]


def check_address(settings: ServeSettings, store: Store) -> None:
    """Raise if others than this machine would get in without a token.

    Args:
        settings: of the server.
        store: that knows the tokens.
    """
    if not is_loopback(settings.host) and not store.people.have_tokens():
        raise ValueError(
            f"the address {settings.host} can be reached by others, and nobody has a token yet. Give out the "
            "first with: bayesdrop people MODEL --add NAME --role admin"
        )


def run(settings: ServeSettings, *, say: Callable[[str], None] = print) -> None:
    """Serve until SIGINT or SIGTERM; then finish what was accepted.

    Args:
        settings: how.
        say: is told the address when the server is ready.
    """
    uvicorn: Any = require("uvicorn", extra="serve", owner="bayesdrop serve")
    with Store(settings.url) as store:
        check_address(settings, store)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    app = create_app(settings)

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                # What is there by now stays: to look through all of it again and again for what can be
                # thrown away stops every answer for a quarter of a second.
                gc.collect()
                gc.freeze()
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                record = app.state.service.registry.current.record
                say(f"{record.name}, version {record.version}, answers at http://{shown}:{port}")
                say(f"The desk: http://{shown}:{port}/desk")

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(settings.stop_after)),
        backlog=2048,
    )
    Server(config).run()
