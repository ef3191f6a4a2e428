"""The pictures of the dashboard: inline SVG, drawn on the server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from threading import Lock, Thread
from typing import Any

import numpy as np
from markupsafe import Markup

from bayesdrop.plots import COLORS, finish_axes, inline_svg, new_figure, plot_promise, plot_reliability
from bayesdrop.serve.promises import Drift, Period, PromiseCurve
from bayesdrop.serve.store.overview import Span

__all__ = [
    "calibration_chart",
    "deferred_chart",
    "doubt_chart",
    "drift_chart",
    "get_ready",
    "people_chart",
    "promise_chart",
]

_BLUE, _ORANGE, _GREEN = COLORS[:3]
_GREY = "#666666"
_LONGEST = 24
_DRAWING = Lock()


@cache
def get_ready() -> None:
    """Draw a first picture in the background, once: it takes far longer than all that follow."""
    Thread(target=_drawn, args=(lambda ax: finish_axes(ax, grid=True),), daemon=True).start()


def promise_chart(found: Sequence[Period], what: str) -> Markup:
    """Accuracy or coverage, period by period, beside the promise.

    Args:
        found: periods.
        what: is kept: "accuracy", or "coverage".
    """

    def draw(ax: Any) -> None:
        places = np.arange(len(found))
        share, promised = [one.share for one in found], [one.promised for one in found]
        plot_promise(ax, places, share, promised, [one.count for one in found], label=what)
        ax.set_ylim(min(0.5, *(max(0.0, one.share - 0.1) for one in found)), 1.03)
        ax.set_xlim(-0.5, len(found) - 0.5)
        _times(ax, places, [one.middle for one in found])
        finish_axes(ax, legend="lower left", grid="y")

    return _drawn(draw)


def calibration_chart(curve: PromiseCurve, numbers: bool) -> Markup:
    """Confidence against accuracy, or levels against coverage."""

    def draw(ax: Any) -> None:
        plot_reliability(ax, curve)
        if numbers:
            ax.set(xlabel="level of the interval", ylabel="share inside")
        finish_axes(ax, grid=True)

    return _drawn(draw, height=3.4)


def deferred_chart(spans: Sequence[Span]) -> Markup:
    """The share of rows that went to people."""

    def draw(ax: Any) -> None:
        places = np.arange(len(spans))
        ax.bar(places, [span.deferred / span.items for span in spans], color=_BLUE, width=0.75)
        ax.set_ylim(0, max(0.05, *(1.15 * span.deferred / span.items for span in spans)))
        _times(ax, places, [span.start for span in spans])
        finish_axes(ax, grid="y", ylabel="share handed over")

    return _drawn(draw)


def doubt_chart(spans: Sequence[Span]) -> Markup:
    """Mean uncertainty beside that of the first spans."""

    def draw(ax: Any) -> None:
        places = np.arange(len(spans))
        start = spans[: max(1, len(spans) // 4)]
        usual = sum(one.uncertainty * one.items for one in start) / sum(one.items for one in start)
        ax.axhline(usual, color=_GREY, linewidth=1.2, linestyle="--", label="at the start")
        ax.plot(
            places, [one.uncertainty for one in spans], color=_BLUE, marker="o", markersize=4, label="mean"
        )
        ax.set_ylim(0, max(0.1, *(1.25 * one.uncertainty for one in spans)))
        _times(ax, places, [span.start for span in spans])
        finish_axes(ax, grid="y", legend=True, ylabel="uncertainty, 0 to 1")

    return _drawn(draw)


def drift_chart(found: Sequence[Drift]) -> Markup:
    """How far columns have moved, and how far chance would move them."""

    def draw(ax: Any) -> None:
        places = np.arange(len(found))[::-1]
        colors = [_ORANGE if one.is_drift else _BLUE for one in found]
        ax.barh(places, [one.distance for one in found], color=colors, height=0.6)
        ax.vlines([one.chance for one in found], places - 0.4, places + 0.4, color=_GREY, linewidth=2)
        names = [one.name if len(one.name) <= _LONGEST else f"{one.name[: _LONGEST - 1]}…" for one in found]
        ax.set_yticks(places, names, parse_math=False)
        ax.set_xlim(0, min(1.0, max(0.2, 1.1 * max(max(one.distance, one.chance) for one in found))))
        finish_axes(ax, grid="x", xlabel="distance from the first rows; the mark is chance")

    return _drawn(draw, height=max(1.6, 0.6 + 0.28 * len(found)))


def people_chart(times: Sequence[tuple[str, float]], spans: int = 12) -> Markup:
    """Labels of each person, span by span.

    Args:
        times: who labelled and when.
        spans: how many.
    """

    def draw(ax: Any) -> None:
        moments = np.array([at for _, at in times])
        edges = np.linspace(moments.min(), moments.max() + 1e-6, spans + 1)
        per: dict[str, list[float]] = defaultdict(list)
        for name, at in times:
            per[name].append(at)
        busiest = sorted(per, key=lambda name: -len(per[name]))
        base = np.zeros(spans)
        for place, name in enumerate(busiest[: len(COLORS)]):
            rest = busiest[len(COLORS) - 1 :] if place == len(COLORS) - 1 else [name]
            counts = np.histogram([at for one in rest for at in per[one]], edges)[0]
            shown = name if len(rest) == 1 else f"{len(rest)} others"
            shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
            # A name that begins with _ would not be in the legend.
            bars = ax.bar(np.arange(spans), counts, bottom=base, color=COLORS[place], width=0.8)
            bars.set_label(f"\u200b{shown}".replace("$", r"\$"))
            base = base + counts
        _times(ax, np.arange(spans), edges[:-1].tolist())
        ax.yaxis.get_major_locator().set_params(integer=True)
        finish_axes(ax, grid="y", legend=True, ylabel="labels")

    return _drawn(draw)


def _times(ax: Any, places: Any, moments: Sequence[float]) -> None:
    """Times below some of the places: hours within two days, days otherwise."""
    shown = range(0, len(places), max(1, -(-len(places) // 5)))
    whole = max(moments) - min(moments)
    form = "%H:%M:%S" if whole < 600 else "%H:%M" if whole < 86_400 else "%d %b"
    if len(places) == 1:
        form = "%d %b, %H:%M"
    texts = [f"{datetime.fromtimestamp(moments[place], UTC):{form}}" for place in shown]
    ax.set_xticks([places[place] for place in shown], texts)


def _drawn(draw: Callable[[Any], None], height: float = 2.6) -> Markup:
    figure = new_figure(5.2, height)
    # Matplotlib's options are those of the whole process.
    with _DRAWING:
        draw(figure.subplots())
        # Our own drawing: names in it are escaped when it is written.
        return Markup(inline_svg(figure))
