"""The picture: entropies of digits and clothes, deferral, calibration and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bayesdrop.experiments.row import Outcome
from bayesdrop.metrics import RiskCoverage
from bayesdrop.plots import finish_axes, new_figure, plot_reliability, plot_risk_coverage

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
    finish_axes(axes, legend=True)
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
    finish_axes(ax, "Entropy of the predictive", xlabel="nats", ylabel="share of images", yscale="log")


def _deferral(ax: Any, arrays: Any, variants: list[str]) -> None:
    for place, name in enumerate(variants):
        risk = torch.as_tensor(arrays[f"{name} curve risk"], dtype=torch.float64)
        curve = RiskCoverage(torch.linspace(0.5, 1, len(risk), dtype=torch.float64), risk)
        color = "0.5" if name == "LeNet" else f"C{place}"
        plot_risk_coverage(
            ax, curve, deferred=True, min_coverage=0.85, baseline=False, color=color, label=name
        )
    names = {"xlabel": "share of least sure images passed to a person", "ylabel": "error of the rest (%)"}
    finish_axes(ax, "Error among digits that are not deferred", **names)


def _reliability(ax: Any, arrays: Any, shown: str) -> None:
    for key, label, color in (("before", "as it is", "C0"), ("after", "draws scaled", "C3")):
        confidence, accuracy = arrays[f"{shown} curve {key}"]
        plot_reliability(ax, (confidence, accuracy), color=color, label=f"{shown}, {label}")
    limits = {"xlim": (0.3, 1.01), "ylim": (0.3, 1.02), "ylabel": "share that is right"}
    finish_axes(ax, "The 500 least sure digits", **limits)


def _coverage(ax: Any, arrays: Any, shown: str) -> None:
    values = [
        np.asarray(arrays[f"{shown} curve coverage {score}"], dtype=float) for score in ("lac", "aps", "raps")
    ]
    ax.boxplot(values, tick_labels=["lac", "aps", "raps"], widths=0.5, medianprops={"color": "C3"})
    ax.axhline(100 * arrays["level"], color="0.5", linestyle=":")
    title = f"Coverage of conformal sets, {shown}"
    finish_axes(ax, title, xlabel="score", ylabel="labels in their set (%)")
