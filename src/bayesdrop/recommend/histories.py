"""A batch of histories as a bag of items: cost follows the number of choices, not of items."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

__all__ = ["Bag", "ItemBag", "choice_nll"]


@dataclass(frozen=True, eq=False)
class Bag:
    """The choices of B users, one after another.

    Attributes:
        items: (n,) columns.
        rows: (n,) which user each choice belongs to.
        starts: (B,) where the choices of each user begin.
        counts: (B,) how many choices each user has, as floats.
        weights: (n,) what each choice counts.
    """

    items: Tensor
    rows: Tensor
    starts: Tensor
    counts: Tensor
    weights: Tensor

    @classmethod
    def of(cls, histories: csr_array, users: NDArray[np.int64] | None = None) -> Bag:
        """Histories whose weights have length one: 1 / sqrt(n) for each of n choices.

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
        """Each choice times a factor, (n,)."""
        return replace(self, weights=self.weights * factor)

    def repeated(self, times: int) -> Bag:
        """The same users K times, one copy after another."""
        shift = torch.arange(times).unsqueeze(1)
        return Bag(
            items=self.items.repeat(times),
            rows=(self.rows + shift * len(self)).flatten(),
            starts=(self.starts + shift * len(self.items)).flatten(),
            counts=self.counts.repeat(times),
            weights=self.weights.repeat(times),
        )


class ItemBag(nn.Module):
    """A linear layer of sparse inputs: sum over choices of weight times the item's row, plus a bias."""

    def __init__(self, num_items: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        spread = (2 / (num_items + width)) ** 0.5
        self.weight = nn.Parameter(torch.empty(num_items, width).normal_(0, spread, generator=generator))
        self.bias = nn.Parameter(torch.empty(width).normal_(0, 1e-3, generator=generator))

    def forward(self, bag: Bag) -> Tensor:
        """(B, width)."""
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
        logits: (B, I).
        bag: what the users chose; its weights do not matter.
    """
    value: Tensor = _ChoiceNLL.apply(logits, bag.items, bag.rows, bag.counts)  # type: ignore[no-untyped-call]
    return value
