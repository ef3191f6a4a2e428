"""The tables as pictures: every set a panel, the papers' columns and ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.uci.published import published_error, published_mean
from bayesdrop.plots import new_figure

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
    names = [*columns, *(f"ours: {label}" for label in labels)]
    place = np.arange(len(names))[::-1]
    axes = figure.subplots(1, max(len(present), 1), sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, present, strict=False):
        for row, column in zip(place, columns, strict=False):
            mean = published_mean(column, name, metric)
            if mean is not None:
                # Standard deviations were printed for the dropout column of 2016.
                error = published_error(column, name, metric) / (20**0.5 if column == "Dropout 2016" else 1)
                ax.errorbar(mean, row, xerr=error, fmt="s", color=_PAPER, markersize=4, capsize=2)
        for row, label in zip(place[len(columns) :], labels, strict=True):
            values = np.array(arrays["scores"].get(f"{name}/{label}", []))
            if len(values):
                error = values[:, metric].std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
                mean = values[:, metric].mean()
                ax.errorbar(mean, row, xerr=error, fmt="o", color=_OURS, markersize=5, capsize=2)
        ax.set_title(name, fontsize=10)
        ax.set_yticks(place, names, fontsize=8)
        ax.tick_params(axis="x", labelsize=7)
        ax.locator_params(axis="x", nbins=4)
        ax.grid(axis="x", alpha=0.3)


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
    for ax, name in zip(axes, present, strict=False):
        values = np.array(outcome.arrays["rates"][f"{name}/{method}"])
        layers = np.arange(values.shape[1])
        jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        for layer in layers:
            ax.plot(layer + jitter, values[:, layer], ".", color=_OURS, alpha=0.7)
        ax.set_title(name, fontsize=10)
        ax.set_xticks(layers, ["input", *(f"hidden {layer}" for layer in layers[1:])], fontsize=7)
        ax.set_ylim(bottom=-0.005)
        ax.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("p", rotation=0, labelpad=10)
