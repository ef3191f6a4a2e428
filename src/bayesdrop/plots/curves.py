"""Functions of one input: bands, sampled functions, data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bayesdrop.errors import must, whole_number
from bayesdrop.plots.checks import (
    Numbers,
    Values,
    check_axes,
    check_output,
    check_prediction,
    numbers,
    output_numbers,
    row_numbers,
)
from bayesdrop.plots.style import BLUE, INK, dress
from bayesdrop.predict import Prediction

__all__ = ["plot_bands", "plot_draws", "plot_points"]


def plot_bands(
    ax: Any,
    x: Values,
    prediction: Prediction | tuple[Values, Values],
    *,
    output: int = 0,
    num_std: Sequence[float] = (1.0, 2.0),
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """The predictive mean, and shaded bands mean +- k std, both parts of the variance included.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) positions of the rows; they are drawn in order of x.
        prediction: of N rows; or a pair (mean, standard deviation), (N,) each.
        output: which of the D outputs of a prediction.
        num_std: the k of every band; they are drawn over each other, the widest first.
        color: of the line and of the bands.
        label: of the line, for a legend.

    Returns: the axes.
    """
    owner = "plot_bands"
    if not num_std or any(not 0 < k < float("inf") for k in num_std):
        raise ValueError(must(owner, "num_std", "positive numbers", tuple(num_std)))
    if isinstance(prediction, tuple):
        check_axes(owner, ax)
        place = row_numbers(owner, "x", x)
        order = place.argsort(kind="stable")
        place = place[order]
        mean, std = (row_numbers(owner, "prediction", part, len(place))[order] for part in prediction)
    else:
        place, order = _places(owner, ax, x, prediction, output)
        check_prediction(owner, prediction)
        mean = output_numbers(owner, "prediction.mean", prediction.mean, output)[order]
        std = output_numbers(owner, "prediction.std", prediction.std, output)[order]
    # Bands lie over each other, so that the shade at a point shows how many of them contain it. The more
    # bands the lighter each, so that the line stays visible on the innermost.
    alpha = 0.22 if len(num_std) <= 2 else 1 - 0.5 ** (1 / len(num_std))
    for k in sorted(num_std, reverse=True):
        ax.fill_between(
            place, mean - k * std, mean + k * std, color=color, alpha=alpha, linewidth=0, zorder=1
        )
    ax.plot(place, mean, color=color, linewidth=1.6, label=label, zorder=3)
    dress(ax)
    return ax


def plot_draws(
    ax: Any,
    x: Values,
    prediction: Prediction | Values,
    n: int = 5,
    *,
    output: int = 0,
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """The first `n` draws as functions of x, without the likelihood's noise.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) positions of the rows.
        prediction: of N rows, with its draws kept, each draw one function; or the functions themselves,
            (T, N).
        n: how many draws.
        output: which of the D outputs of a prediction.
        color: of the lines; or a list of colours, used in turn.
        label: of the first line, for a legend.

    Returns: the axes.
    """
    owner = "plot_draws"
    if isinstance(prediction, Prediction):
        place, order = _places(owner, ax, x, prediction, output)
        functions = _functions(owner, prediction, n, output)
    else:
        check_axes(owner, ax)
        place = row_numbers(owner, "x", x)
        functions = numbers(owner, "prediction", prediction, 2)
        n = whole_number(owner, "n", n, at_least=1, at_most=len(functions))
        if functions.shape[1] != len(place):
            raise ValueError(must(owner, "prediction", f"(T, {len(place)}), rows as `x`", functions.shape))
        order = place.argsort(kind="stable")
        place, functions = place[order], functions[:n]
    colors = list(color) if isinstance(color, list) else [color]
    for index, function in enumerate(functions):
        style = {"color": colors[index % len(colors)], "label": label if index == 0 else None}
        ax.plot(place, function[order], linewidth=0.7, alpha=0.8, zorder=2, **style)
    dress(ax)
    return ax


def _functions(owner: str, prediction: Prediction, n: int, output: int) -> Numbers:
    """(n, N) one output of the first draws."""
    n = whole_number(owner, "n", n, at_least=1, at_most=prediction.num_draws)
    if not prediction.shared:
        hint = "Call predict(..., draws='shared')."
        raise ValueError(must(owner, "prediction", "of draws that are functions", prediction, hint))
    functions = prediction.draws[:n]
    if prediction.likelihood is not None:
        with torch.no_grad():
            functions = torch.stack([prediction.likelihood.moments(function)[0] for function in functions])
    return np.stack([output_numbers(owner, "prediction.draws", one, output) for one in functions])


def plot_points(
    ax: Any, x: Values, y: Values, *, color: Any = INK, size: float = 2.0, label: str | None = None
) -> Any:
    """Data as dots.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1).
        y: (N,) or (N, 1).
        color: of the dots.
        size: their diameter in points.
        label: for a legend.

    Returns: the axes.
    """
    check_axes("plot_points", ax)
    places = row_numbers("plot_points", "x", x)
    values = row_numbers("plot_points", "y", y, len(places))
    ax.plot(
        places,
        values,
        linestyle="none",
        marker="o",
        markersize=size,
        markeredgewidth=0,
        color=color,
        label=label,
        zorder=4,
    )
    dress(ax)
    return ax


def _places(owner: str, ax: Any, x: Values, prediction: Prediction, output: int) -> tuple[Numbers, Any]:
    """x in order, and that order."""
    check_axes(owner, ax)
    check_prediction(owner, prediction, spread=False)
    places = row_numbers(owner, "x", x, len(prediction), like="prediction")
    check_output(owner, prediction, output)
    order = places.argsort(kind="stable")
    return places[order], order
