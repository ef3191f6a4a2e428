"""NDCG against CPU seconds, the table as bars, and learned rates against popularity."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["draw"]

_CURVES = ("SIVAE, learnable", "SIVAE, concrete", "VAE, dropout", "VAE")


def draw(outcome: Outcome) -> Any:
    """Three panels on the first data set: training, final scores, and rates."""
    arrays = outcome.arrays
    data = next(iter(arrays), "").split("|")[0]
    names = [
        tuple(name.split("|")[1:3]) for name in arrays if name.startswith(data) and name.endswith("ndcg")
    ]
    figure = new_figure(15, 4.6)
    curves, bars, rates = figure.subplots(1, 3)
    for place, model in enumerate(_CURVES):
        for recipe, style in (("our", "-"), ("the paper's", ":")):
            key = f"{data}|{model}|{recipe}|validation"
            if key in arrays:
                seconds = np.asarray(arrays[f"{data}|{model}|{recipe}|seconds"], dtype=float)
                scores = 100 * np.asarray(arrays[key], dtype=float)
                curves.plot(seconds, scores, style, color=f"C{place}", label=f"{model}, {recipe}")
    labels = {"xlabel": "CPU seconds of training", "ylabel": "NDCG@100 of validation users (%)"}
    finish_axes(curves, legend={"fontsize": 7}, xscale="log", **labels)
    means = {
        (model, recipe): 100 * float(np.mean(arrays[f"{data}|{model}|{recipe}|ndcg"]))
        for model, recipe in names
    }
    order = sorted(means, key=means.__getitem__)
    colours = ["C0" if recipe == "our" else "0.6" for _, recipe in order]
    bars.barh([f"{model}, {recipe}" for model, recipe in order], [means[one] for one in order], color=colours)
    bars.set(xlabel="NDCG@100 of test users (%)")
    bars.tick_params(axis="y", labelsize=6)
    for model in ("SIVAE, learnable", "SIVAE, concrete"):
        key = f"{data}|{model}|our|rates"
        if key in arrays:
            popularity = np.asarray(arrays[f"{data}|{model}|our|popularity"], dtype=float)
            rates.plot(popularity, arrays[key], ".", markersize=2, alpha=0.5, label=model)
    labels = {"xlabel": "share of users who chose the item", "ylabel": "learned chance of dropping it"}
    finish_axes(rates, legend=True, xscale="log", **labels)
    return figure
