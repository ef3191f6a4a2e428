"""The picture of the synthetic data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2017_synthetic.networks import GRID, TRUTH
from bayesdrop.experiments.gal2017_synthetic.report import LAYERS, UNCERTAINTIES
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_bands, plot_points, plot_rates, plot_runs

__all__ = ["draw"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#56B4E9", "#0072B2", "#009E73", "#E69F00", "#CC79A7")
INK, MUTED, VERMILION = "#1A1A1A", "#666666", "#D55E00"


def draw(outcome: Outcome) -> Any:
    """The three uncertainties and the rates against N; below, rates against steps and example fits."""
    figure = new_figure(15, 7.2)
    axes = figure.subplots(2, 4)
    arrays = outcome.arrays
    sizes = arrays["sizes"]
    top = 1.1 * max(float(arrays["predictive"].mean(1).max()), TRUTH)
    for ax, name in zip(axes[0], UNCERTAINTIES, strict=False):
        plot_runs(ax, sizes, arrays[name].T, band="error", color=INK, style="o-")
        finish_axes(ax, name, ylabel="standard deviation", ylim=(0, top))
        if name != "epistemic":
            ax.axhline(TRUTH, color=VERMILION, linestyle="--", linewidth=1.2)
            style = {"textcoords": "offset points", "va": "top", "color": VERMILION}
            ax.annotate("the noise's, 1", (sizes[0], TRUTH), (0, -5), **style)
    _rates(axes[0, 3], sizes, arrays["rates"].mean(1), "rates at the end")
    finish_axes(axes[0], xscale="log", xlabel="N")
    for place, (end, size) in enumerate(zip(("first", "last"), arrays["ends"], strict=True)):
        title = f"rates in training, N = {size:,}"
        _rates(axes[1, place], arrays[f"{end}_steps"], arrays[f"{end}_trace"], title)
        _fit(axes[1, 2 + place], arrays, end)
        finish_axes(axes[1, 2 + place], f"fit, N = {size:,}", xlabel="x", ylabel="y")
    finish_axes(axes[1, 0], legend={"title": "drops the units of", "title_fontsize": 9})
    finish_axes(axes, grid=True)
    return figure


def _rates(ax: Any, places: Any, rates: np.ndarray[Any, Any], title: str) -> None:
    plot_rates(ax, dict(zip(LAYERS, rates.T, strict=True)), steps=places, names=LAYERS, colors=COLORS)
    finish_axes(ax, title, ylim=(0, 0.56))


def _fit(ax: Any, arrays: Mapping[str, Any], end: str) -> None:
    """Data, the mean, a band of twice the predictive std, and inside it one of twice the epistemic."""
    grid = np.linspace(-3, 3, GRID)
    mean = arrays[f"{end}_mean"]
    for name in ("grid_std", "grid_epistemic"):
        plot_bands(ax, grid, (mean, arrays[f"{end}_{name}"]), num_std=(2.0,), color=COLORS[1])
    ax.plot(grid, 2 * grid + 8, color=VERMILION, linestyle="--", linewidth=1.2)
    plot_points(ax, arrays[f"{end}_x"], arrays[f"{end}_y"])
    ax.set(xlim=(-3, 3), ylim=(-2, 18))
