"""The picture: entropies of digits and clothes, deferral, calibration and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

__all__ = ["draw"]


def draw(outcome: Outcome) -> Any:
    """Four panels."""
    arrays = outcome.arrays
    variants = list(arrays["variants"])
    shown = "MC dropout" if "MC dropout" in variants else variants[0]
    figure = new_figure(11, 7.6)
    axes = figure.subplots(2, 2)
    _entropies(axes[0, 0], arrays, variants, shown)
    _deferral(axes[0, 1], arrays, variants)
    _reliability(axes[1, 0], arrays, shown)
    _coverage(axes[1, 1], arrays, shown)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def _entropies(ax: Any, arrays: Any, variants: list[str], shown: str) -> None:
    edges = np.linspace(0, 2.302586, 41)
    others = [name for name in ("LeNet",) if name in variants and name != shown]
    for name, fill in ((shown, True), *((other, False) for other in others)):
        for color, place in (("C0", "digits"), ("C1", "Fashion-MNIST")):
            values = np.asarray(arrays[f"{name} curve entropy {place}"], dtype=float)
            label = f"{'digits' if place == 'digits' else 'clothes'}, {name}"
            options = {"alpha": 0.35, "linewidth": 0} if fill else {"linewidth": 1.3}
            ax.stairs(values, edges, color=color, fill=fill, label=label, **options)
    ax.set_yscale("log")
    ax.set(title="Entropy of the predictive", xlabel="nats", ylabel="share of images")
    ax.legend(frameon=False, fontsize=9)


def _deferral(ax: Any, arrays: Any, variants: list[str]) -> None:
    for place, name in enumerate(variants):
        risk = np.asarray(arrays[f"{name} curve risk"], dtype=float)
        share = 100 * (1 - np.linspace(0.5, 1, len(risk)))
        style = {"color": "0.5", "linestyle": "--"} if name == "LeNet" else {"color": f"C{place}"}
        ax.plot(share, risk, label=name, **style)
    ax.set_xlim(0, 15)
    ax.set(
        title="Error among digits that are not deferred",
        xlabel="least sure images passed to a person (%)",
        ylabel="error of the rest (%)",
    )
    ax.legend(frameon=False, fontsize=9)


def _reliability(ax: Any, arrays: Any, shown: str) -> None:
    ax.plot([0, 1], [0, 1], ":", color="0.5")
    for key, label, color in (("before", "as it is", "C0"), ("after", "draws scaled", "C3")):
        confidence, accuracy = np.asarray(arrays[f"{shown} curve {key}"], dtype=float)
        ax.plot(confidence, accuracy, "o-", markersize=4, color=color, label=f"{shown}, {label}")
    ax.set_xlim(0.3, 1.01)
    ax.set_ylim(0.3, 1.02)
    ax.set(title="The 500 least sure digits", xlabel="confidence", ylabel="share that is right")
    ax.legend(frameon=False, fontsize=9, loc="upper left")


def _coverage(ax: Any, arrays: Any, shown: str) -> None:
    values = [
        np.asarray(arrays[f"{shown} curve coverage {score}"], dtype=float) for score in ("lac", "aps", "raps")
    ]
    ax.boxplot(values, tick_labels=["lac", "aps", "raps"], widths=0.5, medianprops={"color": "C3"})
    ax.axhline(100 * arrays["level"], color="0.5", linestyle=":")
    ax.set(title=f"Coverage of conformal sets, {shown}", xlabel="score", ylabel="labels in their set (%)")
