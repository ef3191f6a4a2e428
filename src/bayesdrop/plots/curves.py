"""Functions of one input: bands, sampled functions, data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite
from bayesdrop.predict import Prediction

__all__ = ["plot_bands", "plot_draws", "plot_points"]


def plot_bands(
    ax: Any,
    x: Tensor,
    prediction: Prediction,
    *,
    output: int = 0,
    num_std: Sequence[float] = (1.0, 2.0),
    color: Any = "C0",
    label: str | None = None,
) -> Any:
    """The predictive mean, and shaded bands mean +- k std, both parts of the variance included.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) where the rows lie; they are drawn in order of x.
        prediction: of N rows.
        output: which of the D outputs.
        num_std: the k of every band; they are drawn one over another, the widest first.
        color: of the line and of the bands.
        label: of the line, for a legend.

    Returns: the axes.
    """
    place, order = _places("plot_bands", x, prediction)
    if not num_std or any(not 0 < k < float("inf") for k in num_std):
        raise ValueError(must("plot_bands", "num_std", "positive numbers", tuple(num_std)))
    if prediction.num_draws < 2:
        hint = "One draw has no spread: call predict(..., num_draws=100)."
        raise ValueError(must("plot_bands", "prediction", "of at least 2 draws", prediction, hint))
    mean = _column("plot_bands", prediction.mean, output)[order]
    std = _column("plot_bands", prediction.std, output)[order]
    # Bands lie over one another, so that the shade at a point tells how many of them hold it.
    for k in sorted(num_std, reverse=True):
        lower, upper = (mean - k * std).numpy(), (mean + k * std).numpy()
        ax.fill_between(place, lower, upper, color=color, alpha=0.22, linewidth=0, zorder=1)
    ax.plot(place, mean.numpy(), color=color, linewidth=1.6, label=label, zorder=3)
    return ax


def plot_draws(
    ax: Any,
    x: Tensor,
    prediction: Prediction,
    n: int = 5,
    *,
    output: int = 0,
    color: Any = "C0",
    label: str | None = None,
) -> Any:
    """The first `n` sampled functions, without noise: what "a draw is a function" looks like.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) where the rows lie.
        prediction: of N rows, with its draws kept, each draw one function.
        n: how many.
        output: which of the D outputs.
        color: of the lines.
        label: of the first of them, for a legend.

    Returns: the axes.
    """
    place, order = _places("plot_draws", x, prediction)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= prediction.num_draws:
        raise ValueError(must("plot_draws", "n", f"an int from 1 to {prediction.num_draws}, the draws", n))
    if not prediction.shared:
        hint = "Call predict(..., draws='shared')."
        raise ValueError(must("plot_draws", "prediction", "of draws that are functions", prediction, hint))
    functions = prediction.draws[:n]
    if prediction.likelihood is not None:
        with torch.no_grad():
            functions = torch.stack([prediction.likelihood.moments(function)[0] for function in functions])
    for index, function in enumerate(functions):
        values = _column("plot_draws", function, output)[order].numpy()
        name = label if index == 0 else None
        ax.plot(place, values, color=color, linewidth=0.7, alpha=0.8, label=name, zorder=2)
    return ax


def plot_points(
    ax: Any, x: Tensor, y: Tensor, *, color: Any = "0.2", size: float = 2.0, label: str | None = None
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
    places, values = _flat("plot_points", "x", x), _flat("plot_points", "y", y)
    if places.shape != values.shape:
        raise ValueError(must("plot_points", "y", f"{places.shape[0]} rows, as `x`", tuple(y.shape)))
    ax.plot(
        places.numpy(),
        values.numpy(),
        linestyle="none",
        marker="o",
        markersize=size,
        markeredgewidth=0,
        color=color,
        label=label,
        zorder=4,
    )
    return ax


def _places(owner: str, x: Tensor, prediction: Prediction) -> tuple[Any, Tensor]:
    """x in order, and that order."""
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", prediction))
    places = _flat(owner, "x", x)
    if places.shape[0] != len(prediction):
        raise ValueError(must(owner, "x", f"{len(prediction)} rows, as `prediction`", tuple(x.shape)))
    order = places.argsort(stable=True)
    return places[order].numpy(), order


def _flat(owner: str, argument: str, value: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(must(owner, argument, "a tensor", value))
    if value.dim() not in (1, 2) or (value.dim() == 2 and value.shape[1] != 1):
        raise ValueError(must(owner, argument, "of shape (N,) or (N, 1)", tuple(value.shape)))
    must_be_finite(owner, argument, value)
    return value.detach().cpu().reshape(-1)


def _column(owner: str, value: Tensor, output: int) -> Tensor:
    """One output of (N,) or (N, D)."""
    columns = value.detach().cpu().reshape(value.shape[0], -1)
    if isinstance(output, bool) or not isinstance(output, int) or not 0 <= output < columns.shape[1]:
        raise ValueError(must(owner, "output", f"an int from 0 to {columns.shape[1] - 1}", output))
    return columns[:, output]
