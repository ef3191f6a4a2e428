"""The picture of the toy gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["draw"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#0072B2", "#56B4E9", "#009E73", "#999999", "#E69F00", "#D55E00")
INK = "#1A1A1A"
#: places of the estimators that the grid shows: ARM, DisARM and both relaxations
SHOWN = (0, 1, 4, 5)
QUANTITIES = (("bias", "|bias|"), ("std", "std"), ("mse", "root of MSE"))


def draw(outcome: Outcome) -> Any:
    """Bias, standard deviation and error on the grid for unit 1; below, estimates at one point and traces."""
    arrays = outcome.arrays
    figure = new_figure(13.5, 11)
    above, below = figure.subfigures(2, 1, height_ratios=(1.55, 1))
    _grid(above, arrays)
    histogram, *traces = below.subplots(1, 3)
    _histogram(histogram, arrays)
    for unit, ax in enumerate(traces):
        _trace(ax, arrays, unit)
    # Lines of all estimators lie close together: one legend says which is which.
    finish_axes(traces[1], legend=True)
    return figure


def _grid(figure: Any, arrays: Mapping[str, Any]) -> None:
    """A map for every quantity (row) and estimator (column); a row has one scale of colours."""
    axes = figure.subplots(len(QUANTITIES), len(SHOWN), sharex=True, sharey=True)
    keeps, names = arrays["keeps"], arrays["estimators"]
    ticks = range(len(keeps))
    for row, (name, label) in enumerate(QUANTITIES):
        # (estimator, keep of unit 1, keep of unit 2) for the gradient in a_1
        values = np.sqrt(arrays[name][..., 0]) if name == "mse" else abs(arrays[name][..., 0])
        top = float(values[list(SHOWN)].max())
        for column, place in enumerate(SHOWN):
            ax = axes[row, column]
            image = ax.imshow(
                values[place].T, origin="lower", vmin=0, vmax=top, cmap="viridis", aspect="auto"
            )
            for i in ticks:
                for j in ticks:
                    shade = "black" if values[place, i, j] > 0.6 * top else "white"
                    text = f"{values[place, i, j]:.2g}" if values[place, i, j] >= 5e-4 else "0"
                    ax.text(i, j, text, ha="center", va="center", color=shade, fontsize=7.5)
            ax.set_xticks(ticks, [f"{keep:g}" for keep in keeps])
            ax.set_yticks(ticks, [f"{keep:g}" for keep in keeps])
            if row == 0:
                ax.set_title(names[place], fontsize=12, color=INK)
            if row == len(QUANTITIES) - 1:
                ax.set_xlabel("keep chance of unit 1")
            if column == 0:
                ax.set_ylabel("keep chance of unit 2")
        figure.colorbar(image, ax=list(axes[row]), label=f"{label}, gradient in $a_1$", pad=0.01)


def _histogram(ax: Any, arrays: Mapping[str, Any]) -> None:
    """Histograms of the estimates at one point of the grid, and the exact gradient there."""
    samples = arrays["samples"]
    first, second, exact = arrays["sampled_at"]
    low, high = np.quantile(samples, (0.001, 0.999))
    edges = np.linspace(low, high, 41)
    for place, name in enumerate(arrays["estimators"]):
        ax.hist(samples[place], edges, histtype="step", color=COLORS[place], linewidth=1.5, label=name)
    ax.axvline(exact, color=INK, linestyle="--", linewidth=1.2)
    title = f"{samples.shape[1]} estimates at keep {first:g}, {second:g}"
    finish_axes(ax, title, xlabel="gradient in $a_1$ (dashed: exact)", ylabel="estimates")


def _trace(ax: Any, arrays: Mapping[str, Any], unit: int) -> None:
    steps, exact = arrays["trace_steps"], arrays["trace_exact"][:, unit]
    for place, name in enumerate(arrays["estimators"]):
        values = arrays["trace_estimated"][:, place, unit]
        ax.plot(steps, values, color=COLORS[place], marker=".", linewidth=1.2, label=name)
    ax.plot(steps, exact, color=INK, linestyle="--", linewidth=1.4, label="exact", zorder=5)
    finish_axes(ax, f"along exact descent, gradient in $a_{unit + 1}$", xlabel="step")
