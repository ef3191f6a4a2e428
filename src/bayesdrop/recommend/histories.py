"""A batch of histories as a bag of items: the cost grows with the number of choices, not of items."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

__all__ = ["Bag", "Candidates", "ItemBag", "choice_nll"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The items of a softmax over some of all items: all that were chosen, and a random part of the others.

    The sum of exp(logit) over all items is estimated by

        sum over chosen + (others / drawn) sum over drawn

    whose mean is the true sum. The mean of its log is a little too small, by less if more are drawn.

    Attributes:
        columns: (C,) items.
        correction: (C,) added to the logits: log(others / drawn), and 0 for chosen items.
        places: (n,) the places of the choices of a bag in `columns`.
    """

    columns: Tensor
    correction: Tensor
    places: Tensor

    @classmethod
    def of(cls, items: Tensor, num_items: int, drawn: int, generator: torch.Generator) -> Candidates:
        """All items that were chosen, and some of the others, each at most once.

        Args:
            items: (n,) the chosen items.
            num_items: I.
            drawn: how many of the others; all, if there are fewer.
            generator: of random numbers.
        """
        place = torch.full((num_items,), -1)
        place[items] = 0
        chosen, others = (place == 0).nonzero()[:, 0], (place < 0).nonzero()[:, 0]
        some = others[torch.randperm(len(others), generator=generator)[:drawn]]
        place[chosen] = torch.arange(len(chosen))
        correction = torch.zeros(len(chosen) + len(some))
        if len(some):
            correction[len(chosen) :] = float(np.log(len(others) / len(some)))
        return cls(torch.cat([chosen, some]), correction, place[items])


@dataclass(frozen=True, eq=False)
class Bag:
    """The choices of B users, one after another.

    Attributes:
        items: (n,) columns.
        rows: (n,) which user each choice belongs to.
        starts: (B,) where the choices of each user begin.
        counts: (B,) how many choices each user has, as floats.
        weights: (n,) the weight of each choice as an input.
        candidates: items over which a softmax runs; None for all.
    """

    items: Tensor
    rows: Tensor
    starts: Tensor
    counts: Tensor
    weights: Tensor
    candidates: Candidates | None = None

    @classmethod
    def of(cls, histories: csr_array, users: NDArray[np.int64] | None = None) -> Bag:
        """A bag of histories, whose weights have length one: 1 / sqrt(n) for each of n choices.

        Args:
            histories: (U, I).
            users: (B,) rows; all if None.
        """
        part = histories if users is None else histories[users]
        counts = np.diff(part.indptr)
        rows = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
        sizes = torch.from_numpy(counts.astype(np.float32))
        return cls(
            items=torch.from_numpy(part.indices.astype(np.int64)),
            rows=rows,
            starts=torch.from_numpy(part.indptr[:-1].astype(np.int64)),
            counts=sizes,
            weights=sizes[rows].rsqrt(),
        )

    def __len__(self) -> int:
        """B."""
        return len(self.starts)

    def scaled(self, factor: Tensor) -> Bag:
        """The bag with the weight of each choice times a factor, (n,)."""
        return replace(self, weights=self.weights * factor)

    def among(self, num_items: int, drawn: int, generator: torch.Generator) -> Bag:
        """The bag with a softmax over some of the items; see `Candidates`."""
        return replace(self, candidates=Candidates.of(self.items, num_items, drawn, generator))

    def repeated(self, times: int) -> Bag:
        """The same users K times, one copy after another."""
        shift = torch.arange(times).unsqueeze(1)
        some = self.candidates
        return Bag(
            items=self.items.repeat(times),
            rows=(self.rows + shift * len(self)).flatten(),
            starts=(self.starts + shift * len(self.items)).flatten(),
            counts=self.counts.repeat(times),
            weights=self.weights.repeat(times),
            candidates=None if some is None else replace(some, places=some.places.repeat(times)),
        )


class ItemBag(nn.Module):
    """A linear layer of sparse inputs: sum over choices of weight times the item's row, plus a bias."""

    def __init__(self, num_items: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        spread = (2 / (num_items + width)) ** 0.5
        self.weight = nn.Parameter(torch.empty(num_items, width).normal_(0, spread, generator=generator))
        self.bias = nn.Parameter(torch.empty(width).normal_(0, 1e-3, generator=generator))

    def forward(self, bag: Bag) -> Tensor:
        """The outputs of B users, (B, width)."""
        summed = embedding_bag(bag.items, self.weight, bag.starts, mode="sum", per_sample_weights=bag.weights)
        return summed + self.bias


class _ChoiceNLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, logits: Tensor, items: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
        total = logits.logsumexp(1)
        chosen = torch.zeros_like(total).index_add_(0, rows, logits[rows, items])
        ctx.save_for_backward(logits, items, rows, counts, total)  # type: ignore[attr-defined]
        return counts * total - chosen

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits, items, rows, counts, total = ctx.saved_tensors  # type: ignore[attr-defined]
        slope = (logits - total.unsqueeze(1)).exp_().mul_((grad * counts).unsqueeze(1))
        slope.view(-1).index_add_(0, rows * logits.shape[1] + items, -grad[rows])
        return slope, None, None, None


def choice_nll(logits: Tensor, bag: Bag) -> Tensor:
    """-sum over a user's choices of log softmax(logits): the multinomial likelihood. Shape (B,).

    Args:
        logits: (B, I), or (B, C) of the bag's candidates.
        bag: the choices of the users; its weights are not used.
    """
    places = bag.items if bag.candidates is None else bag.candidates.places
    value: Tensor = _ChoiceNLL.apply(logits, places, bag.rows, bag.counts)  # type: ignore[no-untyped-call]
    return value
