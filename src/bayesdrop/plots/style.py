"""What all pictures share: colours, axes with two spines, a diagonal that is drawn once."""

from __future__ import annotations

from typing import Any

__all__ = ["BLUE", "COLORS", "INK", "MUTED", "ORANGE", "dress", "from_zero", "reference_line"]

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


def from_zero(ax: Any, *, x: bool = False, y: bool = True) -> None:
    """Axes that start at 0 and end a little above all that was drawn so far."""
    if x:
        ax.set_xlim(0, 1.05 * ax.dataLim.x1 or 1)
    if y:
        ax.set_ylim(0, 1.05 * ax.dataLim.y1 or 1)


def reference_line(ax: Any, *, label: str) -> None:
    """The diagonal of the unit square. A second curve on the same axes shares the first one's."""
    if any(line.get_gid() == "reference" for line in ax.lines):
        return
    (line,) = ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--", label=label, zorder=1)
    line.set_gid("reference")
