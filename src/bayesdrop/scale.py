"""Tables that can be squared and summed: doubles end at 1e308, and their squares at 1e154."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.errors import must

__all__ = ["check_scale"]

_LARGEST = 1e140
_SMALLEST = 1e-140


def check_scale(owner: str, argument: str, values: Any, *, smallest: bool = True) -> None:
    """Raise where squares of a column would be infinite, or 0 for numbers that are not.

    Args:
        owner: who asks.
        argument: what they are.
        values: (N, K), dense or sparse, finite.
        smallest: whether a column may not be too small either, as when something is learned from it.
    """
    if not values.shape[0] or not values.shape[1]:
        return
    if hasattr(values, "toarray"):  # of scipy.sparse
        size = abs(values).max(axis=0).toarray().reshape(-1)
    else:
        size = np.maximum(values.max(0), -values.min(0))
    bad = size > _LARGEST
    if smallest:
        bad |= (size > 0) & (size < _SMALLEST)
    if bad.any():
        column = int(bad.argmax())
        want = (
            f"of a size from {_SMALLEST:g} to {_LARGEST:g}" if smallest else f"at most {_LARGEST:g} in size"
        )
        got = f"{size[column]:.3g} in column {column}"
        hint = "Squares of such numbers are no doubles: put it into other units, as by a StandardScaler."
        raise ValueError(must(owner, argument, want, got, hint))
