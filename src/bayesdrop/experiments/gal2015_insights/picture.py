"""The picture of the insights: covariances, their estimates, the divergence, and trained networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.gal2015_insights.covariance import NAMES
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_estimates

__all__ = ["draw"]

_LABELS = {"relu": "ReLU", "step": "step", "erf": "erf", "cosine": "cosine", "tanh": "TanH"}


def draw(outcome: Outcome) -> Any:
    """Four panels."""
    arrays = outcome.arrays
    figure = new_figure(10, 7.2)
    axes = figure.subplots(2, 2)
    _covariances(axes[0, 0], arrays)
    _estimates(axes[0, 1], arrays)
    _divergence(axes[1, 0], arrays)
    _errors(axes[1, 1], outcome)
    return figure


def _covariances(ax: Any, arrays: Any) -> None:
    for place, name in enumerate(NAMES):
        style = "--" if name == "tanh" else "-"  # it lies on erf
        ax.plot(arrays["line"], arrays[f"shape {name}"], style, color=f"C{place}", label=_LABELS[name])
    ax.axvline(1, color="0.8", linewidth=0.8, zorder=0)
    title = "Covariance of f(x) with f(1), by non-linearity"
    finish_axes(ax, title, legend="upper left", xlabel="x", ylabel="k(x, 1)", ylim=(-0.85, 3))


def _estimates(ax: Any, arrays: Any) -> None:
    units = np.asarray(arrays["units"], dtype=float)
    for place, name in enumerate(NAMES):
        style = "o--" if name == "tanh" else "o-"
        error = arrays[f"error {name}"]
        ax.loglog(units, error, style, color=f"C{place}", markersize=3.5, label=_LABELS[name])
    start = np.asarray(arrays["error relu"], dtype=float)[0]
    ax.loglog(units, 1.5 * start * (units / units[0]) ** -0.5, "--", color="0.5", label="K to the power -1/2")
    finish_axes(ax, "Error of the estimate with K units", legend=True, xlabel="K", ylabel="relative error")


def _divergence(ax: Any, arrays: Any) -> None:
    for place, sigma in enumerate(("0.3", "1", "3")):
        ax.plot(arrays["size"], arrays[f"gap {sigma}"], color=f"C{place}", label=f"sigma = {sigma}")
    ax.axhline(-arrays["entropy"], linestyle="--", color="0.5")
    ax.annotate("-H(p)", (100, -arrays["entropy"]), xytext=(0, 4), textcoords="offset points", ha="right")
    ax.axhline(0, linestyle=":", color="0.5")
    ax.annotate("proposition 1", (100, 0), xytext=(0, -11), textcoords="offset points", ha="right")
    legend = {"loc": "center left", "bbox_to_anchor": (0.0, 0.35)}
    title = "KL of a row of K weights, less proposition 1"
    finish_axes(ax, title, legend=legend, xscale="log", xlabel="K", ylabel="nats")


def _errors(ax: Any, outcome: Outcome) -> None:
    bars = [
        ("no dropout", "RMSE, averaged weights", "no dropout"),
        ("ensemble of 5", "RMSE, averaged weights", "ensemble of 5,\nno dropout"),
        ("last layer", "RMSE, averaged weights", "last layer,\naveraged weights"),
        ("last layer", "RMSE, MC average", "last layer,\nMC average"),
        ("every layer", "RMSE, averaged weights", "every layer,\naveraged weights"),
        ("every layer", "RMSE, MC average", "every layer,\nMC average"),
    ]
    found = {label: outcome.row(setting, metric) for setting, metric, label in bars}
    shown = {label: (row.ours or 0.0, row.standard_error) for label, row in found.items()}
    plot_estimates(ax, shown, color=["0.6", "0.6", "C0", "C1", "C0", "C1"])
    xlabel = "RMSE (mean and standard error)"
    finish_axes(ax, "Error of small networks at new rows", grid="x", xlabel=xlabel)
