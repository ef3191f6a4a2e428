"""Panels that the pictures of the experiments on CamVid share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["draw_calibration", "draw_maps", "draw_rates"]

#: of classes: sky, building, pole, road, pavement, tree, sign, fence, car, pedestrian, bicyclist
_COLOURS = (
    "#88CCEE", "#882255", "#DDCC77", "#888888", "#CC79A7", "#117733", "#E69F00", "#661100", "#332288",
    "#D55E00", "#F0E442",
)  # fmt: skip
#: wrong, right, void
_RIGHT = ("#C8102E", "#E8E8E8", "#9E9E9E")


def draw_calibration(ax: Any, curves: Mapping[str, tuple[Any, Any, str, str]]) -> None:
    """Frequency less probability against probability; 0 is calibrated.

    Args:
        ax: axes.
        curves: confidence and frequency (runs, bins), colour and style, by label.
    """
    for label, (confidence, frequency, colour, style) in curves.items():
        across, up = _mean(confidence), _mean(frequency)
        ax.plot(across, up - across, style, color=colour, label=label, markersize=3)
    ax.axhline(0, color="#888888", linewidth=1)
    ax.set_xlabel("probability, all classes of all pixels")
    ax.set_ylabel("frequency less probability")
    ax.legend(fontsize=7)


def draw_rates(ax: Any, curves: Mapping[str, tuple[Any, str, str]]) -> None:
    """Rates in the order of the layers.

    Args:
        ax: axes.
        curves: rates (runs, layers), colour and style, by label.
    """
    for label, (rates, colour, style) in curves.items():
        values = np.asarray(rates, float).mean(0)
        ax.plot(np.arange(1, len(values) + 1), values, style, color=colour, label=label, markersize=3)
    ax.set_xlabel("layer, first to last")
    ax.set_ylabel("drop rate")
    if curves:
        ax.legend(fontsize=7)


def draw_maps(axes: Any, arrays: Mapping[str, Any]) -> None:
    """Prediction, errors, noise and model uncertainty of one frame a row.

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


def _mean(values: Any) -> Any:
    """Over runs; empty bins are left out, and NaN where all are."""
    array = np.ma.masked_invalid(np.asarray(values, float))
    return array.mean(0).filled(np.nan)


def _painted(labels: Any, colours: tuple[str, ...]) -> Any:
    """(..., 3) bytes."""
    palette = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in colours]
    return np.array(palette, np.uint8)[labels]
