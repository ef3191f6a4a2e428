"""Mean ranks with what resampling says of them, and coverage against width."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["draw"]

_NUMBERS = {"log_likelihood": "log-likelihood", "crps": "CRPS", "rmse": "RMSE"}
_CLASSES = {"log_loss": "log-loss", "brier": "Brier score", "accuracy": "accuracy"}


def draw(outcome: Outcome) -> Any:
    """Three panels, of the tables kept aside."""
    figure = new_figure(15, 4.8)
    numbers, classes, intervals = figure.subplots(1, 3)
    for axes, metrics, what in ((numbers, _NUMBERS, "numbers"), (classes, _CLASSES, "classes")):
        _ranks(axes, outcome, metrics)
        finish_axes(axes, legend={"fontsize": 8}, title=f"Tables of {what}", xlabel="mean rank; 1 is best")
    _coverage(intervals, outcome)
    return figure


def _ranks(axes: Any, outcome: Outcome, metrics: dict[str, str]) -> None:
    """A line a contender, a mark a metric."""
    names = outcome.arrays["contenders"]
    for place, (metric, title) in enumerate(metrics.items()):
        found = outcome.arrays.get(f"ranks|{metric}", [])
        heights = [names.index(row[0]) + 0.22 * (place - 1) for row in found]
        means = np.array([row[1] for row in found], dtype=float)
        ends = np.array([[row[1] - row[2], row[3] - row[1]] for row in found], dtype=float).reshape(-1, 2).T
        axes.errorbar(means, heights, xerr=ends, fmt="o", markersize=4, color=f"C{place}", label=title)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()


def _coverage(axes: Any, outcome: Outcome) -> None:
    """A small point a table, a large one a contender."""
    arrays = outcome.arrays
    rows = np.array(arrays["aside"], dtype=bool) & (np.array(arrays["kinds"]) == "regression")
    for place, name in enumerate(arrays["contenders"]):
        covered = 100 * arrays["values|coverage"][rows, place]
        width = arrays["values|width"][rows, place]
        known = ~np.isnan(covered)
        if known.any():
            axes.plot(width[known], covered[known], ".", color=f"C{place}", markersize=3, alpha=0.5)
            middle, mean = np.median(width[known]), covered[known].mean()
            axes.plot(middle, mean, "o", color=f"C{place}", markersize=8, label=name)
    axes.axhline(95, color="0.5", linewidth=0.8)
    finish_axes(
        axes, legend={"fontsize": 7}, title="95 % intervals", ylabel="targets inside (%)",
        xlabel="width, as a part of the targets' own 95 % range",
    )  # fmt: skip
