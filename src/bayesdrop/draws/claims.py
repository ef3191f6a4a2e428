"""Threads take turns on a model whose flags and state a draw must change in place."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["claimed"]

#: the thread, and in it the task of asyncio, if any
_Holder = tuple[int, int | None]
_free = threading.Condition()
_busy: dict[nn.Module, _Holder] = {}


@contextmanager
def claimed(modules: Iterable[nn.Module]) -> Iterator[None]:
    """All of some modules for this thread alone. Others who want one wait; the holder may ask again."""
    wanted = set(modules)
    me = (threading.get_ident(), _task())
    with _free:
        while others := {_busy[module] for module in wanted if _busy.get(module, me) != me}:
            if any(thread == me[0] for thread, _ in others):
                raise RuntimeError(
                    "FunctionDraw: a draw of this model is open in another task of this thread. "
                    "Leave it before the next await, or use threads."
                )
            _free.wait()
        mine = [module for module in wanted if module not in _busy]
        _busy.update(dict.fromkeys(mine, me))
    try:
        yield
    finally:
        with _free:
            for module in mine:
                del _busy[module]
            _free.notify_all()


def _task() -> int | None:
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else id(task)
