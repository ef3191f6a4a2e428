"""Colours and bands of the panels of a function of one input."""

from __future__ import annotations

__all__ = ["BLUE", "DATA", "EIGHT", "FAR", "HELD_OUT", "INK", "PATHS", "TWO"]

# Of Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BLUE, FAR, HELD_OUT, INK = "#0072B2", "#D55E00", "#009E73", "#1A1A1A"
DATA = "#C8102E"
#: of draws, one after another
PATHS = [f"C{place}" for place in range(10)]
#: shades of half a standard deviation each, up to two; of two each, up to eight
TWO, EIGHT = (0.5, 1.0, 1.5, 2.0), (2.0, 4.0, 6.0, 8.0)
