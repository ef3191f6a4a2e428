"""PAvPU against the threshold, reliability, and learned rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_cifar.heads import METHODS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

__all__ = ["draw"]


def draw(outcome: Outcome) -> Any:
    """Three panels; means over seeds."""
    arrays = outcome.arrays
    figure = new_figure(12.5, 4.0)
    certain, reliable, learned = figure.subplots(1, 3)
    for place, method in enumerate(arrays["methods"]):
        colour, title = f"C{place}", METHODS[method].title
        curve = np.asarray(arrays[f"{method}: pavpu"], float).mean(0)
        certain.plot(np.linspace(0, 1, len(curve)), curve, color=colour, label=title)
        confidence, right = (
            np.asarray(arrays[f"{method}: {what}"], float) for what in ("confidence", "right")
        )
        # Of bins that no seed has anything in, there is nothing to draw.
        filled = ~np.isnan(confidence).all(0)
        confidence, right = np.nanmean(confidence[:, filled], 0), np.nanmean(right[:, filled], 0)
        reliable.plot(confidence, right - confidence, "o-", color=colour, markersize=3)
        for layer, style in ((1, "-"), (2, "--")):
            values = arrays.get(f"{method}: rates {layer}")
            if method in ("concrete", "unit", "layer", "one") and values is not None:
                ordered = np.sort(np.asarray(values, float).reshape(len(values), -1), 1).mean(0)
                across = np.linspace(0, 1, max(len(ordered), 2))
                learned.plot(across, np.resize(ordered, len(across)), style, color=colour)
    certain.set_xlabel("threshold of the entropy, least to largest of validation")
    certain.set_ylabel("PAvPU")
    certain.legend(fontsize=7)
    reliable.axhline(0, color="#888888", linewidth=1)
    reliable.set_xlabel("confidence")
    reliable.set_ylabel("accuracy less confidence")
    learned.set_xlabel("units, by rate (layer 1 solid, layer 2 dashed)")
    learned.set_ylabel("learned drop rate")
    return figure
