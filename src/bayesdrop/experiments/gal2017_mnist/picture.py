"""The picture of the digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.gal2017_mnist.plan import Array, Pieces, Plan
from bayesdrop.experiments.gal2017_mnist.report import LAYERS
from bayesdrop.experiments.row import Outcome
from bayesdrop.plots import new_figure

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2017_mnist import Config

__all__ = ["draw", "gather_arrays"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
INK, MUTED = "#1A1A1A", "#666666"


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
    _lines(size, arrays["train_sizes"], arrays["size_rates"])
    _lines(width, arrays["widths"], arrays["width_rates"])
    for place, layer in enumerate(LAYERS):
        trace.plot(arrays["steps"], arrays["trace"][:, place], color=COLORS[place], label=layer)
    size.set_xscale("log")
    width.set_xscale("log", base=2)
    width.set_xticks(arrays["widths"], [str(value) for value in arrays["widths"]])
    for ax, label in zip(axes[0], ("training digits", "units of a hidden layer", "step"), strict=True):
        ax.set_xlabel(label)
        ax.set_ylabel("drop rate p")
        ax.set_ylim(0, 0.54)
    size.legend(
        *trace.get_legend_handles_labels(), title="drops the units of", frameon=False, loc="lower left"
    )
    scans = (
        ("scale_log_likelihood", "test log-likelihood (nats)"),
        ("scale_accuracy", "test accuracy (%)"),
        ("scale_elbo", "ELBO (nats per training digit)"),
    )
    for ax, (name, label) in zip(axes[1], scans, strict=True):
        ax.plot(arrays["length_scales"], arrays[name].mean(1), color=INK, marker="o")
        if arrays[name].shape[1] > 1:
            ax.plot(arrays["length_scales"], arrays[name], color=MUTED, marker=".", linestyle="none")
        ax.set_xscale("log")
        ax.set_xlabel("prior length scale l")
        ax.set_ylabel(label)
    for ax, title in zip(axes.flat, arrays["titles"], strict=True):
        ax.set_title(title, loc="left", fontsize=11)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#E8E8E8", linewidth=0.7)
        ax.set_axisbelow(True)
    return figure


def _lines(ax: Any, places: Array, rates: Array) -> None:
    """A line a layer through the means; rates are (places, repeats, layers)."""
    for index in range(rates.shape[2]):
        ax.plot(places, rates[:, :, index].mean(1), color=COLORS[index], marker="o")
        if rates.shape[1] > 1:
            ax.plot(places, rates[:, :, index], color=COLORS[index], marker=".", linestyle="none")
