"""PAvPU against the threshold, reliability, and learned rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_cifar.heads import METHODS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_reliability, plot_runs

__all__ = ["THRESHOLD", "draw"]


#: the label of PAvPU's x axis
THRESHOLD = "threshold of the entropy, least to largest of validation"


def draw(outcome: Outcome) -> Any:
    """Three panels; means over seeds."""
    arrays = outcome.arrays
    figure = new_figure(12.5, 4.0)
    certain, reliable, learned = figure.subplots(1, 3)
    for place, method in enumerate(arrays["methods"]):
        colour, title = f"C{place}", METHODS[method].title
        curve = np.asarray(arrays[f"{method}: pavpu"], float)
        places = np.linspace(0, 1, curve.shape[1])
        plot_runs(certain, places, curve, band=None, color=colour, label=title)
        found = (arrays[f"{method}: confidence"], arrays[f"{method}: right"])
        plot_reliability(reliable, found, difference=True, color=colour)
        for layer, style in ((1, "-"), (2, "--")):
            values = arrays.get(f"{method}: rates {layer}")
            if method in ("concrete", "unit", "layer", "one") and values is not None:
                ordered = np.sort(np.asarray(values, float).reshape(len(values), -1), 1).mean(0)
                across = np.linspace(0, 1, max(len(ordered), 2))
                learned.plot(across, np.resize(ordered, len(across)), style, color=colour)
    finish_axes(certain, legend={"fontsize": 7}, xlabel=THRESHOLD, ylabel="PAvPU")
    units = "units, by rate (layer 1 solid, layer 2 dashed)"
    finish_axes(learned, xlabel=units, ylabel="learned drop rate")
    return figure
