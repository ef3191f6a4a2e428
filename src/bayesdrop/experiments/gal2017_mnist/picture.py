"""The picture of the digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.gal2017_mnist.plan import Pieces, Plan
from bayesdrop.experiments.gal2017_mnist.report import LAYERS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import finish_axes, new_figure, plot_runs

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2017_mnist import Config

__all__ = ["draw", "gather_arrays"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
INK = "#1A1A1A"


def gather_arrays(config: Config, plan: Plan, pieces: Pieces) -> dict[str, Any]:
    """All that the picture shows."""
    main = pieces[plan.main[0]]
    return {
        "train_sizes": np.array(config.train_sizes),
        "size_rates": pieces.scan(plan.sizes, "rates"),
        "widths": np.array(config.widths),
        "width_rates": pieces.scan(plan.widths, "rates"),
        "length_scales": np.array(config.length_scales),
        "scale_accuracy": pieces.scan(plan.scales, "accuracy"),
        "scale_log_likelihood": pieces.scan(plan.scales, "log_likelihood"),
        "scale_elbo": pieces.scan(plan.scales, "elbo"),
        "steps": main["steps"],
        "trace": main["trace"],
        "titles": [
            f"Fig. 5: rates by training set (3x{config.width})",
            f"Fig. 6: rates by width ({plan.num_data:,} digits)",
            f"Rates in training (3x{config.width}, {plan.num_data:,} digits)",
            *(
                f"Fig. 11: {what} (3x{config.length_scale_width})"
                for what in ("log-likelihood", "accuracy", "bound")
            ),
        ],
    }


def draw(outcome: Outcome) -> Any:
    """Above, the rates by training set, width and step; below, the length-scale scan."""
    figure = new_figure(13, 7.4)
    axes = figure.subplots(2, 3)
    arrays = outcome.arrays
    if not arrays:
        axes[0, 0].set_title("not run", loc="left")
        return figure
    size, width, trace = axes[0]
    for ax, places, rates in (
        (size, arrays["train_sizes"], arrays["size_rates"]),
        (width, arrays["widths"], arrays["width_rates"]),
        (trace, arrays["steps"], arrays["trace"][:, None]),
    ):
        style = "-" if ax is trace else "o-"
        for index, layer in enumerate(LAYERS):
            values = rates[:, :, index].T
            plot_runs(ax, places, values, band=None, runs=True, color=COLORS[index], style=style, label=layer)
    size.set_xscale("log")
    width.set_xscale("log", base=2)
    width.set_xticks(arrays["widths"], [str(value) for value in arrays["widths"]])
    for ax, label in zip(axes[0], ("training digits", "units of a hidden layer", "step"), strict=True):
        ax.set(xlabel=label, ylabel="drop rate p", ylim=(0, 0.54))
    finish_axes(size, legend={"title": "drops the units of", "loc": "lower left"})
    scans = (
        ("scale_log_likelihood", "test log-likelihood (nats)"),
        ("scale_accuracy", "test accuracy (%)"),
        ("scale_elbo", "ELBO (nats per training digit)"),
    )
    for ax, (name, label) in zip(axes[1], scans, strict=True):
        scales, values = arrays["length_scales"], arrays[name].T
        plot_runs(ax, scales, values, band=None, runs=True, color=INK, style="o-")
        ax.set(xscale="log", xlabel="prior length scale l", ylabel=label)
    for ax, title in zip(axes.flat, arrays["titles"], strict=True):
        finish_axes(ax, title, grid=True)
    return figure
