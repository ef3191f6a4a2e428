"""Curves of several runs: their mean, a band, and each run as a thin line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from bayesdrop.errors import is_one_of, must
from bayesdrop.plots.checks import Numbers, Values, check_axes, numbers, row_numbers
from bayesdrop.plots.style import BLUE, dress

__all__ = ["Band", "draw_runs", "plot_runs"]

Band = Literal["range", "std", "error"]


def plot_runs(
    ax: Any,
    x: Values,
    values: Values | Sequence[Values],
    *,
    band: Band | None = "range",
    runs: bool = False,
    color: Any = BLUE,
    style: str = "-",
    label: str | None = None,
) -> Any:
    """The mean of several runs as a line over steps, sizes, trials or any ordered quantity.

    Args:
        ax: matplotlib axes.
        x: (S,) positions of the values.
        values: (S,), or (R, S) of R runs; or R sequences of at most S, which are averaged up to the end of
            the shortest.
        band: from the lowest to the highest run ("range"), the mean +- their standard deviation ("std"), or
            +- the standard error of the mean ("error"). None, and a single run, have no band.
        runs: draw every run as a thin line, to its end.
        color: of lines and band.
        style: matplotlib's short form of line and markers, as "-", "o-" or "--".
        label: of the mean, for a legend.

    Returns: the axes.
    """
    draw_runs("plot_runs", "x", ax, x, values, band=band, runs=runs, color=color, style=style, label=label)
    dress(ax)
    return ax


def draw_runs(
    owner: str,
    argument: str,
    ax: Any,
    x: Values,
    values: Values | Sequence[Values],
    *,
    band: Band | None,
    runs: bool,
    color: Any,
    style: str,
    label: str | None,
) -> None:
    """Draw as `plot_runs` does, for a function whose argument `x` has another name."""
    check_axes(owner, ax)
    places = row_numbers(owner, argument, x)
    if not is_one_of(band, ("range", "std", "error", None)):
        raise ValueError(must(owner, "band", "one of range, std, error, or None", band))
    curves = _curves(owner, values)
    longest, length = max(len(curve) for curve in curves), min(len(curve) for curve in curves)
    if longest > len(places):
        raise ValueError(must(owner, "values", f"of at most {len(places)} steps, as `{argument}`", longest))
    table = np.stack([curve[:length] for curve in curves])
    mean = table.mean(0)
    if band is not None and len(curves) > 1:
        low, high = _edges(table, mean, band)
        ax.fill_between(places[:length], low, high, color=color, alpha=0.18, linewidth=0, zorder=1)
    if runs and len(curves) > 1:
        for curve in curves:
            ax.plot(places[: len(curve)], curve, color=color, linewidth=0.7, alpha=0.5, zorder=2)
    ax.plot(places[:length], mean, style, color=color, linewidth=1.7, markersize=4, label=label, zorder=3)


def _curves(owner: str, values: Any) -> list[Numbers]:
    """One array a run."""
    nested = isinstance(values, list | tuple) and len(values) and all(np.ndim(part) == 1 for part in values)
    if nested:
        return [numbers(owner, f"values[{index}]", part, 1) for index, part in enumerate(values)]
    table = numbers(owner, "values", values, 1, 2)
    return list(table.reshape(-1, table.shape[-1]))


def _edges(table: Numbers, mean: Numbers, band: Band) -> tuple[Numbers, Numbers]:
    if band == "range":
        return table.min(0), table.max(0)
    width = table.std(0, ddof=1)
    if band == "error":
        width = width / np.sqrt(len(table))
    return mean - width, mean + width
