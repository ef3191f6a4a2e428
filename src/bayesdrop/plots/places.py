"""Distances between rows on an axis."""

from __future__ import annotations

import numpy as np

from bayesdrop.plots.checks import Numbers

__all__ = ["smallest_step"]


def smallest_step(places: Numbers) -> float:
    """The smallest distance between two different positions; 1 if there is only one.

    >>> smallest_step(np.array([4.0, 1.0, 1.0, 2.0]))
    1.0
    """
    different = np.unique(places)
    return float(np.diff(different).min()) if len(different) > 1 else 1.0
