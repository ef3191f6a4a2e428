"""The picture: accuracy, and whether uncertainty sees the attack, by eps."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.adversarial_mnist.trial import ATTACKS, NETWORKS, PLAIN, name_of
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["draw"]

_SCORE = {PLAIN: "max softmax"}


def draw(outcome: Outcome) -> Any:
    """A column for every network: accuracy above, AUROC of attacked against clean images below."""
    arrays = outcome.arrays
    figure = new_figure(12, 7)
    axes = figure.subplots(2, len(NETWORKS), sharex=True, sharey="row")
    radii = list(arrays.get("radii", ()))
    for column, network in enumerate(NETWORKS):
        score = _SCORE.get(network, "mutual information")
        for place, attack in enumerate(ATTACKS):
            style = {"color": f"C{place}", "marker": "o", "markersize": 3.5, "label": attack}
            for row, measure in enumerate(("accuracy", f"AUROC, attacked, {score}")):
                names = [f"{network} | {name_of(radius, attack, measure)}" for radius in radii]
                if not names or any(name not in arrays for name in names):
                    continue
                means = [float(np.mean(arrays[name])) for name in names]
                x, y = list(radii), means
                if row == 0:
                    clean = float(np.mean(arrays[f"{network} | {name_of(0, 'clean', 'accuracy')}"]))
                    x, y = [0.0, *x], [clean, *y]
                axes[row, column].plot(x, y, **style)
        finish_axes(axes[0, column], network, ylim=(-3, 103))
        axes[1, column].axhline(0.5, color="0.5", linewidth=0.8)
        eps = f"eps ({arrays.get('norm', 'linf')})"
        finish_axes(axes[1, column], f"by {score}", xlabel=eps, ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("accuracy (%)")
    axes[1, 0].set_ylabel("AUROC, attacked against clean")
    finish_axes(axes[0, -1], legend=True)
    return figure
