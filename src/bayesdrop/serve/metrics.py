"""Metrics: what a server counts of itself, as Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bayesdrop.serve.served import Answers

__all__ = ["Meter", "Metrics"]

#: ends of the intervals that are counted
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
#: name, kind, what it tells
_TEXTS = {
    "bayesdrop_requests_total": ("counter", "Requests by route and status."),
    "bayesdrop_request_seconds": ("histogram", "Seconds from a request to the end of its answer."),
    "bayesdrop_rows_total": ("counter", "Rows that were answered."),
    "bayesdrop_deferred_total": ("counter", "Rows that were handed to a person."),
    "bayesdrop_uncertainty_sum": ("counter", "Sum of the uncertainties, 0 to 1, of all rows."),
    "bayesdrop_batch_rows": ("histogram", "Rows that ran as one batch."),
    "bayesdrop_rows_waiting": ("gauge", "Rows that were accepted and not answered yet."),
    "bayesdrop_items": ("gauge", "Items by state."),
    "bayesdrop_model_version": ("gauge", "The version that answers."),
}


class Metrics:
    """Counters and histograms. Any thread may add to them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
        self._histograms: dict[tuple[str, tuple[tuple[str, str], ...]], _Histogram] = {}

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += value

    def observe(self, name: str, value: float, ends: Sequence[float] = _SECONDS, **labels: str) -> None:
        """Count a value of a histogram."""
        with self._lock:
            self._histograms.setdefault((name, tuple(labels.items())), _Histogram(ends)).add(value)

    def answered(self, answers: Answers) -> None:
        """Count a batch."""
        self.add("bayesdrop_rows_total", len(answers))
        self.add("bayesdrop_deferred_total", float(answers.defer.sum()))
        self.add("bayesdrop_uncertainty_sum", float(answers.uncertainty.sum()))
        self.observe("bayesdrop_batch_rows", len(answers), _ROWS)

    def text(self, gauges: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]) -> str:
        """All of them in the text format of Prometheus.

        Args:
            gauges: values of the moment, by name and labels.
        """
        lines: list[str] = []
        with self._lock:
            for name, (kind, told) in _TEXTS.items():
                lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
                lines += [_line(name, labels, v) for (own, labels), v in self._counts.items() if own == name]
                lines += [_line(name, labels, v) for labels, v in gauges.get(name, {}).items()]
                for (own, labels), histogram in self._histograms.items():
                    if own == name:
                        lines += histogram.lines(name, labels)
        return "\n".join(lines) + "\n"


class _Histogram:
    def __init__(self, ends: Sequence[float]) -> None:
        self._ends, self._counts, self._sum = ends, [0] * (len(ends) + 1), 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._ends, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: tuple[tuple[str, str], ...]) -> list[str]:
        made, total = [], 0
        for end, count in zip((*map(str, self._ends), "+Inf"), self._counts, strict=True):
            total += count
            made.append(_line(f"{name}_bucket", (*labels, ("le", end)), total))
        return [*made, _line(f"{name}_sum", labels, self._sum), _line(f"{name}_count", labels, total)]


def _line(name: str, labels: tuple[tuple[str, str], ...], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{shown}}} {value:.10g}" if shown else f"{name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Meter:
    """Counts requests and their seconds, by route.

    Args:
        app: what comes behind.
        metrics: where they are counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            # By route, not by path: names in a path are a caller's, and there is no end of them.
            route: Any = scope.get("route")
            path = str(getattr(route, "path", "other"))
            self._metrics.add("bayesdrop_requests_total", route=path, status=str(status))
            self._metrics.observe("bayesdrop_request_seconds", perf_counter() - started, route=path)
