"""The curves of all agents: reward as they learn, reward of greedy evaluation, what is eaten."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.gal2016_thompson.lives import KINDS, PLOTTED_EVERY
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import COLORS, new_figure

__all__ = ["draw"]

_TITLES = {
    "paper": "Setting of the paper (27 inputs, p = 0.1 twice)",
    "demo": "Setting of the demo page (59 inputs, p = 0.2 once)",
}


def draw(outcome: Outcome) -> Any:
    """A row for each setting; lines are means over seeds, bands from the lowest to the highest."""
    arrays = outcome.arrays
    lives = [tuple(name.split(" ")) for name in arrays["lives"]]
    settings = list(dict.fromkeys(setting for setting, _ in lives))
    figure = new_figure(13, 4.2 * len(settings))
    axes = figure.subplots(len(settings), 3, squeeze=False)
    for row, setting in enumerate(settings):
        for color, kind in zip(COLORS, KINDS, strict=False):
            if (setting, kind) in lives:
                _draw_life(axes[row], arrays, f"{setting} {kind}", KINDS[kind], color)
        axes[row, 0].set_title(_TITLES[setting], loc="left", fontsize=11)
        axes[row, 0].set_ylabel("average reward while learning")
        axes[row, 0].set_xlabel("batches of 200 ticks (logarithmic)")
        axes[row, 1].set_ylabel("average reward, acting greedily")
        axes[row, 2].set_ylabel("eaten in 1,000 ticks, acting greedily")
        axes[row, 2].set_title("food: solid; poison: dashed", loc="left", fontsize=11)
        for ax in axes[row, 1:]:
            ax.set_xlabel("batches of 200 ticks")
        for ax in axes[row, :2]:
            ax.axhline(1.0, color="#666666", linewidth=0.8, linestyle=":")
        axes[row, 0].set_xscale("log")
        axes[row, 1].set_ylim(0, 1.15)
        for ax in axes[row]:
            ax.spines[["top", "right"]].set_visible(False)
    axes[0, 1].legend(frameon=False, loc="lower right", fontsize=9)
    return figure


def _draw_life(axes: Any, arrays: Any, name: str, label: str, color: str) -> None:
    batches = np.asarray(arrays[f"{name} ticks"]) / PLOTTED_EVERY
    checks = np.asarray(arrays[f"{name} check"]) / PLOTTED_EVERY
    for ax, x, what in ((axes[0], batches, "reward"), (axes[1], checks, "greedy reward")):
        values = np.asarray(arrays[f"{name} {what}"], float)
        ax.fill_between(x, values.min(1), values.max(1), color=color, alpha=0.15, linewidth=0)
        ax.plot(x, values.mean(1), color=color, linewidth=1.6, label=label)
    for what, style in (("food", "-"), ("poison", "--")):
        values = np.asarray(arrays[f"{name} greedy {what}"], float)
        axes[2].plot(checks, values.mean(1), style, color=color, linewidth=1.4)
