"""The picture of carbon dioxide: the panels of figures 2 and 3, and what a draw is."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.curves.panels import BLUE, DATA, FAR, INK, bands, finish, line, paths
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

__all__ = ["draw"]

LIMITS, HEIGHTS = (-1.9, 3.9), (-5.0, 7.0)
ORANGE, GREEN, PURPLE = "#E69F00", "#009E73", "#CC79A7"


def draw(outcome: Outcome) -> Any:
    """Twelve panels: the four of figure 2, figure 3, other networks, draws, and how the spread behaves."""
    arrays = outcome.arrays
    grid = arrays["grid"]
    figure = new_figure(15, 13.5)
    axes = figure.subplots(4, 3)
    flat = list(axes.flat)
    line(flat[0], grid, arrays["relu grid_standard"])
    shown = [
        (1, "process", "grid_mean", "grid_std", 2),
        (2, "relu", "grid_mean", "grid_std", 2),
        (3, "tanh", "grid_mean", "grid_std", 8),
        (4, "tanh2", "grid_mean", "grid_std", 8),
        (5, "relu", "grid_few_mean", "grid_few_std", 2),
        (6, "shallow", "grid_mean", "grid_std", 2),
    ]
    for place, name, mean, std, most in shown:
        bands(flat[place], grid, arrays[f"{name} {mean}"], arrays[f"{name} {std}"], most=most)
    paths(flat[7], grid, arrays["relu paths"])
    paths(flat[8], grid, arrays["relu scattered_paths"], linewidth=0.6, alpha=0.8)
    titles = (
        "(2a) Standard dropout, ReLU: one pass",
        "(2b) Gaussian process, squared exponential, ±2 std",
        "(2c) MC dropout, ReLU, 4 hidden layers, ±2 std",
        "(2d) MC dropout, TanH, p = 0.1, ±8 std",
        "(2d) with p = 0.2, ±8 std",
        f"(3) as 2c, from {arrays['few_draws']} draws",
        "as 2c, with 3 hidden layers",
        "A draw is a function: one mask for all x",
        "Not a function: a mask for every x",
    )
    for ax, title in zip(flat, titles, strict=False):
        finish(ax, title, LIMITS, HEIGHTS)
        _data(ax, arrays, points=ax is not flat[7] and ax is not flat[8])
    _legend(flat[0])
    _zoom(flat[9], arrays)
    _spread(flat[10], arrays)
    _training(flat[11], arrays)
    for ax in (*axes[:3, 0], flat[9]):
        ax.set_ylabel("CO₂ less a line, standardised")
    for ax in flat[6:11]:
        ax.set_xlabel("x: months, standardised")
    return figure


def _data(ax: Any, arrays: Any, *, points: bool) -> None:
    """The months that were learned, those that followed, where the two meet, and x*."""
    if points:
        ax.plot(arrays["x"], arrays["y"], color=DATA, linewidth=0.9, zorder=4)
        ax.plot(arrays["x_test"], arrays["y_test"], ".", color="#777777", markersize=1.6, zorder=4)
    ax.axvline(arrays["end"], color=BLUE, linestyle="--", linewidth=1, zorder=2)
    ax.axvline(arrays["far"], color=FAR, linestyle="--", linewidth=1.3, zorder=2)


def _legend(ax: Any) -> None:
    ax.plot([], [], color=DATA, label="data")
    ax.plot([], [], color=BLUE, label="prediction")
    ax.plot([], [], ".", color="#777777", label="what came")
    ax.plot([], [], color=BLUE, linestyle="--", label="end of the data")
    ax.plot([], [], color=FAR, linestyle="--", label="x*")
    ax.legend(frameon=False, fontsize=9, loc="upper left", ncols=3)


def _zoom(ax: Any, arrays: Any) -> None:
    """The last eight years of the training months, so that the seasons can be seen."""
    rows = slice(-96, None)
    x = arrays["x"][rows]
    ax.plot(x, arrays["y"][rows], ".", color=DATA, markersize=4, label="data")
    styles = {
        "relu": (BLUE, "ReLU"),
        "tanh": (ORANGE, "TanH, p = 0.1"),
        "process": (GREEN, "Gaussian process"),
    }
    for name, (color, label) in styles.items():
        line(ax, x, arrays[f"{name} train_mean"][rows], color=color, label=label)
    finish(ax, "The last 96 training months", (x[0], x[-1]), (-2.5, 4.2))
    ax.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)


def _spread(ax: Any, arrays: Any) -> None:
    """Standard deviations against x."""
    styles = {
        "relu": (BLUE, "-", "ReLU, 4 hidden layers"),
        "shallow": (BLUE, ":", "ReLU, 3 hidden layers"),
        "tanh": (ORANGE, "-", "TanH, p = 0.1"),
        "tanh2": (ORANGE, ":", "TanH, p = 0.2"),
        "process": (GREEN, "-", "Gaussian process"),
    }
    for name, (color, dashes, label) in styles.items():
        ax.plot(arrays["grid"], arrays[f"{name} grid_std"], color=color, linestyle=dashes, label=label)
    ax.set_yscale("log")
    grid = np.asarray(arrays["grid"])
    finish(ax, "Standard deviation against x", (grid[0], grid[-1]), (0.02, 10))
    _data(ax, arrays, points=False)
    ax.legend(frameon=False, fontsize=9, loc="upper left")


def _training(ax: Any, arrays: Any) -> None:
    """The spread behind the data, as training goes on."""
    styles = {
        "tanh": (ORANGE, "-", "TanH, p = 0.1"),
        "tanh2": (ORANGE, ":", "TanH, p = 0.2"),
        "relu": (BLUE, "-", "ReLU"),
    }
    top = 0.0
    for name, (color, dashes, label) in styles.items():
        std = np.asarray(arrays[f"{name} look_std"])
        ax.plot(
            arrays[f"{name} look_step"],
            std,
            color=color,
            linestyle=dashes,
            marker="o",
            markersize=3,
            label=label,
        )
        top = max(top, float(std.max()))
    steps = np.asarray(arrays["relu look_step"])
    finish(ax, "Standard deviation from the end of the data to x*", (0, steps[-1]), (0, 1.3 * top))
    ax.set_xlabel("training step")
    ax.tick_params(colors=INK)
    ax.legend(frameon=False, fontsize=9, loc="upper left", ncols=3)
