"""Switches of the whole process that several threads want turned at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["ProcessSwitch"]


class ProcessSwitch:
    """A context: the first thread that enters turns the switch, the last that leaves turns it back.

    Each for itself would leave it turned, where the first to enter is the first to leave.

    Args:
        turn: turns the switch and gives what turns it back.
    """

    def __init__(self, turn: Callable[[], Callable[[], Any]]) -> None:
        self._turn = turn
        self._back: Callable[[], Any] = lambda: None
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._back = self._turn()
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._back()
