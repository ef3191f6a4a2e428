"""ImplicitALS: weighted matrix factorisation, by the `implicit` package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from bayesdrop.errors import real_number, require, whole_number, whole_seed
from bayesdrop.recommend.base import Recommender, of_shape
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions

__all__ = ["ImplicitALS"]


@dataclass(eq=False)
class ImplicitALS(Recommender):
    """Factors of users and items by alternating least squares, in which choices have a larger weight.

        sum_ui c_ui (x_ui - u_u^T v_i)^2 + l2 (|u|^2 + |v|^2),    c = alpha where x = 1, else 1

    The factors of a new user are the least-squares solution for the history, given the items' factors.

    Args:
        factors: how many numbers describe a user or an item.
        alpha: weight of a choice.
        l2: penalty of squared factors.
        iterations: updates of all users and all items.
        seed: of the initial factors.

    Reference: Hu, Koren & Volinsky (2008), WMF in Boluki et al. (2020), table 2.
    """

    factors: int = 64
    alpha: float = 5.0
    l2: float = 30.0
    iterations: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("ImplicitALS", "factors", self.factors, at_least=1)
        whole_number("ImplicitALS", "iterations", self.iterations, at_least=1)
        real_number("ImplicitALS", "alpha", self.alpha, "a number of at least 1", at_least=1)
        real_number("ImplicitALS", "l2", self.l2, "a positive number", above=0)
        whole_seed("ImplicitALS", self.seed)

    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        als = require("implicit.cpu.als", extra="recommend", owner="ImplicitALS")
        limits = require("threadpoolctl", extra="recommend", owner="ImplicitALS")
        # `implicit` has its own threads: a second pool makes it slow, and it warns of that.
        with limits.threadpool_limits(1, "blas"):
            model = als.AlternatingLeastSquares(
                factors=self.factors,
                regularization=self.l2,
                alpha=self.alpha,
                iterations=self.iterations,
                num_threads=torch.get_num_threads(),
                random_state=np.random.default_rng(self.seed),
            )
            model.fit(csr_matrix(train.matrix), show_progress=progress)
        self._items = torch.from_numpy(np.asarray(model.item_factors, dtype=np.float32))

    def _scores(self, histories: csr_array) -> Tensor:
        items = self._items
        gram = items.T @ items
        gram.diagonal().add_(self.l2)
        places = torch.from_numpy(histories.indices.astype(np.int64))
        sizes = np.diff(histories.indptr).tolist()
        systems, sides = [], []
        for own in torch.split(items[places], sizes):
            systems.append(torch.addmm(gram, own.T, own, alpha=self.alpha - 1))
            sides.append(self.alpha * own.sum(0))
        users: Tensor = torch.linalg.solve(torch.stack(systems), torch.stack(sides))
        return users @ items.T

    def _tensors(self) -> dict[str, Tensor]:
        return {"items": self._items}

    def _restore(self, tensors: dict[str, Tensor], num_items: int) -> None:
        self._items = of_shape(tensors, "items", (num_items, self.factors))
