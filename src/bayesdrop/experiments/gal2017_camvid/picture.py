"""Calibration, rates by depth, and maps of test frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.camvid.picture import draw_calibration, draw_maps, draw_rates
from bayesdrop.experiments.gal2017_camvid.report import VARIANTS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

__all__ = ["draw"]

_COLOURS = {"bernoulli": "#0072B2", "concrete": "#D55E00"}
#: no dropout; fixed and learned rates, by one pass in a paler colour, by draws in their own
_CURVES = ("#1A1A1A", "#56B4E9", "#0072B2", "#E69F00", "#D55E00")


def draw(outcome: Outcome) -> Any:
    """Two panels, and below them a row of maps for every frame."""
    arrays = outcome.arrays
    frames = len(np.asarray(arrays.get("map: label", ())))
    figure = new_figure(11.0, 3.8 + 2.2 * frames)
    above, *below = figure.subfigures(
        2 if frames else 1, 1, squeeze=False, height_ratios=[3.8, 2.2 * frames][: 1 + (frames > 0)]
    )[:, 0]
    calibration, learned = above.subplots(1, 2)
    titles = [row.setting for row in outcome.rows if row.metric == "IoU (%)"]
    curves = {
        title: (*(arrays[f"{method}: {way}: {what}"] for what in ("confidence", "frequency")), colour)
        for title, (method, way), colour in zip(titles, VARIANTS, _CURVES, strict=True)
    }
    draw_calibration(calibration, curves)
    rates = {"dropout": (arrays["bernoulli: rates"], _COLOURS["bernoulli"], "-")}
    rates["Concrete"] = (arrays["concrete: rates"], _COLOURS["concrete"], "o-")
    for place, start in enumerate(arrays["starts"]):
        rates[f"Concrete, {start}"] = (arrays[f"{start}: rates"], "#009E73", (":", "--")[place % 2])
    draw_rates(learned, rates)
    if below:
        draw_maps(below[0].subplots(frames, 4, squeeze=False), arrays)
    return figure
