"""The picture of the insights: covariances, their estimates, the divergence, and trained networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.gal2015_insights.covariance import NAMES
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

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
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def _covariances(ax: Any, arrays: Any) -> None:
    for place, name in enumerate(NAMES):
        style = "--" if name == "tanh" else "-"  # it lies on erf
        ax.plot(arrays["line"], arrays[f"shape {name}"], style, color=f"C{place}", label=_LABELS[name])
    ax.axvline(1, color="0.8", linewidth=0.8, zorder=0)
    ax.set_ylim(-0.85, 3)
    ax.set(title="Covariance of f(x) with f(1), by non-linearity", xlabel="x", ylabel="k(x, 1)")
    ax.legend(frameon=False, fontsize=9, loc="upper left")


def _estimates(ax: Any, arrays: Any) -> None:
    units = np.asarray(arrays["units"], dtype=float)
    for place, name in enumerate(NAMES):
        style = "o--" if name == "tanh" else "o-"
        error = arrays[f"error {name}"]
        ax.loglog(units, error, style, color=f"C{place}", markersize=3.5, label=_LABELS[name])
    start = np.asarray(arrays["error relu"], dtype=float)[0]
    ax.loglog(units, 1.5 * start * (units / units[0]) ** -0.5, "--", color="0.5", label="K to the power -1/2")
    ax.set(title="Error of the estimate with K hidden units", xlabel="K", ylabel="relative error")
    ax.legend(frameon=False, fontsize=9)


def _divergence(ax: Any, arrays: Any) -> None:
    for place, sigma in enumerate(("0.3", "1", "3")):
        ax.plot(arrays["size"], arrays[f"gap {sigma}"], color=f"C{place}", label=f"sigma = {sigma}")
    ax.axhline(-arrays["entropy"], linestyle="--", color="0.5")
    ax.annotate("-H(p)", (100, -arrays["entropy"]), xytext=(0, 4), textcoords="offset points", ha="right")
    ax.axhline(0, linestyle=":", color="0.5")
    ax.annotate("proposition 1", (100, 0), xytext=(0, -11), textcoords="offset points", ha="right")
    ax.set_xscale("log")
    title = "KL of a row of K weights, less proposition 1"
    ax.set(title=title, xlabel="K", ylabel="nats")
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.0, 0.35))


def _errors(ax: Any, outcome: Outcome) -> None:
    bars = [
        ("no dropout", "RMSE, averaged weights", "no dropout"),
        ("ensemble of 5", "RMSE, averaged weights", "ensemble of 5,\nno dropout"),
        ("last layer", "RMSE, averaged weights", "last layer,\naveraged weights"),
        ("last layer", "RMSE, MC average", "last layer,\nMC average"),
        ("every layer", "RMSE, averaged weights", "every layer,\naveraged weights"),
        ("every layer", "RMSE, MC average", "every layer,\nMC average"),
    ]
    colors = ["0.6", "0.6", "C0", "C1", "C0", "C1"]
    for place, ((setting, metric, _), color) in enumerate(zip(bars, colors, strict=True)):
        row = outcome.row(setting, metric)
        ax.errorbar(row.ours, -place, xerr=row.standard_error, fmt="o", color=color, capsize=3)
    ax.set_yticks([-place for place in range(len(bars))], [label for *_, label in bars], fontsize=9)
    ax.set_ylim(-len(bars) + 0.5, 0.5)
    ax.grid(axis="x", color="0.9")
    ax.set(title="Error of small networks at new rows", xlabel="RMSE (mean and standard error)")
