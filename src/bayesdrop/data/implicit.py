"""Users and the items they liked, split by users for training, validation and testing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import must

__all__ = ["ImplicitFeedback", "split_by_users"]


@dataclass(frozen=True, eq=False)
class ImplicitFeedback:
    """Pairs (user, item) as int64 tensors (n, 2). Users are numbered through train, validation and test.

    A model is trained on all pairs of the training users. For a held-out user it gets the pairs in `seen` and
    must rank those in `held`.
    """

    num_users: int
    num_items: int
    users: Tensor  #: (num_users,) int64, the original ids of the users
    items: Tensor  #: (num_items,) int64, the original ids of the items
    train: Tensor
    validation_seen: Tensor
    validation_held: Tensor
    test_seen: Tensor
    test_held: Tensor


def split_by_users(
    pairs: Tensor,
    *,
    num_validation: int,
    num_test: int,
    held_fraction: float = 0.2,
    min_items: int = 5,
    seed: int = 0,
) -> ImplicitFeedback:
    """Split liked items by users, as Liang et al. (2018) do.

    Users with fewer than `min_items` are left out. Items are those of the training users; others are left
    out. A held-out user with fewer than `min_items` items left has none in `held`.

    Args:
        pairs: (n, 2) user and item, any whole numbers.
        num_validation: users to validate on.
        num_test: users to test on.
        held_fraction: share of a held-out user's items that must be ranked, rounded down.
        min_items: see above.
        seed: of the order of users and of the choice of held items.
    """
    liked = np.unique(pairs.numpy(), axis=0)
    users, counts = np.unique(liked[:, 0], return_counts=True)
    users = users[counts >= min_items]
    if len(users) <= num_validation + num_test:
        requirement = f"below {len(users)}, the users with {min_items} items, together with `num_validation`"
        raise ValueError(must("split_by_users", "num_test", requirement, num_validation + num_test))
    generator = np.random.default_rng(seed)
    order = generator.permutation(users)
    liked = liked[np.isin(liked[:, 0], users)]
    place = np.empty(len(users), dtype=np.int64)
    place[np.searchsorted(users, order)] = np.arange(len(order))
    user = place[np.searchsorted(users, liked[:, 0])]
    num_train = len(order) - num_validation - num_test
    items = np.unique(liked[user < num_train, 1])
    known = np.isin(liked[:, 1], items)
    table = np.stack([user[known], np.searchsorted(items, liked[known, 1])], axis=1)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    held = _held(table[:, 0], num_train, held_fraction, min_items, generator)
    validation = (table[:, 0] >= num_train) & (table[:, 0] < num_train + num_validation)
    test = table[:, 0] >= num_train + num_validation

    def rows(which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Tensor:
        return torch.from_numpy(table[which])

    return ImplicitFeedback(
        num_users=len(order),
        num_items=len(items),
        users=torch.from_numpy(order),
        items=torch.from_numpy(items),
        train=rows(table[:, 0] < num_train),
        validation_seen=rows(validation & ~held),
        validation_held=rows(validation & held),
        test_seen=rows(test & ~held),
        test_held=rows(test & held),
    )


def _held(
    users: np.ndarray[tuple[int], np.dtype[np.int64]],
    num_train: int,
    fraction: float,
    min_items: int,
    generator: np.random.Generator,
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are to be ranked; rows are in order of users."""
    held = np.zeros(len(users), dtype=np.bool_)
    starts = np.searchsorted(users, np.arange(num_train, users.max(initial=-1) + 2))
    for start, end in pairwise(starts.tolist()):
        count = end - start
        if count >= min_items:
            held[start + generator.choice(count, size=int(fraction * count), replace=False)] = True
    return held
