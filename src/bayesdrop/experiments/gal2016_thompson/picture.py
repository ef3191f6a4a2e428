"""The curves of all agents: reward while learning, reward when acting greedily, and what is eaten."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.gal2016_thompson.lives import KINDS, PLOTTED_EVERY
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import COLORS, finish_axes, new_figure, plot_runs

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
        learning, greedy, eaten = axes[row]
        finish_axes(axes[row], xlabel="batches of 200 ticks")
        finish_axes(learning, _TITLES[setting], ylabel="average reward while learning", xscale="log")
        learning.set_xlabel("batches of 200 ticks (logarithmic)")
        finish_axes(greedy, ylabel="average reward, acting greedily", ylim=(0, 1.15))
        finish_axes(eaten, "food: solid; poison: dashed", ylabel="eaten in 1,000 ticks, acting greedily")
        for ax in (learning, greedy):
            ax.axhline(1.0, color="#666666", linewidth=0.8, linestyle=":")
    finish_axes(axes[0, 1], legend="lower right")
    return figure


def _draw_life(axes: Any, arrays: Any, name: str, label: str, color: str) -> None:
    batches = np.asarray(arrays[f"{name} ticks"]) / PLOTTED_EVERY
    checks = np.asarray(arrays[f"{name} check"]) / PLOTTED_EVERY
    for ax, x, what in ((axes[0], batches, "reward"), (axes[1], checks, "greedy reward")):
        plot_runs(ax, x, np.asarray(arrays[f"{name} {what}"], float).T, color=color, label=label)
    for what, style in (("food", "-"), ("poison", "--")):
        values = np.asarray(arrays[f"{name} greedy {what}"], float).T
        plot_runs(axes[2], checks, values, band=None, color=color, style=style)
