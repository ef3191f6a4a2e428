"""The picture of the cart-pole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.control.worlds.cart_pole_picture import cart_pole_picture
from bayesdrop.experiments.gal2017_cartpole.learning import OUTPUTS
from bayesdrop.experiments.gal2017_cartpole.report import LAYERS, PAPER_REWARD
from bayesdrop.experiments.gal2017_cartpole.variants import VARIANTS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import COLORS, finish_axes, new_figure, plot_draws, plot_runs

__all__ = ["draw", "film"]

MUTED = "#666666"
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
        finish_axes(ax, f"drop rate, {layer}", ylim=(0, None))
    for place, output in enumerate(OUTPUTS):
        ax = axes[1, place]
        _curves(ax, arrays, shown, colors, "epistemic", place)
        # A seed whose rates have gone to 0 has no spread left; it leaves the picture below.
        lowest = min(np.asarray(arrays[f"{name}: epistemic"])[..., place].mean(0).min() for name in shown)
        limits = {"yscale": "log", "ylim": (0.3 * float(lowest), None)}
        finish_axes(ax, f"epistemic std of {output} ({UNITS[output]})", **limits)
    fans = sorted(int(name.split()[1]) for name in arrays if name.startswith("fan "))
    for place, ax in enumerate(axes[2]):
        if place < len(fans):
            _fan(ax, arrays, fans[place])
        elif place == 3 and fans:
            _fan(ax, arrays, fans[-1], part=0)
        else:
            ax.set_axis_off()
    finish_axes(axes[2, 0], legend=True)
    finish_axes(axes, grid=True)
    finish_axes(axes[:2], xlabel="trial")
    return figure


def _rewards(ax: Any, arrays: Mapping[str, Any], names: list[str], colors: Mapping[str, str]) -> None:
    """Means over the starts; single episodes where a policy is not to be had."""
    for name in names:
        own = "rewards" if VARIANTS[name].control == "mpc" else "means"
        values = np.asarray(arrays[f"{name}: {own}"], dtype=float)[:, 1:]
        trials = np.arange(2, values.shape[1] + 2)
        title = VARIANTS[name].title
        plot_runs(ax, trials, values, band=None, runs=True, color=colors[name], label=title)
    ax.axhline(PAPER_REWARD, color=MUTED, linestyle="--", linewidth=1)
    ax.annotate("paper, 16.5", (2, PAPER_REWARD), (0, 3), textcoords="offset points", color=MUTED, fontsize=9)
    legend = {"fontsize": 7.5, "loc": "upper left", "ncols": 2}
    finish_axes(ax, "reward of 25 steps (MPC: single episodes)", legend=legend, ylim=(0, 25))


def _curves(
    ax: Any, arrays: Mapping[str, Any], names: list[str], colors: Mapping[str, str], what: str, place: int
) -> None:
    """The mean over seeds, and thin lines of the seeds."""
    for name in names:
        values = np.asarray(arrays[f"{name}: {what}"], dtype=float)[..., place]
        trials = np.arange(1, values.shape[1] + 1)
        plot_runs(ax, trials, values, band=None, runs=True, color=colors[name])


def _fan(ax: Any, arrays: Mapping[str, Any], trial: int, part: int = 2) -> None:
    """Functions of the model (lines) and what came (dots): the angle, or the place of the cart."""
    fan, real = np.asarray(arrays[f"fan {trial}"]), np.asarray(arrays[f"real {trial}"])
    seconds = 0.1 * np.arange(real.shape[0])
    plot_draws(ax, seconds, fan[..., part], len(fan), label="functions of the model")
    ax.plot(seconds, real[:, part], "o-", color=COLORS[1], markersize=3, linewidth=1.2, label="what came")
    name = "angle (rad; upright at +-pi)" if part == 2 else "cart (m)"
    low, high = real[:, part].min(), real[:, part].max()
    margin = 0.6 * max(high - low, 0.5)
    finish_axes(ax, f"trial {trial}: {name}", ylim=(low - margin, high + margin), xlabel="seconds")


def film(outcome: Outcome) -> list[np.ndarray[Any, Any]]:
    """Frames (200, 320, 3) of the last trial of the first agent, one a step of 0.1 s."""
    last = max(int(name.split()[1]) for name in outcome.arrays if name.startswith("real "))
    states = np.asarray(outcome.arrays[f"real {last}"], dtype=float)
    frames = [cart_pole_picture(state, pole_length=0.6) for state in states]
    # The end stays for half a second before it begins again.
    return [*frames, *([frames[-1]] * 5)]
