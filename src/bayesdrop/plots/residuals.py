"""Predicted numbers against targets: residuals by predicted std, intervals row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from bayesdrop.errors import must
from bayesdrop.plots.checks import (
    Values,
    check_axes,
    check_output,
    check_prediction,
    output_numbers,
    row_numbers,
    target_numbers,
)
from bayesdrop.plots.style import BLUE, INK, MUTED, ORANGE, dress, from_zero
from bayesdrop.predict import Prediction

__all__ = ["plot_intervals", "plot_predicted", "plot_residuals"]

Order = Literal["target", "mean", "width"]


def plot_residuals(
    ax: Any,
    prediction: Prediction | tuple[Values, Values],
    y: Values,
    *,
    output: int = 0,
    num_std: Sequence[float] = (1.0, 2.0),
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """Distance of targets from the mean against the predicted std, with which it should grow.

    Args:
        ax: matplotlib axes.
        prediction: of numbers; or the pair (mean, std) of one output, (N,) each.
        y: (N,) or (N, D) targets.
        output: which of the D outputs.
        num_std: lines at k std; below that of k = 2 lie 95 % of the residuals of a Gaussian.
        color: of the dots.
        label: of the dots, for a legend.

    Returns: the axes.
    """
    owner = "plot_residuals"
    check_axes(owner, ax)
    if isinstance(prediction, tuple) and len(prediction) == 2:
        mean, std = (row_numbers(owner, "prediction", part) for part in prediction)
        target = row_numbers(owner, "y", y, len(mean), like="prediction")
        if len(std) != len(mean) or (std < 0).any():
            raise ValueError(must(owner, "prediction", "a mean and a std of 0 or more a row", prediction))
    else:
        check_prediction(owner, prediction, classes=False)
        check_output(owner, prediction, output)
        target = target_numbers(owner, y, prediction, output)
        mean = output_numbers(owner, "prediction.mean", prediction.mean, output)
        std = output_numbers(owner, "prediction.std", prediction.std, output)
    if any(not 0 < k < float("inf") for k in num_std):
        raise ValueError(must(owner, "num_std", "positive numbers", tuple(num_std)))
    room = 0.15 * (std.max() - std.min()) or 0.1 * std.max() or 1.0
    ends = np.array([0.0, std.max() + room])
    for k, style in zip(sorted(num_std), ("-", "--", "-.", ":") * len(num_std), strict=False):
        ax.plot(ends, k * ends, color=MUTED, linewidth=1, linestyle=style, label=f"{k:g} std", zorder=1)
    ax.plot(
        std,
        np.abs(target - mean),
        linestyle="none",
        marker="o",
        markersize=3.5,
        markeredgewidth=0,
        alpha=0.5,
        color=color,
        label=label,
        zorder=3,
    )
    ax.set_xlim(max(0.0, std.min() - room), ends[1])
    from_zero(ax)
    dress(ax, xlabel="predicted std", ylabel="|target - mean|")
    return ax


def plot_predicted(
    ax: Any,
    mean: Values,
    y: Values,
    *,
    interval: tuple[Values, Values] | None = None,
    color: Any = BLUE,
    missed: Any = ORANGE,
) -> Any:
    """Predicted against actual numbers, a dot and its interval for every row; on the diagonal they agree.

    An interval holds its target where it crosses the diagonal; those that do not stand out.

    Args:
        ax: matplotlib axes.
        mean: (N,) predicted.
        y: (N,) targets.
        interval: lower and upper ends, (N,) each; none are drawn if None.
        color: of dots and intervals.
        missed: the colour of rows whose interval does not hold the target.

    Returns: the axes.
    """
    owner = "plot_predicted"
    check_axes(owner, ax)
    target = row_numbers(owner, "y", y)
    given = row_numbers(owner, "mean", mean, len(target), like="y")
    inside = np.ones(len(target), dtype=bool)
    if interval is not None:
        if not isinstance(interval, tuple) or len(interval) != 2:
            raise TypeError(must(owner, "interval", "a pair of lower and upper ends, or None", interval))
        lower, upper = (row_numbers(owner, "interval", end, len(target), like="y") for end in interval)
        inside = (lower <= target) & (target <= upper)
        for rows, tint in ((inside, color), (~inside, missed)):
            ax.vlines(target[rows], lower[rows], upper[rows], color=tint, alpha=0.35, linewidth=1, zorder=1)
    ends = [min(target.min(), given.min()), max(target.max(), given.max())]
    ax.plot(ends, ends, color=MUTED, linewidth=1, linestyle="--", label="predicted = actual", zorder=2)
    dots = {"linestyle": "none", "marker": "o", "markersize": 3.5, "markeredgewidth": 0, "zorder": 3}
    ax.plot(target[inside], given[inside], color=color, alpha=0.7, **dots)
    if not inside.all():
        name = "interval misses the target"
        ax.plot(target[~inside], given[~inside], color=missed, label=name, **dots)
    dress(ax, xlabel="actual", ylabel="predicted")
    return ax


def plot_intervals(
    ax: Any,
    prediction: Prediction,
    y: Values,
    *,
    output: int = 0,
    level: float = 0.95,
    order: Order = "target",
    color: Any = BLUE,
    missed: Any = ORANGE,
) -> Any:
    """The central interval and the target of every row; targets outside are drawn in another colour.

    Args:
        ax: matplotlib axes.
        prediction: of numbers, with its draws kept.
        y: (N,) or (N, D) targets.
        output: which of the D outputs.
        level: probability of the intervals.
        order: of the rows: by their "target", by their predicted "mean", or by the "width" of their interval.
        color: of intervals.
        missed: the colour of targets outside their interval.

    Returns: the axes.
    """
    owner = "plot_intervals"
    check_axes(owner, ax)
    check_prediction(owner, prediction, classes=False)
    check_output(owner, prediction, output)
    target = target_numbers(owner, y, prediction, output)
    if not 0 < level < 1:
        raise ValueError(must(owner, "level", "in (0, 1)", level))
    ends = prediction.interval(level)
    lower, upper = (output_numbers(owner, "prediction.interval", end, output) for end in ends)
    mean = output_numbers(owner, "prediction.mean", prediction.mean, output)
    keys = {"target": target, "mean": mean, "width": upper - lower}
    if order not in keys:
        raise ValueError(must(owner, "order", f"one of {', '.join(keys)}", order))
    rows = keys[order].argsort(kind="stable")
    place = np.arange(1, len(rows) + 1)
    lower, upper, mean, target = lower[rows], upper[rows], mean[rows], target[rows]
    inside = (lower <= target) & (target <= upper)
    # Lines of neighbours do not touch on axes of the usual width, some 400 points.
    width = float(np.clip(220 / len(rows), 0.5, 4))
    name = f"{100 * level:g} % interval"
    ax.vlines(place, lower, upper, color=color, alpha=0.4, linewidth=width, label=name, zorder=1)
    dots = {"linestyle": "none", "marker": "o", "markersize": 3, "markeredgewidth": 0, "zorder": 3}
    ax.plot(place, mean, linestyle="none", marker="_", markersize=4, color=color, label="mean", zorder=2)
    ax.plot(place[inside], target[inside], color=INK, label="target inside", **dots)
    ax.plot(place[~inside], target[~inside], color=missed, label="target outside", **dots)
    ax.set_xlim(0, len(rows) + 1)
    dress(ax, xlabel=f"row, by {order}", ylabel="target")
    return ax
