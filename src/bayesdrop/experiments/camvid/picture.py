"""Panels that the pictures of the experiments on CamVid share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.plots import finish_axes, plot_reliability, plot_runs

__all__ = ["draw_calibration", "draw_maps", "draw_rates"]

#: of the classes sky, building, pole, road, pavement, tree, sign, fence, car, pedestrian and bicyclist
_COLOURS = (
    "#88CCEE", "#882255", "#DDCC77", "#888888", "#CC79A7", "#117733", "#E69F00", "#661100", "#332288",
    "#D55E00", "#F0E442",
)  # fmt: skip
#: of pixels that are wrong, right, and void
_RIGHT = ("#C8102E", "#E8E8E8", "#9E9E9E")


def draw_calibration(ax: Any, curves: Mapping[str, tuple[Any, Any, str]]) -> None:
    """Frequency minus probability, against probability; a calibrated network is at 0.

    Args:
        ax: axes.
        curves: confidence and frequency (runs, bins), and colour, by label.
    """
    for label, (confidence, frequency, colour) in curves.items():
        plot_reliability(ax, (confidence, frequency), difference=True, color=colour, label=label)
    names = {"xlabel": "probability, all classes of all pixels", "ylabel": "frequency less probability"}
    finish_axes(ax, legend={"fontsize": 7}, **names)


def draw_rates(ax: Any, curves: Mapping[str, tuple[Any, str, str]]) -> None:
    """Rates in the order of the layers.

    Args:
        ax: axes.
        curves: rates (runs, layers), colour and style, by label.
    """
    for label, (rates, colour, style) in curves.items():
        values = np.asarray(rates, float)
        places = np.arange(1, values.shape[1] + 1)
        plot_runs(ax, places, values, band=None, color=colour, style=style, label=label)
    finish_axes(ax, legend={"fontsize": 7}, xlabel="layer, first to last", ylabel="drop rate")


def draw_maps(axes: Any, arrays: Mapping[str, Any]) -> None:
    """Prediction, errors, noise and model uncertainty; a row for every frame.

    Args:
        axes: (rows, 4) of them.
        arrays: "map: label", "map: right", "map: noise", "map: model", each (frames, H, W).
    """
    labels, right = (np.asarray(arrays[f"map: {name}"], int) for name in ("label", "right"))
    panels: dict[str, tuple[Any, dict[str, Any]]] = {
        "prediction": (_painted(labels, _COLOURS), {}),
        "wrong is red, void is grey": (_painted(right, _RIGHT), {}),
    }
    for name, title in (("noise", "noise"), ("model", "model uncertainty")):
        values = np.asarray(arrays[f"map: {name}"], float)
        scale = {"cmap": "magma", "vmin": 0.0, "vmax": max(float(values.max()), 1e-6)}
        panels[f"{title}, 0 to {values.max():.2f} nats"] = (values, scale)
    for row, line in enumerate(axes):
        for ax, (title, (values, options)) in zip(line, panels.items(), strict=True):
            ax.imshow(values[row], interpolation="nearest", **options)
            ax.set_axis_off()
            if row == 0:
                ax.set_title(title, fontsize=9)


def _painted(labels: Any, colours: tuple[str, ...]) -> Any:
    """(...) labels as (..., 3) bytes of colour."""
    palette = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in colours]
    return np.array(palette, np.uint8)[labels]
