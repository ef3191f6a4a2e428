"""The picture of solar irradiance: gaps, filled in by several models."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.curves.panels import BLUE, DATA, HELD_OUT, PATHS, TWO
from bayesdrop.experiments.curves.series import GAP
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_bands, plot_draws

__all__ = ["draw"]

LIMITS, HEIGHTS = (-1.85, 1.85), (-3.6, 4.4)
ORANGE, GREEN = "#E69F00", "#009E73"


def draw(outcome: Outcome) -> Any:
    """Eight panels: standard dropout, the process, MC dropout and its variants, draws, and spreads."""
    arrays = outcome.arrays
    figure = new_figure(15, 12.5)
    if "grid" not in arrays:
        figure.text(0.5, 0.5, "not run", ha="center")
        return figure
    grid = arrays["grid"]
    axes = figure.subplots(4, 2)
    flat = list(axes.flat)
    flat[0].plot(grid, arrays["relu grid_standard"], color=BLUE, linewidth=1.1)
    shown = ("process grid", "relu grid", "relu grid_few", "shallow grid")
    for ax, name in zip(flat[1:], shown, strict=False):
        plot_bands(ax, grid, (arrays[f"{name}_mean"], arrays[f"{name}_std"]), num_std=TWO)
    for ax, name in ((flat[6], "relu paths"), (flat[7], "relu scattered_paths")):
        plot_draws(ax, grid, arrays[name], len(arrays[name]), color=PATHS)
    titles = {
        0: "Standard dropout, ReLU: one pass",
        1: "Gaussian process, squared exponential, ±2 std",
        2: "(D.1) MC dropout, ReLU, 4 hidden layers, ±2 std",
        3: f"The same from {arrays['few_draws']} draws",
        4: "MC dropout, ReLU, 3 hidden layers, ±2 std",
        6: "A draw is a function: one mask for all x",
        7: "Not a function: a mask for every x",
    }
    for place, title in titles.items():
        finish_axes(flat[place], title, xlim=LIMITS, ylim=HEIGHTS)
        if place < 5:
            _data(flat[place], arrays)
    finish_axes(flat[0], legend={"loc": "upper left", "ncols": 4})
    _spread(flat[5], arrays)
    for ax in flat:
        _gaps(ax, arrays)
    finish_axes(axes[:, 0], ylabel="irradiance, standardised")
    finish_axes(axes[-1], xlabel="x: years from 1610 to 1984, standardised")
    return figure


def _by_gap(values: Any) -> np.ndarray[Any, Any]:
    """Held-out values, a row for every gap: (gaps, GAP)."""
    return np.asarray(values).reshape(-1, GAP)


def _data(ax: Any, arrays: Any) -> None:
    x, y = np.asarray(arrays["x"]), np.asarray(arrays["y"])
    breaks = np.flatnonzero(np.diff(x) > 5 * (x[1] - x[0])) + 1
    for index, (places, values) in enumerate(zip(np.split(x, breaks), np.split(y, breaks), strict=True)):
        ax.plot(places, values, color=DATA, linewidth=0.9, zorder=4, label="learned" if index == 0 else None)
    for index, (places, values) in enumerate(
        zip(_by_gap(arrays["x_test"]), _by_gap(arrays["y_test"]), strict=True)
    ):
        label = "held out" if index == 0 else None
        ax.plot(places, values, color=HELD_OUT, linewidth=1.2, zorder=4, label=label)
    ax.plot([], [], color=BLUE, label="prediction")


def _gaps(ax: Any, arrays: Any) -> None:
    for places in _by_gap(arrays["x_test"]):
        ax.axvspan(places[0], places[-1], color="#000000", alpha=0.06, linewidth=0, zorder=0)


def _spread(ax: Any, arrays: Any) -> None:
    styles = {
        "relu": (BLUE, "-", "ReLU, 4 hidden layers"),
        "shallow": (BLUE, ":", "ReLU, 3 hidden layers"),
        "process": (GREEN, "-", "Gaussian process"),
    }
    for name, (color, dashes, label) in styles.items():
        ax.plot(arrays["grid"], arrays[f"{name} grid_std"], color=color, linestyle=dashes, label=label)
    limits = {"ylabel": "standard deviation", "xlim": LIMITS, "ylim": (0, 1.35 * ax.dataLim.y1)}
    finish_axes(ax, "Standard deviation against x", legend={"loc": "upper left", "ncols": 3}, **limits)
