"""Measures of ranked lists, for recommenders: how many right items are near the top.

    recall@k     hits among the first k / min(k, right items)
    precision@k  hits among the first k / k
    NDCG@k       sum over hits of 1 / log2(rank + 1), over the same sum of a perfect list

as Liang et al. (2018) define them. Users without a right item are left out of means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_tensor, whole_number

__all__ = ["Ranked", "UserMean", "coverage_at", "ndcg_at", "novelty_at", "precision_at", "recall_at"]


@dataclass(frozen=True, eq=False)
class UserMean:
    """A number for every user, and their mean.

    Attributes:
        values: (U,) NaN for users who do not count.
    """

    values: Tensor

    @property
    def mean(self) -> float:
        """The mean over the users who count."""
        return float(self.values.nanmean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean: the standard deviation over users, over the root of their number."""
        known = self.values[~self.values.isnan()]
        return float(known.std(correction=0) / math.sqrt(len(known))) if len(known) else math.nan

    def __float__(self) -> float:
        """The mean."""
        return self.mean

    def __sub__(self, other: UserMean) -> UserMean:
        """Differences user by user; their standard error is that of a paired comparison."""
        return UserMean(self.values - other.values)

    def __repr__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"


@dataclass(frozen=True, eq=False)
class Ranked:
    """The first items of each user's list, and which of them are right.

    Attributes:
        items: (U, R) columns, best first; -1 where a list is shorter.
        hits: (U, R) which of them are right.
        num_right: (U,) how many right items each user has.
    """

    items: Tensor
    hits: Tensor
    num_right: Tensor

    @classmethod
    def of(cls, scores: Tensor, right: Tensor, length: int = 100) -> Ranked:
        """Rank items by their scores.

        Args:
            scores: (U, I), -inf for items that may not be listed.
            right: (U, I) true for right items.
            length: R, the items of a list that are kept; at most I.

        >>> ranked = Ranked.of(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[True, False, True]]))
        >>> recall_at(ranked, 2), ndcg_at(ranked, 2)
        (0.5000 ± 0.0000, 0.3869 ± 0.0000)
        """
        must_be_tensor("Ranked", "scores", scores, floating=True)
        must_be_tensor("Ranked", "right", right)
        if scores.dim() != 2 or right.shape != scores.shape or right.dtype != torch.bool:
            want = f"bool and of the shape of the scores, {tuple(scores.shape)}"
            raise ValueError(must("Ranked", "right", want, f"{tuple(right.shape)}, {right.dtype}"))
        if bool(scores.isnan().any()):
            raise ValueError(must("Ranked", "scores", "numbers", "NaN"))
        count = min(whole_number("Ranked", "length", length, at_least=1), scores.shape[1])
        values, items = scores.topk(count, 1)
        listed = values > -math.inf
        hits = right.gather(1, items) & listed
        return cls(torch.where(listed, items, -1), hits, right.sum(1))

    @classmethod
    def joined(cls, parts: Sequence[Ranked]) -> Ranked:
        """The lists of all parts, one part after another."""
        return cls(
            torch.cat([part.items for part in parts]),
            torch.cat([part.hits for part in parts]),
            torch.cat([part.num_right for part in parts]),
        )

    def _first(self, owner: str, k: int) -> Tensor:
        count = whole_number(owner, "k", k, at_least=1)
        if count > self.hits.shape[1]:
            raise ValueError(must(owner, "k", f"at most {self.hits.shape[1]}, the length of the lists", k))
        return self.hits[:, :count].to(torch.float64)

    def _counted(self, values: Tensor) -> UserMean:
        return UserMean(torch.where(self.num_right > 0, values, math.nan))


def recall_at(ranked: Ranked, k: int) -> UserMean:
    """Hits among the first k, divided by the largest possible number."""
    hits = ranked._first("recall_at", k).sum(1)
    return ranked._counted(hits / ranked.num_right.clamp(1, k))


def precision_at(ranked: Ranked, k: int) -> UserMean:
    """The share of right items among the first k."""
    return ranked._counted(ranked._first("precision_at", k).sum(1) / k)


def ndcg_at(ranked: Ranked, k: int) -> UserMean:
    """Discounted gain of the first k, divided by that of a list that has all right items first."""
    hits = ranked._first("ndcg_at", k)
    discount = 1 / torch.log2(torch.arange(2, k + 2, dtype=torch.float64))
    best = torch.cat([torch.zeros(1, dtype=torch.float64), discount.cumsum(0)])
    return ranked._counted(hits @ discount / best[ranked.num_right.clamp(1, k)])


def coverage_at(ranked: Ranked, k: int, num_items: int) -> float:
    """The share of all items that are among the first k of at least one user.

    Args:
        ranked: the lists.
        k: how many items of each list.
        num_items: I.
    """
    ranked._first("coverage_at", k)
    listed = ranked.items[:, :k]
    count = whole_number("coverage_at", "num_items", num_items, at_least=1)
    return len(torch.unique(listed[listed >= 0])) / count


def novelty_at(ranked: Ranked, k: int, popularity: Tensor) -> UserMean:
    """Mean of -log2 of the chance that a user has chosen the item, over the first k: in bits.

    Args:
        ranked: the lists.
        k: how many items of each list.
        popularity: (I,) share of users who chose each item, above 0: count half a user where nobody did.
    """
    ranked._first("novelty_at", k)
    if bool((popularity <= 0).any()) or bool((popularity > 1).any()):
        raise ValueError(must("novelty_at", "popularity", "in (0, 1]", float(popularity.min())))
    listed = ranked.items[:, :k]
    bits = torch.where(listed >= 0, -torch.log2(popularity.to(torch.float64))[listed.clamp_min(0)], math.nan)
    return UserMean(bits.nanmean(1))
