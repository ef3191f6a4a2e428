"""Rows to ask for, from their scores."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite

__all__ = ["allowed_rows", "select"]


def select(scores: Tensor, k: int, *, among: Tensor | None = None) -> Tensor:
    """The k rows of highest score, highest first; of equal scores the earlier row.

    Args:
        scores: (N,).
        k: how many.
        among: (N,) of booleans, or indices: the rows that may be chosen; all if None.

    Returns: (k,) indices into `scores`.

    >>> select(torch.tensor([0.1, 0.7, 0.3, 0.7]), 2).tolist()
    [1, 3]
    """
    if not isinstance(scores, Tensor) or scores.dim() != 1:
        raise ValueError(must("acquire.select", "scores", "a tensor (N,)", scores))
    must_be_finite("acquire.select", "scores", scores)
    rows = allowed_rows("acquire.select", scores.shape[0], k, among)
    order = scores[rows].sort(stable=True, descending=True).indices
    return rows[order[:k]]


def allowed_rows(owner: str, size: int, k: int, among: Tensor | None) -> Tensor:
    """Indices of the rows that may be chosen, of which there must be k."""
    rows = torch.arange(size)
    if among is not None:
        if among.dtype == torch.bool and among.shape != (size,):
            raise ValueError(must(owner, "among", f"{size} booleans, or indices", tuple(among.shape)))
        rows = rows[among]
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(rows):
        raise ValueError(must(owner, "k", f"an int from 1 to {len(rows)}, the rows to choose from", k))
    return rows
