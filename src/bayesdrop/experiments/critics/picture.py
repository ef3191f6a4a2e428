"""The picture: a panel for each objection."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.critics.off_data import EXACT, GRID, INNER, OUTER
from bayesdrop.experiments.critics.two_kinds import DETECTED, KIND_METHODS, PARTS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["draw"]

COLORS = ("#1A1A1A", "#777777", "#0072B2", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00")


def draw(outcome: Outcome) -> Any:
    """Four panels: off the data, two kinds, more data, labels to ask for."""
    arrays = outcome.arrays
    figure = new_figure(13, 8.6)
    axes = figure.subplots(2, 2)
    _curves(axes[0, 0], arrays)
    _kinds(axes[0, 1], arrays)
    _sizes(axes[1, 0], arrays)
    _labels(axes[1, 1], arrays)
    return figure


def _curves(ax: Any, arrays: Any) -> None:
    for side in (-1, 1):
        ax.axvspan(*sorted((side * INNER, side * OUTER)), color="0.92", linewidth=0)
    for color, method in zip(COLORS, arrays["curves"], strict=True):
        ax.plot(
            GRID, np.asarray(arrays[f"spread {method}"], dtype=float), color=color, label=method,
            linestyle="--" if method in EXACT else "-", linewidth=1.6,
        )  # fmt: skip
    names = {"xlabel": "x (data in the grey bands)", "ylabel": "spread, 1 at the data", "yscale": "log"}
    finish_axes(ax, "Off the data: does the spread grow?", grid=True, **names)
    # Room for the names above the curves.
    ax.set_ylim(top=ax.get_ylim()[1] * 12)
    ax.legend(loc="upper center", ncols=2, fontsize=9, frameon=False)


def _kinds(ax: Any, arrays: Any) -> None:
    if "kinds" not in arrays:
        ax.set_visible(False)
        return
    values = np.asarray(arrays["kinds"], dtype=float)
    marks = {"aleatoric": "s", "epistemic": "o"}
    for column, place in enumerate(DETECTED):
        for part, name in enumerate(PARTS):
            at = np.arange(len(KIND_METHODS)) + 0.12 * (2 * column - 1) + 0.04 * (2 * part - 1)
            color = ("#0072B2", "#D55E00")[column]
            ax.plot(
                at, values[:, part, column], marks[name], color=color, label=f"{place}, by the {name} part",
                markerfacecolor=color if name == "epistemic" else "none",
            )  # fmt: skip
    ax.set_xticks(range(len(KIND_METHODS)), KIND_METHODS)
    ax.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    limits = {"ylim": (max(0.0, float(values.min()) - 0.35), 1.02), "ylabel": "AUROC against clean images"}
    finish_axes(ax, "Two kinds: what does each detect?", legend="lower right", grid="y", **limits)


def _sizes(ax: Any, arrays: Any) -> None:
    for name, color in (("fixed", "#1A1A1A"), ("learned", "#E69F00")):
        values = np.asarray(arrays[f"size {name}"], dtype=float)
        ax.plot(arrays["sizes"], values, marker="o", color=color, label=f"{name} rate")
    highest = max(*arrays["size fixed"], *arrays["size learned"])
    names = {"xlabel": "rows N", "ylabel": "epistemic standard deviation", "xscale": "log"}
    ax.set_ylim(0, 1.15 * float(highest))
    finish_axes(ax, "More data: does the spread shrink?", legend=True, grid=True, **names)


def _labels(ax: Any, arrays: Any) -> None:
    if not list(arrays["asked"]):
        ax.set_visible(False)
        return
    for color, method in zip(("0.5", "#0072B2", "#D55E00"), arrays["asked"], strict=True):
        labels, accuracy = (
            np.asarray(arrays[f"{what} {method}"], dtype=float) for what in ("labels", "accuracy")
        )
        ax.plot(labels, accuracy, marker="o", markersize=3, color=color, label=method.replace("_", "-"))
    names = {"xlabel": "labels", "ylabel": "test accuracy (%)"}
    finish_axes(ax, "Labels to ask for", legend="lower right", grid=True, **names)
