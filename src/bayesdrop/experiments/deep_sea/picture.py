"""Episodes until solved, by depth, and how far functions differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.deep_sea.dives import KINDS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import COLORS, finish_axes, new_figure

__all__ = ["draw"]


def draw(outcome: Outcome) -> Any:
    """Episodes until solved, by depth, and how far functions differ.

    Lines are medians, dots are seeds; seas that were not solved are at the limit.
    """
    arrays = outcome.arrays
    figure = new_figure(13, 5)
    ax, other = figure.subplots(1, 2)
    depths, limit = np.asarray(arrays["depths"], float), float(arrays["limit"])
    for place, (agent, color) in enumerate(zip(arrays["agents"], COLORS, strict=False)):
        shift = 0.09 * (place - (len(arrays["agents"]) - 1) / 2)
        solved = np.asarray(arrays["solved"][place], float)
        shown = np.where(solved > 0, solved, limit)
        ax.plot(depths + shift, np.median(shown, 1), "-", color=color, linewidth=1.6, label=KINDS[agent])
        where = np.repeat(depths + shift, shown.shape[1])
        ax.plot(where, shown.ravel(), "o", color=color, markersize=3, alpha=0.5)
    ax.axhline(limit, color="#666666", linewidth=0.8, linestyle=":")
    ax.set_xticks(depths)
    names = {"xlabel": "depth of the sea", "ylabel": "episodes until solved (dotted: not within the limit)"}
    finish_axes(ax, legend=True, yscale="log", **names)
    _draw_fading(other, arrays)
    return figure


def _draw_fading(ax: Any, arrays: Any) -> None:
    looks = arrays["looks"]
    for agent, color in zip(arrays["agents"], COLORS, strict=False):
        if f"fading {agent}" in arrays:
            first, last = np.asarray(arrays[f"fading {agent}"], float).mean(-1)
            ax.plot(looks, first, "-o", color=color, markersize=3, label=f"{KINDS[agent]}: first cell")
            ax.plot(looks, last, "--o", color=color, markersize=3, label="cell of the treasure")
    ylabel = "standard deviation of values over functions"
    finish_axes(ax, legend=True, yscale="log", xlabel="episodes", ylabel=ylabel)
