"""The demo's picture: what the network says with its uncertainty, and what it says without."""

from __future__ import annotations

from typing import Any

from bayesdrop.demo.experiment import DemoResult
from bayesdrop.plots import new_figure, plot_bands, plot_draws, plot_points
from bayesdrop.predict import Prediction

__all__ = ["draw_demo"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BLUE = "#0072B2"
VERMILION = "#D55E00"
INK = "#1A1A1A"
MUTED = "#666666"
UNSEEN = "#F4F4F2"


def draw_demo(result: DemoResult) -> Any:
    """Two panels with one y axis: MC dropout on the left, standard dropout on the right.

    Returns: a matplotlib Figure of 12 x 5.2 inches.
    """
    figure = new_figure(12, 5.2)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    total = result.mc.num_draws
    shown = min(4, total)
    _panel(left, result, "MC dropout", result.mc, BLUE)
    plot_draws(left, result.grid, result.mc, shown, color=BLUE)
    _title(
        left,
        BLUE,
        "MC dropout: unsure where it has no data",
        f"mean, ±1 and ±2 std, {shown} of {total} draws",
    )
    _panel(right, result, "standard dropout", result.standard, VERMILION)
    _title(
        right,
        VERMILION,
        "Standard dropout: just as sure everywhere",
        "same network, dropout off, ±1 and ±2 std",
    )
    # Room above the fan for the two labels, and around the titles for the page that the picture is put on.
    bottom, top = left.get_ylim()
    left.set_ylim(bottom, top + 0.06 * (top - bottom))
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.03)
    left.set_ylabel("CO$_2$ at Mauna Loa (ppm)", color=INK, fontsize=13)
    return figure


def _title(ax: Any, color: str, title: str, subtitle: str) -> None:
    ax.set_title(title, loc="left", color=color, fontsize=15, fontweight="bold", pad=26)
    ax.text(0, 1.03, subtitle, transform=ax.transAxes, color=MUTED, fontsize=13)


def _panel(ax: Any, result: DemoResult, method: str, prediction: Prediction, color: str) -> None:
    """One prediction over the measured months, and how many of the unseen ones its interval holds."""
    config, split = result.config, result.split
    ax.axvspan(config.train_until, config.plot_until, color=UNSEEN, linewidth=0, zorder=0)
    plot_bands(ax, result.grid, prediction, color=color)
    for months in (split.train, split.extrapolation):
        shown = months.between(config.plot_from, config.plot_until)
        plot_points(ax, shown.x, shown.y, color=INK, size=2.4)
    ax.set_xlim(config.plot_from, config.plot_until)
    for text, side, offset in (("trained on", "right", -6), ("not seen in training", "left", 6)):
        ax.annotate(
            text,
            (config.train_until, 0.97),
            xycoords=("data", "axes fraction"),
            xytext=(offset, 0),
            textcoords="offset points",
            ha=side,
            va="top",
            color=MUTED,
            fontsize=12,
        )
    coverage = 100 * result.score("extrapolation", method).coverage
    verdict = f"95 % interval holds\n{coverage:.0f} % of these months"
    style = {"color": color, "fontsize": 13, "fontweight": "bold", "linespacing": 1.3}
    ax.text(0.97, 0.05, verdict, transform=ax.transAxes, ha="right", **style)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(MUTED)
    ax.grid(axis="y", color="#E3E3E3", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=MUTED, labelsize=12, length=0)
