"""The picture: what every method adds to the likelihood of a bare network, what it detects, what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_estimates

__all__ = ["draw"]

_COLUMNS = 4
GREY = "#888888"


def draw(outcome: Outcome) -> Any:
    """A panel for the likelihood on every set, for the detection by every image network, and for the cost."""
    arrays = outcome.arrays
    methods = list(arrays["methods"])
    tables, images = list(arrays["tables"]), list(arrays["images"])
    panels = [*tables, *images, *(f"auroc {name}" for name in images), "cost"]
    rows = -(-len(panels) // _COLUMNS)
    figure = new_figure(3.3 * _COLUMNS + 1.6, 2.9 * rows)
    axes = figure.subplots(rows, _COLUMNS, sharey=True, squeeze=False)
    for ax, panel in zip(axes.flat, panels, strict=False):
        if panel == "cost":
            _cost(ax, arrays, [*tables, *images], methods)
        elif panel.startswith("auroc "):
            _estimates(ax, methods, arrays[panel])
            ax.axvline(arrays[panel][0][0], color=GREY, linewidth=0.8, linestyle=":")
            name = panel.removeprefix("auroc ")
            finish_axes(ax, f"{name}: foreign images", grid="x", xlabel="AUROC of the entropy")
        else:
            gains = arrays[f"gain {panel}"]
            _estimates(ax, methods, gains)
            ax.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
            finish_axes(ax, panel, grid="x", xlabel="log-likelihood less bare's (nats)")
        ax.locator_params(axis="x", nbins=4)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_visible(False)
    return figure


def _estimates(ax: Any, methods: list[str], values: Any) -> None:
    pairs = [(float(mean), float(error)) for mean, error in values]
    plot_estimates(ax, dict(zip(methods, pairs, strict=True)))


def _cost(ax: Any, arrays: Any, sets: list[str], methods: list[str]) -> None:
    """CPU time to make each method's network from nothing, the bare network's being 1, over the sets."""
    shares = []
    for name in sets:
        made = np.asarray(arrays[f"cost {name}"][0], dtype=float)
        on_top = [
            method not in ("bare", "dropout, trained", "mean-field VI", "ensemble") for method in methods
        ]
        shares.append((made + np.where(on_top, made[0], 0.0)) / made[0])
    plot_estimates(
        ax, {method: (float(s), None) for method, s in zip(methods, np.mean(shares, 0), strict=True)}
    )
    finish_axes(ax, "Training and choosing", grid="x", xlabel="CPU time, bare network = 1", xlim=(0, None))
