"""The common style of all plots: colours, axes with two spines, a diagonal that is drawn once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesdrop.errors import must
from bayesdrop.plots.checks import list_axes

__all__ = ["BLUE", "COLORS", "INK", "MUTED", "ORANGE", "dress", "finish_axes", "from_zero", "reference_line"]

#: Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, ORANGE = COLORS[:2]
INK, MUTED = "#1A1A1A", "#666666"


def dress(ax: Any, *, xlabel: str = "", ylabel: str = "") -> None:
    """Take away the top and the right spine, and name the axes that have no name yet."""
    ax.spines[["top", "right"]].set_visible(False)
    if xlabel and not ax.get_xlabel():
        ax.set_xlabel(xlabel)
    if ylabel and not ax.get_ylabel():
        ax.set_ylabel(ylabel)


def finish_axes(
    axes: Any,
    title: str | None = None,
    *,
    legend: Any = False,
    grid: Any = False,
    **properties: Any,
) -> Any:
    """Finish axes: a title on the left, two spines, a legend, a grid, and options of `Axes.set`.

    Args:
        axes: matplotlib axes, or several of them.
        title: above each of the axes.
        legend: without a frame, if something has a label: True, matplotlib's name of a place, or a mapping of
            options of `Axes.legend`.
        grid: pale lines in the background: True for both directions, "x" or "y" for one.
        properties: as `xlabel`, `ylabel`, `xlim`, `ylim`, `xscale` and `yscale`.

    Returns: the axes, as they were given.
    """
    if not isinstance(grid, bool) and grid not in ("x", "y"):
        raise ValueError(must("finish_axes", "grid", "True, False, 'x' or 'y'", grid))
    for ax in list_axes("finish_axes", axes):
        ax.set(**properties)
        if title is not None:
            ax.set_title(title, loc="left", fontsize=11)
        dress(ax)
        if grid:
            ax.grid(axis="both" if grid is True else grid, color="#E8E8E8", linewidth=0.7)
            ax.set_axisbelow(True)
        if legend and ax.get_legend_handles_labels()[1]:
            own = (
                {"loc": legend} if isinstance(legend, str) else legend if isinstance(legend, Mapping) else {}
            )
            ax.legend(**{"frameon": False, "fontsize": 9, **own})
    return axes


def from_zero(ax: Any, *, x: bool = False, y: bool = True) -> None:
    """Let the axes start at 0 and end a little above everything drawn so far."""
    if x:
        ax.set_xlim(0, 1.05 * ax.dataLim.x1 or 1)
    if y:
        ax.set_ylim(0, 1.05 * ax.dataLim.y1 or 1)


def reference_line(ax: Any, *, label: str) -> None:
    """Draw the diagonal of the unit square, unless the axes have it already."""
    if any(line.get_gid() == "reference" for line in ax.lines):
        return
    (line,) = ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--", label=label, zorder=1)
    line.set_gid("reference")
