"""Active learning: a score against the number of labels, over repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesdrop.plots.checks import Values
from bayesdrop.plots.runs import Band, draw_runs
from bayesdrop.plots.style import BLUE, dress

__all__ = ["plot_acquisition"]


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
    """The mean of repeats of active learning, and a band over them: `plot_runs` over numbers of labels.

    Args:
        ax: matplotlib axes.
        labels: (S,) numbers of labels at each point.
        values: (S,) or (R, S) accuracies, say, of R repeats; or R sequences of at most S, which are averaged
            up to the end of the shortest.
        band: from the lowest to the highest repeat ("range"), the mean +- their standard deviation ("std"),
            or +- the standard error of the mean ("error"). None, and a single repeat, have no band.
        runs: draw every repeat as a thin line, to its end.
        color: of lines and band.
        label: of the mean, for a legend.

    Returns: the axes.
    """
    owner = "plot_acquisition"
    draw_runs(owner, "labels", ax, labels, values, band=band, runs=runs, color=color, style="-", label=label)
    dress(ax, xlabel="labels asked for", ylabel="accuracy")
    return ax
