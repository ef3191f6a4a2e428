"""Scores of rows from inside the distribution against those of rows from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesdrop.errors import must, must_be_flag, whole_number
from bayesdrop.plots.checks import Numbers, Values, check_axes, row_numbers
from bayesdrop.plots.style import BLUE, COLORS, dress, from_zero, reference_line

__all__ = ["plot_roc", "plot_score_histograms"]


def plot_score_histograms(
    ax: Any,
    inside: Values,
    outside: Values,
    *,
    bins: int = 30,
    labels: tuple[str, str] = ("inside", "outside"),
    colors: Sequence[Any] = COLORS,
    log: bool = False,
    counts: bool = False,
) -> Any:
    """Histograms of a score on two sets of rows, as shares of each set or as numbers of rows.

    Args:
        ax: matplotlib axes.
        inside: (N,) scores of rows like the training data, from `metrics.uncertainty`, say.
        outside: (M,) scores of rows that are not.
        bins: how many, over the range of both sets.
        labels: of the two sets, for a legend.
        colors: of the two sets.
        log: a logarithmic axis, which shows the tails.
        counts: numbers of rows instead of shares; one of the sets may then be empty.

    Returns: the axes.
    """
    owner = "plot_score_histograms"
    check_axes(owner, ax)
    must_be_flag(owner, log=log, counts=counts)
    one_empty = counts and (len(inside) == 0) != (len(outside) == 0)
    sets = [
        np.empty(0) if one_empty and not len(values) else row_numbers(owner, name, values)
        for name, values in (("inside", inside), ("outside", outside))
    ]
    bins = whole_number(owner, "bins", bins, at_least=1)
    if len(labels) != 2 or len(colors) < 2:
        raise ValueError(must(owner, "labels", "two, and two colours", (tuple(labels), tuple(colors))))
    edges = np.histogram_bin_edges(np.concatenate(sets), bins)
    for values, label, color in zip(sets, labels, colors, strict=False):
        height = np.histogram(values, edges)[0] / (1 if counts else len(values))
        ax.stairs(height, edges, fill=True, color=color, alpha=0.3, linewidth=0)
        ax.stairs(height, edges, color=color, linewidth=1.4, label=label)
    ax.set_xlim(edges[0], edges[-1])
    if log:
        # Below one row of the larger set, so that no bar is cut off.
        most = max(len(values) for values in sets)
        ax.set_yscale("log")
        ax.set_ylim((0.5, 1.3 * most) if counts else (0.5 / most, 1.3))
    else:
        from_zero(ax)
    dress(ax, xlabel="score", ylabel="rows" if counts else "share of rows")
    return ax


def plot_roc(ax: Any, inside: Values, outside: Values, *, color: Any = BLUE, label: str | None = None) -> Any:
    """Share of rows from outside that are found, against share of rows from inside that are taken for them.

    Every threshold of the score is one point. Equal scores make a slope, so that the area under the line
    is `metrics.ood_auroc`: the chance that a row from outside has the higher score, ties counting half.

    Args:
        ax: matplotlib axes.
        inside: (N,) scores of rows like the training data, from `metrics.uncertainty`, say.
        outside: (M,) scores of rows that are not.
        color: of the line.
        label: of the line, for a legend.

    Returns: the axes.
    """
    owner = "plot_roc"
    check_axes(owner, ax)
    within, without = row_numbers(owner, "inside", inside), row_numbers(owner, "outside", outside)
    thresholds = np.unique(np.concatenate([within, without]))[::-1]
    reference_line(ax, label="chance")
    taken, found = _at_least(within, thresholds), _at_least(without, thresholds)
    ax.plot(taken, found, color=color, linewidth=1.6, label=label, zorder=3)
    ax.set(xlim=(-0.01, 1), ylim=(0, 1.01))
    dress(ax, xlabel="share of inside taken for outside", ylabel="share of outside found")
    return ax


def _at_least(values: Numbers, thresholds: Numbers) -> Numbers:
    """0, and then the share of values that reach each threshold."""
    below = np.searchsorted(np.sort(values), thresholds)
    return np.concatenate([[0.0], 1 - below / len(values)])
