"""Ctrl-C and SIGTERM: a sentence and an exit code, wherever the program is."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["clean_stops"]


@contextmanager
def clean_stops() -> Iterator[None]:
    """Both signals raise KeyboardInterrupt, and the program exits with 130 (Ctrl-C) or 143 (SIGTERM).

    A library that is interrupted while it is imported may raise another error, such as ImportError, which is
    then not shown.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemExit as error:
        # With exit code 0 the work was done already.
        if came and error.code:
            raise SystemExit(128 + came[-1]) from None
        raise
    except BaseException:
        if not came:
            raise
        print("Stopped.", file=sys.stderr)
        raise SystemExit(128 + came[-1]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
