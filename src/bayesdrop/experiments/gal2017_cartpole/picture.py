"""The picture of the cart-pole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2017_cartpole.learning import OUTPUTS
from bayesdrop.experiments.gal2017_cartpole.report import LAYERS, PAPER_REWARD
from bayesdrop.experiments.gal2017_cartpole.variants import VARIANTS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import COLORS, new_figure

__all__ = ["draw"]

INK, MUTED = "#1A1A1A", "#666666"
UNITS = {"x": "m", "x'": "m/s", "theta": "rad", "theta'": "rad/s"}


def draw(outcome: Outcome) -> Any:
    """Reward, rates and epistemic std by trial; below, what functions said of trials and what came."""
    arrays = outcome.arrays
    names = [name for name in VARIANTS if f"{name}: rewards" in arrays]
    colors = {name: COLORS[place % len(COLORS)] for place, name in enumerate(VARIANTS)}
    figure = new_figure(16, 11)
    axes = figure.subplots(3, 4)
    _rewards(axes[0, 0], arrays, names, colors)
    shown = [name for name in names if VARIANTS[name].control == "policy"]
    for place, layer in enumerate(LAYERS):
        ax = axes[0, 1 + place]
        _curves(ax, arrays, shown, colors, "rates", place)
        ax.set_title(f"drop rate, {layer}", loc="left", fontsize=11)
        ax.set_ylim(bottom=0)
    for place, output in enumerate(OUTPUTS):
        ax = axes[1, place]
        _curves(ax, arrays, shown, colors, "epistemic", place)
        ax.set_title(f"epistemic std of {output} ({UNITS[output]})", loc="left", fontsize=11)
        ax.set_yscale("log")
        # A seed whose rates have gone to 0 has no spread left; it leaves the picture below.
        lowest = min(np.asarray(arrays[f"{name}: epistemic"])[..., place].mean(0).min() for name in shown)
        ax.set_ylim(bottom=0.3 * float(lowest))
    fans = sorted(int(name.split()[1]) for name in arrays if name.startswith("fan "))
    for place, ax in enumerate(axes[2]):
        if place < len(fans):
            _fan(ax, arrays, fans[place])
        elif place == 3 and fans:
            _fan(ax, arrays, fans[-1], part=0)
        else:
            ax.set_axis_off()
    axes[2, 0].legend(frameon=False, fontsize=9)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#E8E8E8", linewidth=0.7)
        ax.set_axisbelow(True)
    for ax in axes[:2].flat:
        ax.set_xlabel("trial")
    return figure


def _rewards(ax: Any, arrays: Mapping[str, Any], names: list[str], colors: Mapping[str, str]) -> None:
    """Means over the starts; single episodes where a policy is not to be had."""
    for name in names:
        own = "rewards" if VARIANTS[name].control == "mpc" else "means"
        values = np.asarray(arrays[f"{name}: {own}"], dtype=float)[:, 1:]
        trials = np.arange(2, values.shape[1] + 2)
        ax.plot(trials, values.mean(0), color=colors[name], label=VARIANTS[name].title, linewidth=1.8)
        for seed in values:
            ax.plot(trials, seed, color=colors[name], alpha=0.2, linewidth=0.8)
    ax.axhline(PAPER_REWARD, color=MUTED, linestyle="--", linewidth=1)
    ax.annotate("paper, 16.5", (2, PAPER_REWARD), (0, 3), textcoords="offset points", color=MUTED, fontsize=9)
    ax.set_ylim(0, 25)
    ax.legend(frameon=False, fontsize=7.5, loc="upper left", ncols=2)
    ax.set_title("reward of 25 steps (MPC: single episodes)", loc="left", fontsize=11)


def _curves(
    ax: Any, arrays: Mapping[str, Any], names: list[str], colors: Mapping[str, str], what: str, place: int
) -> None:
    """The mean over seeds, and thin lines of the seeds."""
    for name in names:
        values = np.asarray(arrays[f"{name}: {what}"], dtype=float)[..., place]
        trials = np.arange(1, values.shape[1] + 1)
        for seed in values:
            ax.plot(trials, seed, color=colors[name], alpha=0.2, linewidth=0.8)
        ax.plot(trials, values.mean(0), color=colors[name], linewidth=1.8, marker="o", markersize=2.5)


def _fan(ax: Any, arrays: Mapping[str, Any], trial: int, part: int = 2) -> None:
    """Functions of the model (lines) and what came (dots): the angle, or the place of the cart."""
    fan, real = np.asarray(arrays[f"fan {trial}"]), np.asarray(arrays[f"real {trial}"])
    seconds = 0.1 * np.arange(real.shape[0])
    for place, line in enumerate(fan[..., part]):
        label = "functions of the model" if place == 0 else None
        ax.plot(seconds, line, color=COLORS[0], alpha=0.4, linewidth=0.9, label=label)
    ax.plot(seconds, real[:, part], "o-", color=COLORS[1], markersize=3, linewidth=1.2, label="what came")
    name = "angle (rad; upright at +-pi)" if part == 2 else "cart (m)"
    ax.set_title(f"trial {trial}: {name}", loc="left", fontsize=11)
    low, high = real[:, part].min(), real[:, part].max()
    margin = 0.6 * max(high - low, 0.5)
    ax.set_ylim(low - margin, high + margin)
    ax.set_xlabel("seconds")
