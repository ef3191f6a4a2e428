"""The tables as pictures: every set a panel, the papers' columns and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome, mean_and_error
from bayesdrop.experiments.uci.published import SPLITS_2016, published_error, published_mean
from bayesdrop.plots import finish_axes, new_figure, plot_estimates

__all__ = ["draw_rates", "draw_scores", "draw_table"]

_PAPER, _OURS = "#9a9a9a", "#1f4e79"


def draw_scores(figure: Any, outcome: Outcome, columns: Sequence[str], metric: int, title: str) -> None:
    """One panel a set: means and standard errors, printed columns in grey, ours in blue.

    Args:
        figure: a matplotlib Figure or SubFigure.
        outcome: of a table.
        columns: printed ones.
        metric: 0 for RMSE, 1 for log-likelihood.
        title: of the whole.
    """
    arrays = outcome.arrays
    present, labels = list(arrays["present"]), list(arrays["labels"])
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(1, max(len(present), 1), sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, present, strict=False):
        shown: dict[str, tuple[float, float | None] | None] = {}
        for column in columns:
            mean, error = published_mean(column, name, metric), published_error(column, name, metric)
            # Standard deviations were printed for the dropout column of 2016.
            error /= SPLITS_2016.get(name, 20) ** 0.5 if column == "Dropout 2016" else 1
            shown[column] = None if mean is None else (mean, error)
        for label in labels:
            values = np.array(arrays["scores"].get(f"{name}/{label}", []))
            shown[f"ours: {label}"] = mean_and_error(values[:, metric]) if len(values) else None
        colors = [_PAPER] * len(columns) + [_OURS] * len(labels)
        plot_estimates(ax, shown, color=colors, marker=["s"] * len(columns) + ["o"] * len(labels))
        finish_axes(ax, name, grid="x")
        ax.tick_params(axis="y", labelsize=8)
        ax.tick_params(axis="x", labelsize=7)
        ax.locator_params(axis="x", nbins=4)


def draw_table(outcome: Outcome, columns: Sequence[str]) -> Any:
    """Log-likelihood above, RMSE below."""
    width = 1.7 * max(len(outcome.arrays["present"]), 2) + 1.6
    height = 0.24 * (len(columns) + len(outcome.arrays["labels"])) + 1.2
    figure = new_figure(width, 2 * height)
    above, below = figure.subfigures(2, 1)
    draw_scores(above, outcome, columns, 1, "test log-likelihood (nats), higher is better")
    draw_scores(below, outcome, columns, 0, "test RMSE, lower is better")
    return figure


def draw_rates(figure: Any, outcome: Outcome, method: str) -> None:
    """Converged rates of every layer, one dot a split, one panel a set: figure 4 of 2017.

    Args:
        figure: a matplotlib Figure or SubFigure.
        outcome: of a table.
        method: whose rates.
    """
    present = [name for name in outcome.arrays["present"] if f"{name}/{method}" in outcome.arrays["rates"]]
    figure.suptitle("learned drop rates by layer, a dot for each split", fontsize=11)
    axes = figure.subplots(1, max(len(present), 1), sharey=True, squeeze=False)[0]
    rates = {name: np.array(outcome.arrays["rates"][f"{name}/{method}"]) for name in present}
    # One limit for all: an axis that is shared keeps the one that was set first.
    highest = max((float(values.max()) for values in rates.values()), default=1.0)
    for ax, (name, values) in zip(axes, rates.items(), strict=False):
        layers = np.arange(values.shape[1])
        jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        for layer in layers:
            ax.plot(layer + jitter, values[:, layer], ".", color=_OURS, alpha=0.7)
        finish_axes(ax, name, grid="y", ylim=(-0.005, max(1.05 * highest, 0.01)))
        ax.set_xticks(layers, ["input", *(f"hidden {layer}" for layer in layers[1:])], fontsize=7)
    axes[0].set_ylabel("p", rotation=0, labelpad=10)
