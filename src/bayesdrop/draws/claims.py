"""Threads take turns on modules that a draw must change in place, or whose tensors a pass may write to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["OPEN", "RUNNING"]

#: the thread, and in it the task of asyncio, if any
_Holder = tuple[int, int | None]


class Claims:
    """Which modules are whose at the moment.

    Args:
        purpose: what a module is claimed for, in the words of an error.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._free = threading.Condition()
        self._busy: dict[nn.Module, _Holder] = {}

    @contextmanager
    def claimed(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """All of some modules for this thread alone. Others who want one wait; the holder may ask again."""
        wanted = set(modules)
        me = (threading.get_ident(), _task())
        with self._free:
            while others := {self._busy[module] for module in wanted if self._busy.get(module, me) != me}:
                if any(thread == me[0] for thread, _ in others):
                    raise RuntimeError(
                        f"FunctionDraw: {self._purpose} in another task of this thread. "
                        "Leave it before the next await, or use threads."
                    )
                self._free.wait()
            mine = [module for module in wanted if module not in self._busy]
            self._busy.update(dict.fromkeys(mine, me))
        try:
            yield
        finally:
            with self._free:
                for module in mine:
                    del self._busy[module]
                self._free.notify_all()


#: models on which a draw is open, which sets their flags
OPEN = Claims("a draw of this model is open")
#: models of which a pass is running, which may write to their tensors and puts back what it wrote
RUNNING = Claims("a pass of this model is running")


def _task() -> int | None:
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else id(task)
