"""Means over seeds, and sentences on the difference of two of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["mean_and_error", "paired"]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error: None for one value."""
    array = np.array(values, float)
    return float(array.mean()), float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else None


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, str]:
    """The mean difference over seeds, and it with its standard error as text.

    >>> paired([2.0, 4.0], [1.0, 2.0])
    (1.5, '+1.5 +- 0.5')
    """
    mean, error = mean_and_error([a - b for a, b in zip(ours, theirs, strict=True)])
    return mean, f"{mean:+.2g}" + ("" if error is None else f" +- {error:.2g}")
