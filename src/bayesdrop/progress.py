"""How far long work has come: a bar where a person is watching, a plain line now and then in a file."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bayesdrop.errors import require

__all__ = ["progress_bar"]

#: seconds from one line to the next
_PAUSE = 10.0


@contextmanager
def progress_bar(
    label: str, total: int | None, *, show: bool | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, str], None]]:
    """Yields `advance(steps, note)`, which shows on standard error how far the work is.

    In a terminal a bar, drawn with rich. Elsewhere a plain line at most every ten seconds and at the end.

    Args:
        label: what is going on.
        total: number of steps; None if it is not known.
        show: whether to show anything. None: a bar where a terminal and rich are there; else lines, but of
            work that takes more than ten seconds alone.
        clock: gives seconds.
    """
    if show is False:
        yield lambda steps, note: None
        return
    if sys.stderr.isatty() and (show or importlib.util.find_spec("rich") is not None):
        with _bar(label, total) as advance:
            yield advance
        return
    lines = _Lines(label, total, clock, always=show is True)
    yield lines.advance
    lines.end()


class _Lines:
    def __init__(self, label: str, total: int | None, clock: Callable[[], float], *, always: bool) -> None:
        self._label, self._total, self._clock = label, "" if total is None else f"/{total}", clock
        self._due = always
        self._done, self._note = 0, ""
        self._start = self._latest = clock()
        self._shown: tuple[int, str] | None = None

    def advance(self, steps: int, note: str) -> None:
        self._done, self._note = self._done + steps, note
        now = self._clock()
        if now - self._latest >= _PAUSE:
            self._latest, self._due = now, True
            self._say(now)

    def end(self) -> None:
        """The last line, unless it was said already or the work was short."""
        if self._due and self._shown != (self._done, self._note):
            self._say(self._clock())

    def _say(self, now: float) -> None:
        self._shown = self._done, self._note
        parts = [f"{self._label} {self._done}{self._total}", *filter(None, [self._note])]
        seconds = f"{now - self._start:.0f} s"
        print(", ".join([*parts, seconds]), file=sys.stderr, flush=True)


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    bars = require("rich.progress", extra="cli", owner="progress=True")
    console = require("rich.console", extra="cli", owner="progress=True").Console(stderr=True)
    # The note takes the room that is left, and no second line.
    table = require("rich.table", extra="cli", owner="progress=True")
    rest = table.Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=20),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}", table_column=rest),
    )
    with bars.Progress(*columns, console=console, transient=False, expand=True) as progress:
        task = progress.add_task(label, total=total, note="")
        yield lambda steps, note: progress.update(task, advance=steps, note=note)
