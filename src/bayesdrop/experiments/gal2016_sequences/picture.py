"""The picture: held-out likelihood, over-fitting, and whether the spread shows what is from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.gal2016_sequences.networks import NONE, SHARED, VARIANTS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_estimates

__all__ = ["draw"]


def draw(outcome: Outcome) -> Any:
    """Three panels with a line for each problem and cell; dots are seeds, bars their means."""
    arrays = outcome.arrays
    groups = [tuple(group) for group in arrays["groups"]]
    figure = new_figure(13, 1.8 + 0.62 * max(len(groups), 3))
    axes = figure.subplots(1, 3)

    def values(group: tuple[str, ...], variant: str, name: str) -> Any:
        return np.asarray(arrays[f"{' | '.join(group)} | {variant} | {name}"], dtype=float)

    for place, variant in enumerate(VARIANTS if groups else ()):
        style: dict[str, Any] = {"color": f"C{place}", "shift": 0.15 * (place - 2), "label": variant}
        held = {", ".join(group): values(group, variant, "held out") for group in groups}
        if variant != NONE:
            gains = {
                name: held[name] - values(g, NONE, "held out") for name, g in zip(held, groups, strict=True)
            }
            plot_estimates(axes[0], gains, **style)
        gaps = {
            name: values(g, variant, "trained on") - held[name] for name, g in zip(held, groups, strict=True)
        }
        plot_estimates(axes[1], gaps, **style)
    axes[0].set(title="Held-out likelihood, less that without dropout", xlabel="nats (right is better)")
    axes[1].set(title="Likelihood: trained on, less held out", xlabel="nats (left is less over-fitting)")
    for ax in axes[:2]:
        ax.axvline(0, color="0.5", linewidth=0.8)
        ax.set_xscale("symlog", linthresh=0.1)
        low, high = ax.get_xlim()
        places = [sign * size for size in (0.1, 0.3, 1, 3, 10) for sign in (-1, 1)]
        shown = sorted(place for place in (0.0, *places) if low <= place <= high)
        ax.set_xticks(shown, [f"{place:g}" for place in shown])
        ax.minorticks_off()
    _spread(axes[2], arrays, groups)
    for ax in axes:
        ax.set_yticks(range(len(groups)), [", ".join(group) if ax is axes[0] else "" for group in groups])
        finish_axes(ax, ylim=(max(len(groups), 1) - 0.5, -0.5))
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, ncols=len(VARIANTS), loc="outside upper left")
    return figure


def _spread(ax: Any, arrays: Any, groups: list[tuple[str, ...]]) -> None:
    """AUROC of the spread with one mask; a dot, with its name, for each kind from outside."""
    for row, group in enumerate(groups):
        start = f"{' | '.join(group)} | {SHARED} | AUROC "
        kinds = [
            key for key in arrays if key.startswith((f"{start}mutual_information ", f"{start}epistemic "))
        ]
        for place, key in enumerate(kinds):
            name = " ".join(key.removeprefix(start).split(" ")[1:])
            y = row + 0.26 * (place - 1)
            mean = float(np.mean(np.asarray(arrays[key], dtype=float)))
            ax.plot(mean, y, "o", color="C3", markersize=4)
            side = {"ha": "left", "xytext": (5, -3)} if mean < 0.6 else {"ha": "right", "xytext": (-5, -3)}
            ax.annotate(name, (mean, y), textcoords="offset points", fontsize=8, **side)
    ax.axvline(0.5, color="0.5", linewidth=0.8)
    ax.set_xlim(0, 1.02)
    ax.set(title=f"AUROC of the spread, {SHARED}", xlabel="0.5 is chance")
