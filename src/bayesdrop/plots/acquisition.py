"""What labels buy: a score against the number of labels, over repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from bayesdrop.errors import is_one_of, must
from bayesdrop.plots.checks import Numbers, Values, check_axes, numbers, row_numbers
from bayesdrop.plots.style import BLUE, dress

__all__ = ["plot_acquisition"]

Band = Literal["range", "std", "error"]


def plot_acquisition(
    ax: Any,
    labels: Values,
    values: Values | Sequence[Values],
    *,
    band: Band | None = "range",
    runs: bool = False,
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """The mean of repeats of active learning, and a band over them.

    Args:
        ax: matplotlib axes.
        labels: (S,) how many labels had been asked for.
        values: (S,) or (R, S) accuracies, say, of R repeats; or R sequences of at most S, which are averaged
            as far as all of them go.
        band: from the lowest to the highest repeat ("range"), the mean +- their standard deviation ("std"),
            or +- the standard error of the mean ("error"). None, and a single repeat, have no band.
        runs: draw every repeat as a thin line, as far as it goes.
        color: of lines and band.
        label: of the mean, for a legend.

    Returns: the axes.
    """
    owner = "plot_acquisition"
    check_axes(owner, ax)
    places = row_numbers(owner, "labels", labels)
    if not is_one_of(band, ("range", "std", "error", None)):
        raise ValueError(must(owner, "band", "one of range, std, error, or None", band))
    curves = _curves(owner, values)
    longest, length = max(len(curve) for curve in curves), min(len(curve) for curve in curves)
    if longest > len(places):
        raise ValueError(must(owner, "values", f"of at most {len(places)} steps, as `labels`", longest))
    table = np.stack([curve[:length] for curve in curves])
    mean = table.mean(0)
    if band is not None and len(curves) > 1:
        low, high = _edges(table, mean, band)
        ax.fill_between(places[:length], low, high, color=color, alpha=0.18, linewidth=0, zorder=1)
    if runs:
        for curve in curves:
            ax.plot(places[: len(curve)], curve, color=color, linewidth=0.7, alpha=0.6, zorder=2)
    ax.plot(places[:length], mean, color=color, linewidth=1.8, label=label, zorder=3)
    dress(ax, xlabel="labels asked for", ylabel="accuracy")
    return ax


def _curves(owner: str, values: Any) -> list[Numbers]:
    """One array a repeat."""
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
