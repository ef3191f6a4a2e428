"""PAvPU against the threshold, calibration, and learned rates of the middle layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_camvid.report import TABLE_ROWS
from bayesdrop.experiments.boluki2020_cifar.picture import THRESHOLD
from bayesdrop.experiments.camvid.picture import draw_calibration, draw_rates
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_runs

__all__ = ["draw"]


def draw(outcome: Outcome) -> Any:
    """Three panels; means over seeds."""
    arrays = outcome.arrays
    figure = new_figure(12.5, 4.0)
    certain, calibration, learned = figure.subplots(1, 3)
    curves, rates = {}, {}
    for place, (name, row) in enumerate(TABLE_ROWS.items()):
        if row.method not in arrays["methods"]:
            continue
        colour, stem = f"C{place}", f"{row.method}: {row.way}"
        curve = np.asarray(arrays[f"{stem}: pavpu"], float)
        places = np.linspace(0, 1, curve.shape[1])
        plot_runs(certain, places, curve, band=None, color=colour, label=row.title)
        curves[row.title] = (arrays[f"{stem}: confidence"], arrays[f"{stem}: frequency"], colour)
        if name in ("concrete", "layer", "channel"):
            rates[row.title] = (arrays[f"{row.method}: rates"], colour, "o-")
    names = {"xlabel": THRESHOLD, "ylabel": "PAvPU of patches of 2 x 2"}
    finish_axes(certain, legend={"fontsize": 7}, **names)
    draw_calibration(calibration, curves)
    draw_rates(learned, rates)
    learned.set_xlabel("layer of the middle block")
    return figure
