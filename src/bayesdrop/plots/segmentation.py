"""Segmentations: image, labels, prediction, and both parts of the uncertainty, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesdrop.errors import must, require
from bayesdrop.likelihoods import Categorical
from bayesdrop.plots.checks import Numbers, Values, check_axes, has_classes, numbers
from bayesdrop.plots.images import pictures_of, shades_of
from bayesdrop.predict import Prediction

__all__ = ["plot_segmentation"]

#: colours of classes, in order: neighbours differ in hue and in lightness; void is grey
_PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
    "#882255", "#44AA99", "#332288", "#DDCC77", "#AA4499", "#117733", "#88CCEE",
    "#661100", "#6699CC", "#999933", "#CC6677", "#1A1A1A", "#EEEEEE",
)  # fmt: skip
_VOID = "#9E9E9E"


def plot_segmentation(
    axes: Any,
    images: Values,
    prediction: Prediction,
    *,
    targets: Values | None = None,
    ignore_index: int | None = None,
    names: Sequence[str] | None = None,
    colors: Sequence[Any] | None = None,
    cmap: str = "magma",
) -> Any:
    """Image, labels, prediction, noise and model uncertainty of segmentations, a row of axes for each.

    Noise is the expected entropy, which more data would not reduce; model uncertainty is the mutual
    information, the disagreement of the draws. Each of the two has one scale, from 0 to its largest value in
    the images drawn, which is written above. The classes drawn are labelled for a legend on the axes of the
    first prediction.

    Args:
        axes: (R, 5) axes, or (R, 4) without targets; a single row may be a flat list. The first R images are
            drawn.
        images: (N, H, W), or with 1 or 3 channels (N, C, H, W) or (N, H, W, C).
        prediction: of classes of pixels, labels (N, H, W); of 2 draws at least.
        targets: (N, H, W) true labels.
        ignore_index: the void label, drawn grey; None: the likelihood's.
        names: of all K classes; their indices if None.
        colors: of all K classes.
        cmap: matplotlib's name of the colour map of uncertainties.

    Returns: the axes, as they were given.
    """
    owner = "plot_segmentation"
    labels = _label_maps(owner, prediction)
    if ignore_index is None and isinstance(prediction.likelihood, Categorical):
        ignore_index = prediction.likelihood.ignore_index
    pictures = pictures_of(owner, images, len(prediction), "prediction")
    if pictures.shape[1:3] != labels.shape[1:]:
        raise ValueError(
            must(owner, "images", f"of {labels.shape[1:]} pixels, as `prediction`", pictures.shape)
        )
    count = prediction.class_probs.shape[-1]
    truth = None if targets is None else _targets(owner, targets, labels.shape, count, ignore_index)
    places = _rows_of_axes(owner, axes, 4 if truth is None else 5)
    if len(places) > len(labels):
        raise ValueError(must(owner, "axes", f"at most {len(labels)} rows, one an image", len(places)))
    called = [str(k) for k in range(count)] if names is None else [str(name) for name in names]
    if len(called) != count:
        raise ValueError(must(owner, "names", f"{count} names, one a class", tuple(called)))
    palette = _palette(owner, colors, count)
    shown = slice(0, len(places))
    noise = prediction.expected_entropy[shown].double().cpu().numpy()
    spread = prediction.mutual_information[shown].double().cpu().numpy()
    for row, line in enumerate(places):
        panels = [("image", pictures[row], shades_of(pictures, "gray"))]
        if truth is not None:
            panels.append(("label", _painted(truth[row], palette), {}))
        panels += [
            ("prediction", _painted(labels[row], palette), {}),
            (f"noise\n0 to {noise.max():.2f} nats", noise[row], _scale(noise, cmap)),
            (f"model uncertainty\n0 to {spread.max():.2f} nats", spread[row], _scale(spread, cmap)),
        ]
        for ax, (title, values, options) in zip(line, panels, strict=True):
            ax.imshow(values, **{"interpolation": "nearest", **options})
            ax.set_axis_off()
            if row == 0:
                ax.set_title(title, fontsize=9)
    drawn = np.unique(labels[shown] if truth is None else np.concatenate([labels[shown], truth[shown]]))
    for k in drawn[(drawn >= 0) & (drawn < count)]:
        square = {"marker": "s", "linestyle": "none", "markersize": 7, "color": palette[int(k)]}
        places[0][-3].plot([], [], label=called[int(k)], **square)
    return axes


def _label_maps(owner: str, prediction: Any) -> Numbers:
    """(N, H, W) the most probable classes."""
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", prediction))
    if not has_classes(prediction) or prediction.label.dim() != 3:
        hint = "Call predict(..., likelihood=Categorical()) with a model that gives (N, K, H, W)."
        raise TypeError(must(owner, "prediction", "of classes of pixels", prediction, hint))
    if prediction.num_draws < 2:
        hint = "One draw has no spread: call predict(..., num_draws=100)."
        raise ValueError(must(owner, "prediction", "of at least 2 draws", prediction, hint))
    labels: Numbers = prediction.label.cpu().numpy()
    return labels


def _targets(owner: str, targets: Any, shape: tuple[int, ...], count: int, void: int | None) -> Numbers:
    truth = numbers(owner, "targets", targets, 3).astype(int)
    if truth.shape != shape:
        raise ValueError(must(owner, "targets", f"of shape {shape}, as `prediction`", truth.shape))
    if void is not None:
        truth = np.where(truth == void, -1, truth)
    lowest = 0 if void is None else -1
    if truth.min() < lowest or truth.max() >= count:
        hint = "" if void is not None else "Pass ignore_index= for void labels."
        raise ValueError(must(owner, "targets", f"labels from 0 to {count - 1}", targets, hint))
    return truth


def _rows_of_axes(owner: str, axes: Any, columns: int) -> list[list[Any]]:
    array = np.asarray(axes, dtype=object)
    array = array.reshape(1, -1) if array.ndim < 2 else array
    if array.ndim != 2 or array.shape[1] != columns:
        want = f"(R, {columns}) of them, a row for every image"
        raise ValueError(must(owner, "axes", want, np.shape(np.asarray(axes, dtype=object))))
    for ax in array.reshape(-1):
        check_axes(owner, ax, "axes")
    return [list(line) for line in array]


def _palette(owner: str, colors: Sequence[Any] | None, count: int) -> Numbers:
    """(K + 1, 3) colours of all classes, and of void as the last."""
    if colors is not None and len(colors) != count:
        raise ValueError(must(owner, "colors", f"{count} colours, one a class", tuple(colors)))
    chosen = [_PALETTE[k % len(_PALETTE)] for k in range(count)] if colors is None else list(colors)
    to_rgb = require("matplotlib.colors", extra="plot", owner=owner).to_rgb
    return np.asarray([to_rgb(color) for color in (*chosen, _VOID)])


def _painted(labels: Numbers, palette: Numbers) -> Numbers:
    """(H, W, 3); void, which is -1, has the last colour."""
    painted: Numbers = palette[labels.astype(int)]
    return painted


def _scale(values: Numbers, cmap: str) -> dict[str, Any]:
    return {"cmap": cmap, "vmin": 0.0, "vmax": max(float(values.max()), 1e-12)}
