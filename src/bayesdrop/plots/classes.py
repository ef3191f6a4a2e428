"""Classes over an ordered quantity: the probabilities of every draw, and their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bayesdrop.errors import must
from bayesdrop.likelihoods import Bernoulli, ClassLikelihood
from bayesdrop.plots.checks import (
    Values,
    check_axes,
    check_prediction,
    list_axes,
    numbers,
    row_numbers,
    score_numbers,
)
from bayesdrop.plots.places import smallest_step
from bayesdrop.plots.style import COLORS, dress
from bayesdrop.predict import Prediction

__all__ = ["plot_class_draws", "plot_class_uncertainty", "plot_spread"]


def plot_spread(
    ax: Any,
    x: Values,
    values: Values,
    *,
    names: Sequence[str] | None = None,
    colors: Sequence[Any] = COLORS,
    width: float = 0.6,
) -> Any:
    """The value of every draw at every row as a dot, draws side by side in their order.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) positions of the rows.
        values: (T, N), or (T, N, K) with a colour for each k.
        names: K names, for a legend.
        colors: used in turn, one for each k.
        width: of the T dots of a row, as a share of the smallest distance between rows.

    Returns: the axes.
    """
    owner = "plot_spread"
    check_axes(owner, ax)
    places = row_numbers(owner, "x", x)
    table = numbers(owner, "values", values, 2, 3)
    table = table.reshape(*table.shape[:2], -1)
    if table.shape[1] != len(places):
        raise ValueError(must(owner, "values", f"(T, {len(places)}, K), rows as `x`", np.shape(values)))
    if names is not None and len(names) != table.shape[2]:
        raise ValueError(must(owner, "names", f"{table.shape[2]} names", tuple(names)))
    if not 0 <= width <= 1:
        raise ValueError(must(owner, "width", "in [0, 1]", width))
    offsets = np.linspace(-0.5, 0.5, len(table)) if len(table) > 1 else np.zeros(1)
    shifted = places + offsets[:, None] * width * smallest_step(places)
    for index in range(table.shape[2]):
        ax.plot(
            shifted.reshape(-1),
            table[:, :, index].reshape(-1),
            linestyle="none",
            marker=".",
            markersize=2.5,
            alpha=0.6,
            color=colors[index % len(colors)],
            label=None if names is None else names[index],
        )
    dress(ax)
    return ax


def plot_class_draws(
    axes: Any,
    x: Values,
    prediction: Prediction,
    *,
    classes: int | Sequence[int] = 3,
    names: Sequence[str] | None = None,
    colors: Sequence[Any] = COLORS,
) -> Any:
    """Softmax inputs and softmax outputs of every draw, for the most probable classes.

    A class may have an output near 1 in one draw and near 0 in the next, which the mean does not show.

    Args:
        axes: two axes, for the inputs and for the outputs.
        x: (N,) or (N, 1) positions of the rows: an angle, a dose, a time.
        prediction: of classes, probabilities (N, K), with its draws kept.
        classes: how many classes, the most probable over all rows; or which ones.
        names: of all K classes, for a legend; their indices if None.
        colors: used in turn, one for each class.

    Returns: the axes, as they were given.
    Reference: Gal & Ghahramani (2016), figure 4.
    """
    owner = "plot_class_draws"
    inputs_ax, outputs_ax = list_axes(owner, axes, 2)
    check_prediction(owner, prediction, classes=True, spread=False)
    places = row_numbers(owner, "x", x, len(prediction), like="prediction")
    shown = _shown_classes(owner, prediction, classes)
    count = prediction.class_probs.shape[-1]
    if names is not None and len(names) != count:
        raise ValueError(must(owner, "names", f"{count} names, one a class", tuple(names)))
    labels = [f"class {k}" if names is None else names[k] for k in shown]
    likelihood = prediction.likelihood
    assert isinstance(likelihood, ClassLikelihood)
    with torch.no_grad():
        probs = likelihood.class_log_probs(prediction.draws, leading=1).exp()
    inputs = prediction.draws
    if isinstance(likelihood, Bernoulli):  # one logit f means the same as the two logits (0, f)
        inputs = torch.stack((torch.zeros_like(inputs), inputs), -1)
    for ax, values in ((inputs_ax, inputs), (outputs_ax, probs)):
        table = values.reshape(len(prediction.draws), len(prediction), count)[..., shown]
        plot_spread(ax, places, table, names=labels, colors=colors)
    dress(inputs_ax, ylabel="softmax input")
    dress(outputs_ax, ylabel="softmax output")
    outputs_ax.set_ylim(-0.03, 1.03)
    return axes


def plot_class_uncertainty(
    ax: Any,
    x: Values,
    prediction: Prediction | Mapping[str, Values],
    *,
    scores: Sequence[str] = ("entropy", "mutual_information", "variation_ratio"),
    colors: Sequence[Any] = COLORS,
) -> Any:
    """The uncertainty of a prediction of classes over an ordered quantity, a line for every score.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) positions of the rows; they are drawn in order of x.
        prediction: of classes, probabilities (N, K); or the scores themselves, {name: (N,)}.
        scores: "entropy", "expected_entropy", "mutual_information" (in nats) and "variation_ratio" (a
            share), or names of the mapping.
        colors: used in turn, one for each score.

    Returns: the axes.
    """
    owner = "plot_class_uncertainty"
    check_axes(owner, ax)
    if isinstance(prediction, Mapping):
        places = row_numbers(owner, "x", x)
        if not set(scores) <= set(prediction):
            raise ValueError(must(owner, "scores", f"of {', '.join(prediction)}", tuple(scores)))
        lines = {name: row_numbers(owner, name, prediction[name], len(places)) for name in scores}
    else:
        check_prediction(owner, prediction, classes=True)
        places = row_numbers(owner, "x", x, len(prediction), like="prediction")
        lines = {name: score_numbers(owner, prediction, name) for name in scores}
    order = places.argsort(kind="stable")
    for index, (name, values) in enumerate(lines.items()):
        color, label = colors[index % len(colors)], name.replace("_", " ")
        ax.plot(places[order], values[order], "o-", markersize=3.5, linewidth=1.4, color=color, label=label)
    dress(ax, ylabel="nats, or share")
    return ax


def _shown_classes(owner: str, prediction: Prediction, classes: int | Sequence[int]) -> list[int]:
    """Indices of the classes to draw; in rising order if they are chosen by their probability."""
    probs = prediction.class_probs.reshape(len(prediction), -1)
    count = probs.shape[1]
    if isinstance(classes, int) and classes >= 1 and not isinstance(classes, bool):
        top = probs.sum(0).argsort(descending=True)[:classes]
        return [int(k) for k in top.sort().values]
    given = [] if isinstance(classes, int) else list(classes)
    if not given or any(isinstance(k, bool) or not 0 <= k < count for k in given):
        want = f"how many, or some of the classes 0 to {count - 1}"
        raise ValueError(must(owner, "classes", want, classes))
    return [int(k) for k in given]
