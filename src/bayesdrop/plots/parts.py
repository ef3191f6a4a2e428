"""The two parts of the uncertainty, epistemic and aleatoric, against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.plots.checks import (
    Numbers,
    Values,
    check_axes,
    check_output,
    check_prediction,
    has_classes,
    output_numbers,
    row_numbers,
    score_numbers,
)
from bayesdrop.plots.style import BLUE, MUTED, ORANGE, dress, from_zero
from bayesdrop.predict import Prediction

__all__ = ["plot_uncertainty_parts"]


def plot_uncertainty_parts(
    ax: Any,
    prediction: Prediction,
    *,
    output: int = 0,
    top: Any = None,
    right: Any = None,
    bins: int = 25,
    marked: Values | None = None,
    color: Any = BLUE,
    mark: Any = ORANGE,
    label: str | None = None,
    mark_label: str | None = None,
) -> Any:
    """Epistemic against aleatoric uncertainty, a dot a row.

    For numbers the standard deviations of both parts; for classes, in nats, the mutual information against
    the expected entropy. Above the dashed line most of the uncertainty is epistemic.

    Args:
        ax: matplotlib axes.
        prediction: of numbers, or of classes (N, K).
        output: which of the D outputs, for numbers.
        top: axes above, for a histogram of the aleatoric part; none if None.
        right: axes on the right, for a histogram of the epistemic part; none if None.
        bins: of the histograms.
        marked: (N,) booleans: rows to draw in the other colour, as those with wrong predictions.
        color: of the dots and histograms.
        mark: the colour of marked rows.
        label: of the rows that are not marked, for a legend.
        mark_label: of the rows that are marked.

    Returns: the axes.
    """
    owner = "plot_uncertainty_parts"
    for axes, argument in ((ax, "ax"), (top, "top"), (right, "right")):
        if axes is not None or argument == "ax":
            check_axes(owner, axes, argument)
    noise, spread, names = _parts(owner, prediction, output)
    chosen = np.zeros(len(noise), dtype=bool)
    if marked is not None:
        chosen = row_numbers(owner, "marked", marked, len(noise), like="prediction") != 0
    ax.axline((0, 0), slope=1, color=MUTED, linewidth=1, linestyle="--", zorder=1)
    dots = {"linestyle": "none", "marker": "o", "markersize": 3.5, "markeredgewidth": 0}
    for rows, tint, name, alpha in ((~chosen, color, label, 0.5), (chosen, mark, mark_label, 0.85)):
        if rows.any():
            ax.plot(noise[rows], spread[rows], color=tint, label=name, alpha=alpha, zorder=2 + alpha, **dots)
    from_zero(ax, x=True)
    dress(ax, xlabel=names[0], ylabel=names[1])
    for axes, values, orientation in ((top, noise, "vertical"), (right, spread, "horizontal")):
        if axes is not None:
            count, edges = np.histogram(values, bins)
            axes.stairs(
                count, edges, fill=True, color=color, alpha=0.45, linewidth=0, orientation=orientation
            )
            dress(axes)
    if top is not None:
        top.set_xlim(ax.get_xlim())
        dress(top, ylabel="rows")
    if right is not None:
        right.set_ylim(ax.get_ylim())
        dress(right, xlabel="rows")
    return ax


def _parts(owner: str, prediction: Prediction, output: int) -> tuple[Numbers, Numbers, tuple[str, str]]:
    """(N,) aleatoric and (N,) epistemic, and the names of both."""
    check_prediction(owner, prediction)
    if has_classes(prediction):
        check_prediction(owner, prediction, classes=True)
        noise = score_numbers(owner, prediction, "expected_entropy")
        spread = score_numbers(owner, prediction, "mutual_information")
        return noise, spread, ("expected entropy (aleatoric, nats)", "mutual information (epistemic, nats)")
    check_output(owner, prediction, output)
    noise = np.sqrt(output_numbers(owner, "prediction.aleatoric", prediction.aleatoric, output))
    spread = np.sqrt(output_numbers(owner, "prediction.epistemic", prediction.epistemic, output))
    return noise, spread, ("aleatoric std", "epistemic std")
