"""How far apart rows lie on an axis."""

from __future__ import annotations

import numpy as np

from bayesdrop.plots.checks import Numbers

__all__ = ["smallest_step"]


def smallest_step(places: Numbers) -> float:
    """The smallest distance of two rows that do not lie on one another; 1 if there are none.

    >>> smallest_step(np.array([4.0, 1.0, 1.0, 2.0]))
    1.0
    """
    different = np.unique(places)
    return float(np.diff(different).min()) if len(different) > 1 else 1.0
