"""The choice of rows by their scores."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, whole_number

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
    if not isinstance(scores, Tensor) or scores.dim() != 1 or scores.is_complex():
        raise ValueError(must("acquire.select", "scores", "a tensor (N,)", scores))
    must_be_finite("acquire.select", "scores", scores)
    rows = allowed_rows("acquire.select", scores.shape[0], k, among)
    order = scores[rows].sort(stable=True, descending=True).indices
    return rows[order[:k]]


def allowed_rows(owner: str, size: int, k: int, among: Tensor | None) -> Tensor:
    """Indices of the rows that may be chosen; raise if there are fewer than k."""
    rows = torch.arange(size)
    if among is not None:
        want = f"{size} booleans, or indices of rows"
        if not isinstance(among, Tensor) or among.is_floating_point() or among.is_complex():
            raise TypeError(must(owner, "among", want, among))
        if among.dim() != 1 or (among.dtype == torch.bool and among.shape != (size,)):
            raise ValueError(must(owner, "among", want, tuple(among.shape)))
        if among.dtype != torch.bool:
            among = among.to(torch.int64)
            if among.numel() and not -size <= int(among.min()) <= int(among.max()) < size:
                seen = f"{int(among.min())} to {int(among.max())}"
                raise ValueError(must(owner, "among", f"indices of {size} rows", seen))
        rows = rows[among.to(rows.device)]
        times = torch.bincount(rows, minlength=size)
        if bool((times > 1).any()):
            got = f"row {int(times.argmax())} {int(times.max())} times"
            raise ValueError(must(owner, "among", "rows that differ", got))
    if not len(rows):
        raise ValueError(must(owner, "among" if among is not None else "scores", "at least one row", "none"))
    whole_number(owner, "k", k, at_least=1, at_most=len(rows), hint=f"There are {len(rows)} to choose from.")
    return rows
