"""A progress bar on long work, where a person is watching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bayesdrop.errors import require

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(label: str, total: int | None, *, show: bool) -> Iterator[Callable[[int, str], None]]:
    """Yields `advance(steps, note)`. Draws with rich on standard error; silent if not `show`.

    Args:
        label: what is going on.
        total: number of steps; None if it is not known.
        show: whether to draw anything.
    """
    if not show:
        yield lambda steps, note: None
        return
    bars = require("rich.progress", extra="cli", owner="progress=True")
    console = require("rich.console", extra="cli", owner="progress=True").Console(stderr=True)
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}"),
    )
    with bars.Progress(*columns, console=console, transient=False) as progress:
        task = progress.add_task(label, total=total, note="")
        yield lambda steps, note: progress.update(task, advance=steps, note=note)
