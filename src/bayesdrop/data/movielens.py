"""MovieLens: ratings of films (100K, 20M), and films that users liked, split by users (1M)."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays, read_npz
from bayesdrop.data.implicit import ImplicitFeedback
from bayesdrop.data.registry import DATASETS

__all__ = ["Ratings", "load_movielens_1m", "load_movielens_20m", "load_movielens_100k"]


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings in the file's order; ids are the file's own, from 1."""

    user: Tensor  #: (n,) int64
    item: Tensor  #: (n,) int64
    rating: Tensor  #: (n,) 1 to 5 as int64; half stars, 0.5 to 5, as float32
    timestamp: Tensor  #: (n,) int64, seconds since 1970

    def __len__(self) -> int:
        """Number of ratings."""
        return self.user.shape[0]

    def liked(self, at_least: float = 4) -> Tensor:
        """(n, 2) pairs (user, item) with at least that rating, for `split_by_users`."""
        which = self.rating >= at_least
        return torch.stack([self.user[which], self.item[which]], dim=1)


def load_movielens_100k() -> Ratings:
    """100,000 ratings of 943 users and 1,682 films, downloaded (5 MB) if they are not there yet.

    Terms: GroupLens; for research, with acknowledgement, not to be passed on.
    """
    table = load_arrays("movielens-100k", _read, _from_home)["table"]
    user, item, rating, timestamp = torch.from_numpy(table.copy()).unbind(dim=1)
    return Ratings(user=user, item=item, rating=rating, timestamp=timestamp)


def load_movielens_1m() -> ImplicitFeedback:
    """Films rated 4 or 5, split by users: 4,034 train, 1,000 validate and 1,000 test.

    The split is a separate file that is not downloaded. `DataNotFound` says where it is looked for;
    `split_by_users(ratings.liked(), ...)` makes another split.

    Terms: GroupLens; for research, with acknowledgement, not to be passed on.
    """
    arrays = load_arrays("movielens-1m", read_npz)
    names = {
        "train": "train",
        "validation_seen": "validation_tr",
        "validation_held": "validation_te",
        "test_seen": "test_tr",
        "test_held": "test_te",
    }
    pairs = {field: torch.from_numpy(arrays[name]).long() for field, name in names.items()}
    users, items = (torch.from_numpy(arrays[name]).long() for name in ("uid_to_user_id", "sid_to_item_id"))
    return ImplicitFeedback(
        num_users=len(users), num_items=int(arrays["n_items"]), users=users, items=items, **pairs
    )


def load_movielens_20m() -> Ratings:
    """20,000,263 ratings of 138,493 users and 26,744 films, downloaded (190 MB) if they are not there yet.

    The archive is read again every time, which takes some seconds.

    Terms: GroupLens; for research, with acknowledgement, not to be passed on.
    """
    sha256 = DATASETS["movielens-20m"].file_sha256
    arrays = load_arrays("movielens-20m", _read_20m, lambda fetch: _read_20m(fetch("ml-20m.zip", sha256)))
    columns = {name: torch.from_numpy(column) for name, column in arrays.items()}
    return Ratings(**columns)


def _read_20m(path: Path) -> Arrays:
    """ml-20m.zip holds ml-20m/ratings.csv: userId,movieId,rating,timestamp with a header."""
    kinds = {"user": "i8", "item": "i8", "rating": "f4", "timestamp": "i8"}
    with zipfile.ZipFile(path) as archive, archive.open("ml-20m/ratings.csv") as file:
        lines = io.TextIOWrapper(file, encoding="ascii")
        table = np.loadtxt(lines, delimiter=",", skiprows=1, dtype=list(kinds.items()), ndmin=1)
    return {name: np.ascontiguousarray(table[name]) for name in kinds}


def _read(path: Path) -> Arrays:
    return {"table": np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)}


def _from_home(fetch: Fetch) -> Arrays:
    """ml-100k.zip holds ml-100k/u.data: user, item, rating, timestamp, with tabs between."""
    with zipfile.ZipFile(fetch("ml-100k.zip")) as archive:
        text = archive.read("ml-100k/u.data")
    return {"table": np.loadtxt(io.BytesIO(text), delimiter="\t", dtype=np.int64)}
