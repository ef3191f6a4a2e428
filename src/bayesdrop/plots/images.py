"""Images below an axis, at their positions, and in a grid, ordered by uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesdrop.errors import must
from bayesdrop.plots.checks import (
    Numbers,
    Values,
    check_axes,
    check_prediction,
    list_axes,
    numbers,
    row_numbers,
    score_numbers,
)
from bayesdrop.plots.places import smallest_step
from bayesdrop.plots.style import INK, ORANGE, dress
from bayesdrop.predict import Prediction

__all__ = ["pictures_of", "plot_image_grid", "plot_images", "shades_of"]


def plot_images(
    ax: Any,
    x: Values,
    images: Values,
    *,
    texts: Sequence[Any] | None = None,
    cmap: str = "gray_r",
) -> Any:
    """Images side by side at their positions on the x axis: a strip to put below other axes.

    The images fill the height of the axes, whose shape decides their shape; share the x axis with the axes
    above.

    Args:
        ax: matplotlib axes, low and wide.
        x: (N,) or (N, 1) positions of the images.
        images: (N, H, W), or with 1 or 3 channels (N, C, H, W) or (N, H, W, C).
        texts: N texts, written below the images: their predicted classes, say.
        cmap: matplotlib's name of the colour map, for images without colours.

    Returns: the axes.
    """
    owner = "plot_images"
    check_axes(owner, ax)
    places = row_numbers(owner, "x", x)
    pictures = pictures_of(owner, images, len(places), "x")
    if texts is not None and len(texts) != len(places):
        raise ValueError(must(owner, "texts", f"{len(places)} of them, as `x`", len(texts)))
    step = smallest_step(places)
    half = 0.46 * step
    for index, place in enumerate(places):
        extent = (place - half, place + half, 0, 1)
        ax.imshow(pictures[index], extent=extent, aspect="auto", **shades_of(pictures, cmap))
        if texts is not None:
            ax.text(place, -0.12, str(_plain(texts[index])), ha="center", va="top", fontsize=9)
    ax.set_xlim(places.min() - 0.6 * step, places.max() + 0.6 * step)
    ax.set_ylim(-0.5 if texts is not None else 0, 1)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    dress(ax)
    return ax


def plot_image_grid(
    axes: Any,
    images: Values,
    prediction: Prediction,
    *,
    score: str | Values = "entropy",
    targets: Values | None = None,
    surest: bool = False,
    names: Sequence[str] | None = None,
    cmap: str = "gray_r",
) -> Any:
    """The images that a model is least sure of, one for each of the axes, with its label and score.

    Args:
        axes: a sequence or an array of axes, filled row by row.
        images: (N, H, W), or with 1 or 3 channels (N, C, H, W) or (N, H, W, C).
        prediction: of classes, probabilities (N, K).
        score: "entropy", "expected_entropy", "mutual_information" or "variation_ratio"; or numbers (N,),
            higher for less sure, as from `metrics.uncertainty`.
        targets: (N,) true labels; titles of wrong predictions then show them, in another colour.
        surest: begin with the image that the model is surest of instead.
        names: of all K classes; their indices if None.
        cmap: matplotlib's name of the colour map, for images without colours.

    Returns: the axes, as they were given.
    """
    owner = "plot_image_grid"
    places = list_axes(owner, axes)
    check_prediction(owner, prediction, classes=True, spread=False)
    pictures = pictures_of(owner, images, len(prediction), "prediction")
    values = score_numbers(owner, prediction, score)
    truth = None
    if targets is not None:
        truth = row_numbers(owner, "targets", targets, len(prediction), like="prediction").astype(int)
    count = prediction.class_probs.shape[-1]
    if names is not None and len(names) != count:
        raise ValueError(must(owner, "names", f"{count} names, one a class", tuple(names)))
    called = [str(k) for k in range(count)] if names is None else [str(name) for name in names]
    if truth is not None and not ((truth >= 0) & (truth < count)).all():
        raise ValueError(must(owner, "targets", f"labels from 0 to {count - 1}", targets))
    order = (values if surest else -values).argsort(kind="stable")
    labels = prediction.label.tolist()
    for ax in places:
        ax.set_axis_off()
    for ax, row in zip(places, order, strict=False):
        ax.imshow(pictures[row], **shades_of(pictures, cmap))
        title, color = called[labels[row]], INK
        if truth is not None and int(truth[row]) != labels[row]:
            title, color = f"{title}, is {called[int(truth[row])]}", ORANGE
        ax.set_title(f"{title}\n{values[row]:.2f}", fontsize=9, color=color)
    return axes


def pictures_of(owner: str, images: Values, rows: int, like: str) -> Numbers:
    """(N, H, W), or (N, H, W, 3) with colours in [0, 1]."""
    array = numbers(owner, "images", images, 3, 4)
    if len(array) != rows:
        raise ValueError(must(owner, "images", f"{rows} images, as `{like}`", array.shape))
    if array.ndim == 4 and array.shape[-1] not in (1, 3):
        array = np.moveaxis(array, 1, -1)
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim == 4 and array.shape[-1] != 3:
        raise ValueError(must(owner, "images", "of 1 or 3 channels", np.shape(images)))
    if array.ndim == 4:
        # Matplotlib wants colours in [0, 1]; all images are scaled together.
        low, high = array.min(), array.max()
        array = (array - low) / (high - low) if high > low else np.zeros_like(array)
    return array


def shades_of(pictures: Numbers, cmap: str) -> dict[str, Any]:
    """Options of `imshow` that give all images one grey scale, so that a pale image stays pale."""
    if pictures.ndim == 4:
        return {}
    return {"cmap": cmap, "vmin": pictures.min(), "vmax": pictures.max(), "interpolation": "nearest"}


def _plain(value: Any) -> Any:
    """A number for a tensor or array of one value, so that tensor(3) is written 3."""
    return value.item() if hasattr(value, "item") else value
