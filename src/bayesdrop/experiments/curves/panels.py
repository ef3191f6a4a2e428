"""Panels of a function of one input: shaded bands, sampled paths, the data."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BLUE", "DATA", "FAR", "HELD_OUT", "INK", "bands", "finish", "line", "paths"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BLUE, FAR, HELD_OUT, INK = "#0072B2", "#D55E00", "#009E73", "#1A1A1A"
DATA = "#C8102E"
Values = np.ndarray[Any, Any]


def bands(ax: Any, x: Values, mean: Values, std: Values, *, most: float = 2.0) -> None:
    """The mean, and shades of half a standard deviation each up to `most`; of four of those at 8."""
    for share in (1.0, 0.75, 0.5, 0.25):
        lower, upper = mean - share * most * std, mean + share * most * std
        ax.fill_between(x, lower, upper, color=BLUE, alpha=0.2, linewidth=0, zorder=1)
    line(ax, x, mean)


def line(ax: Any, x: Values, values: Values, **style: Any) -> None:
    """A prediction without a spread."""
    ax.plot(x, values, **({"color": BLUE, "linewidth": 1.1, "zorder": 3} | style))


def paths(ax: Any, x: Values, draws: Values, **style: Any) -> None:
    """Each row of `draws` in a colour of its own."""
    for index, draw in enumerate(draws):
        ax.plot(x, draw, **({"color": f"C{index}", "linewidth": 0.9, "zorder": 2} | style))


def finish(ax: Any, title: str, limits: tuple[float, float], heights: tuple[float, float]) -> None:
    """Title, limits, and a frame that does not get in the way."""
    ax.set_title(title, loc="left", fontsize=11)
    ax.set_xlim(*limits)
    ax.set_ylim(*heights)
    ax.spines[["top", "right"]].set_visible(False)
