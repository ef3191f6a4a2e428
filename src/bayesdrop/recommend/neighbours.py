"""Models without a network: popularity, EASE and SLIM."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from bayesdrop.errors import real_number, whole_number
from bayesdrop.progress import progress_bar
from bayesdrop.recommend.base import Recommender, of_shape
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions

__all__ = ["EASE", "SLIM", "Popularity"]


@dataclass(eq=False)
class Popularity(Recommender):
    """The same scores for every user: the log of the share of users who chose an item."""

    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        counts = torch.from_numpy(train.counts()).double()
        self._log_share = ((counts + 0.5) / (len(train.users) + 1)).log().float()

    def _scores(self, histories: csr_array) -> Tensor:
        return self._log_share.expand(histories.shape[0], -1).clone()

    def _tensors(self) -> dict[str, Tensor]:
        return {"log_share": self._log_share}

    def _restore(self, tensors: dict[str, Tensor], num_items: int) -> None:
        self._log_share = of_shape(tensors, "log_share", (num_items,))


class _ItemWeights(Recommender):
    """Scores x B for a history x, with a weight in B from every item to every other."""

    max_items: int | None
    _weights: Tensor
    _places: Tensor
    _rest: Tensor

    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        counts = train.counts()
        order = np.argsort(-counts, kind="stable")[: self.max_items]
        places = np.sort(order)
        part = train.matrix[:, places]
        gram = torch.from_numpy((part.T @ part).toarray()).float()
        self._weights = self._solved(gram, progress=progress)
        self._places = torch.from_numpy(places)
        # Items beyond `max_items` rank after all others, by popularity.
        self._rest = torch.from_numpy(counts / (counts.max() + 1.0)).float()

    @abstractmethod
    def _solved(self, gram: Tensor, *, progress: bool) -> Tensor:
        """(I, I) weights from the items' Gram matrix, which may be overwritten."""

    def _scores(self, histories: csr_array) -> Tensor:
        part = histories[:, self._places.numpy()]
        known = torch.from_numpy(part @ self._weights.numpy())
        if len(self._places) == histories.shape[1]:
            return known
        least = known.amin(1, keepdim=True)
        scores = least - 1 + self._rest.expand(histories.shape[0], -1)
        scores[:, self._places] = known
        return scores

    def _tensors(self) -> dict[str, Tensor]:
        return {"weights": self._weights, "places": self._places, "rest": self._rest}

    def _restore(self, tensors: dict[str, Tensor], num_items: int) -> None:
        self._rest = of_shape(tensors, "rest", (num_items,))
        count = len(tensors["places"])
        self._places = of_shape(tensors, "places", (count,), torch.int64)
        self._weights = of_shape(tensors, "weights", (count, count))
        if count and not bool(((self._places >= 0) & (self._places < num_items)).all()):
            raise ValueError("its places make no sense")


@dataclass(eq=False)
class EASE(_ItemWeights):
    """Linear regression of every item on all others, in closed form.

        B = I - P diag(1 / diag P),    P = (X^T X + l2 I)^-1

    Args:
        l2: lambda, the penalty of squared weights.
        max_items: use only so many of the most popular items, as memory is 8 I^2 bytes; the others rank last,
            by popularity.

    Reference: Steck (2019).
    """

    l2: float = 500.0
    max_items: int | None = None

    def __post_init__(self) -> None:
        real_number("EASE", "l2", self.l2, "a positive number", above=0)
        if self.max_items is not None:
            whole_number("EASE", "max_items", self.max_items, at_least=1)

    def _solved(self, gram: Tensor, *, progress: bool) -> Tensor:
        gram.diagonal().add_(self.l2)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        inverse.div_(-inverse.diagonal().clone())
        inverse.diagonal().zero_()
        return inverse


@dataclass(eq=False)
class SLIM(_ItemWeights):
    """Sparse non-negative regression of every item on all others.

        min_B  1/2 |X - X B|^2 + l2/2 |B|^2 + l1 |B|_1,    B >= 0,  diag B = 0

    All columns are solved at once by the alternating direction method of multipliers (ADMM), which needs
    one inverse and a product of two (I, I) matrices a step.

    Args:
        l1: penalty of weights, which makes most of them zero.
        l2: penalty of squared weights.
        steps: of ADMM.
        max_items: as in `EASE`.

    Reference: Ning & Karypis (2011); ADMM as in Steck, Dimakopoulou, Riabov & Jebara (2020).
    """

    l1: float = 10.0
    l2: float = 500.0
    steps: int = 50
    max_items: int | None = None

    def __post_init__(self) -> None:
        real_number("SLIM", "l1", self.l1, "a number of at least 0", at_least=0)
        real_number("SLIM", "l2", self.l2, "a positive number", above=0)
        whole_number("SLIM", "steps", self.steps, at_least=1)
        if self.max_items is not None:
            whole_number("SLIM", "max_items", self.max_items, at_least=1)

    def _solved(self, gram: Tensor, *, progress: bool) -> Tensor:
        # rho, the penalty on the difference of both copies of B, of the size of the data's curvature.
        rho = max(float(gram.diagonal().mean()), 1.0)
        inverse = gram.clone()
        inverse.diagonal().add_(self.l2 + rho)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(inverse))
        # P G = I - (l2 + rho) P
        first = -(self.l2 + rho) * inverse
        first.diagonal().add_(1)
        scale = inverse.diagonal().clone()
        weights = torch.zeros_like(gram)
        dual = torch.zeros_like(gram)
        with progress_bar("SLIM", self.steps, show=progress) as advance:
            for _ in range(self.steps):
                free = torch.addmm(first, inverse, rho * weights - dual)
                free -= inverse * (free.diagonal() / scale)
                weights = (free + dual / rho - self.l1 / rho).clamp_min_(0)
                dual += rho * (free - weights)
                advance(1, "")
        weights.diagonal().zero_()
        return weights
