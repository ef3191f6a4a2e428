"""The picture of the synthetic data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2017_synthetic.networks import GRID, TRUTH
from bayesdrop.experiments.gal2017_synthetic.report import LAYERS, UNCERTAINTIES
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

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
        values = arrays[name]
        error = values.std(1, ddof=1) / values.shape[1] ** 0.5 if values.shape[1] > 1 else None
        ax.errorbar(sizes, values.mean(1), error, color=INK, marker="o", markersize=4, capsize=3)
        ax.set_ylabel("standard deviation")
        ax.set_ylim(0, top)
        ax.set_title(name, loc="left", fontsize=12)
        if name != "epistemic":
            ax.axhline(TRUTH, color=VERMILION, linestyle="--", linewidth=1.2)
            text = "the noise's, 1"
            ax.annotate(
                text, (sizes[0], TRUTH), (0, -5), textcoords="offset points", va="top", color=VERMILION
            )
    _rates(axes[0, 3], sizes, arrays["rates"].mean(1), marker="o")
    axes[0, 3].set_title("rates at the end", loc="left", fontsize=12)
    for ax in axes[0]:
        ax.set_xscale("log")
        ax.set_xlabel("N")
    for place, (end, size) in enumerate(zip(("first", "last"), arrays["ends"], strict=True)):
        ax = axes[1, place]
        _rates(ax, arrays[f"{end}_steps"], arrays[f"{end}_trace"])
        ax.set_xlabel("step")
        ax.set_title(f"rates in training, N = {size:,}", loc="left", fontsize=12)
        _fit(axes[1, 2 + place], arrays, end)
        axes[1, 2 + place].set_title(f"fit, N = {size:,}", loc="left", fontsize=12)
    axes[1, 0].legend(frameon=False, fontsize=9, title="drops the units of", title_fontsize=9)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#E8E8E8", linewidth=0.7)
        ax.set_axisbelow(True)
    return figure


def _rates(ax: Any, places: np.ndarray[Any, Any], rates: np.ndarray[Any, Any], **style: Any) -> None:
    for index, layer in enumerate(LAYERS):
        ax.plot(places, rates[:, index], color=COLORS[index], label=layer, markersize=4, **style)
    ax.set_ylim(0, 0.56)
    ax.set_ylabel("drop rate p")


def _fit(ax: Any, arrays: Mapping[str, Any], end: str) -> None:
    """Data, the mean, a band of twice the predictive std, and inside it one of twice the epistemic."""
    grid = np.linspace(-3, 3, GRID)
    mean = arrays[f"{end}_mean"]
    for name, alpha in (("grid_std", 0.2), ("grid_epistemic", 0.35)):
        std = arrays[f"{end}_{name}"]
        ax.fill_between(grid, mean - 2 * std, mean + 2 * std, color=COLORS[1], alpha=alpha, linewidth=0)
    ax.plot(grid, 2 * grid + 8, color=VERMILION, linestyle="--", linewidth=1.2)
    ax.plot(grid, mean, color=COLORS[1])
    ax.plot(arrays[f"{end}_x"], arrays[f"{end}_y"], ".", color=INK, markersize=3, alpha=0.6)
    ax.set_xlim(-3, 3)
    ax.set_ylim(-2, 18)
    ax.set_xlabel("x")
    ax.set_ylabel("y")
