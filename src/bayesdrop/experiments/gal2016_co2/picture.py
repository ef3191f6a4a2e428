"""The picture of carbon dioxide: the panels of figures 2 and 3, and what a draw is."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.curves.panels import BLUE, DATA, EIGHT, FAR, PATHS, TWO
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_bands, plot_draws, plot_runs

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
    flat[0].plot(grid, arrays["relu grid_standard"], color=BLUE, linewidth=1.1)
    shown = [
        ("process grid", TWO), ("relu grid", TWO), ("tanh grid", EIGHT), ("tanh2 grid", EIGHT),
        ("relu grid_few", TWO), ("shallow grid", TWO),
    ]  # fmt: skip
    for ax, (name, shades) in zip(flat[1:], shown, strict=False):
        plot_bands(ax, grid, (arrays[f"{name}_mean"], arrays[f"{name}_std"]), num_std=shades)
    for ax, name in ((flat[7], "relu paths"), (flat[8], "relu scattered_paths")):
        plot_draws(ax, grid, arrays[name], len(arrays[name]), color=PATHS)
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
        finish_axes(ax, title, xlim=LIMITS, ylim=HEIGHTS)
        _data(ax, arrays, points=ax is not flat[7] and ax is not flat[8])
    _legend(flat[0])
    _zoom(flat[9], arrays)
    _spread(flat[10], arrays)
    _training(flat[11], arrays)
    finish_axes([*axes[:3, 0], flat[9]], ylabel="CO₂ less a line, standardised")
    finish_axes(flat[6:11], xlabel="x: months, standardised")
    return figure


def _data(ax: Any, arrays: Any, *, points: bool) -> None:
    """Months that were learned and months that followed, if `points`; lines where they meet and at x*."""
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
    finish_axes(ax, legend={"loc": "upper left", "ncols": 3})


def _zoom(ax: Any, arrays: Any) -> None:
    """The last eight years of the training months, so that the seasons can be seen."""
    rows = slice(-96, None)
    x = arrays["x"][rows]
    ax.plot(x, arrays["y"][rows], ".", color=DATA, markersize=4, label="data")
    for name, color, label in (
        ("relu", BLUE, "ReLU"),
        ("tanh", ORANGE, "TanH, p = 0.1"),
        ("process", GREEN, "Gaussian process"),
    ):
        ax.plot(x, arrays[f"{name} train_mean"][rows], color=color, linewidth=1.1, label=label)
    limits = {"xlim": (x[0], x[-1]), "ylim": (-2.5, 4.2)}
    finish_axes(ax, "The last 96 training months", legend={"loc": "upper left", "ncols": 2}, **limits)


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
    grid = np.asarray(arrays["grid"])
    limits = {"yscale": "log", "xlim": (grid[0], grid[-1]), "ylim": (0.02, 10)}
    _data(ax, arrays, points=False)
    finish_axes(ax, "Standard deviation against x", legend="upper left", **limits)


def _training(ax: Any, arrays: Any) -> None:
    """The spread beyond the data, as training goes on."""
    for name, color, style, label in (
        ("tanh", ORANGE, "o-", "TanH, p = 0.1"),
        ("tanh2", ORANGE, "o:", "TanH, p = 0.2"),
        ("relu", BLUE, "o-", "ReLU"),
    ):
        std = arrays[f"{name} look_std"]
        plot_runs(ax, arrays[f"{name} look_step"], std, color=color, style=style, label=label)
    limits = {"xlim": (0, arrays["relu look_step"][-1]), "ylim": (0, 1.3 * ax.dataLim.y1)}
    title, legend = "Standard deviation from the end of the data to x*", {"loc": "upper left", "ncols": 3}
    finish_axes(ax, title, legend=legend, xlabel="training step", **limits)
