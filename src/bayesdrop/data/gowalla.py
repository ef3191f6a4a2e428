"""Gowalla: places that users checked in at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays, read_npz

__all__ = ["Gowalla", "load_gowalla"]


@dataclass(frozen=True, eq=False)
class Gowalla:
    """Pairs (user, place) in order, split within every user: all users are in both parts."""

    num_users: int  #: 29,858
    num_items: int  #: 40,981
    train: Tensor  #: (810128, 2) int64
    test: Tensor  #: (217242, 2) int64


def load_gowalla() -> Gowalla:
    """The 10-core of Gowalla with the split of the LightGCN papers, downloaded if it is not there yet."""
    arrays = load_arrays("gowalla", read_npz, _from_home)
    return Gowalla(
        num_users=int(arrays["n_users"]),
        num_items=int(arrays["n_items"]),
        train=torch.from_numpy(arrays["train"]).long(),
        test=torch.from_numpy(arrays["test"]).long(),
    )


def adjacency_pairs(lines: Iterable[str]) -> NDArray[np.int32]:
    """Pairs (user, item), sorted, of lines "user item item ..."."""
    pairs = []
    for line in lines:
        numbers = [int(number) for number in line.split()]
        pairs += [(numbers[0], item) for item in numbers[1:]]
    return np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2)


def _from_home(fetch: Fetch) -> Arrays:
    parts = {}
    for part in ("train", "test"):
        with fetch(f"{part}.txt").open(encoding="utf-8") as lines:
            parts[part] = adjacency_pairs(lines)
    largest = np.concatenate(list(parts.values())).max(axis=0).astype(np.int64) + 1
    return {**parts, "n_users": largest[0], "n_items": largest[1]}
