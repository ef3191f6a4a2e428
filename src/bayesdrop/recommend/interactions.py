"""Interactions: which user chose which items, from a table, as a sparse matrix; and splits of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesdrop.data.implicit import ImplicitFeedback, split_by_users
from bayesdrop.errors import is_one_of, must, real_number, whole_number, whole_seed
from bayesdrop.recommend.columns import as_frame, liked_rows, refuse_ids, refuse_rows, times_of
from bayesdrop.recommend.moments import later_of_all, later_of_each

__all__ = ["HeldOutUsers", "Interactions", "UserSplit"]


@dataclass(frozen=True, eq=False)
class Interactions:
    """Which of I items each of U users chose: a matrix of zeros and ones, and the ids of rows and columns.

    Attributes:
        matrix: (U, I) sparse, ones where a user chose an item.
        users: (U,) ids of the rows.
        items: (I,) ids of the columns.
        times: (n,) when each pair was chosen for the first time, in the order of `pairs`; None if not known.
    """

    matrix: csr_array
    users: NDArray[Any]
    items: NDArray[Any]
    times: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        want = (len(self.users), len(self.items))
        if self.matrix.shape != want:
            raise ValueError(must("Interactions", "matrix", f"of shape {want}", self.matrix.shape))
        if self.times is not None and self.times.shape != (self.matrix.nnz,):
            raise ValueError(
                must("Interactions", "times", f"of shape ({self.matrix.nnz},)", self.times.shape)
            )

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        user: str = "user",
        item: str = "item",
        rating: str | None = None,
        at_least: float | None = None,
        time: str | None = None,
    ) -> Interactions:
        """From a table with one row for every time that a user chose an item.

        A pair that occurs twice counts once, at its first time. With `rating`, rows below `at_least` are left
        out; without `at_least` every row counts, and its rating, a number of plays for example, must be
        positive.

        Args:
            table: a data frame, or a mapping of columns.
            user: the column of users, of any ids.
            item: the column of items, of any ids.
            rating: the column of ratings.
            at_least: the least rating that counts as a choice.
            time: the column of times, for `split_by_time`: numbers, or dates.

        >>> rows = {"user": ["ann", "ann", "bob"], "item": [3, 7, 7]}
        >>> Interactions.from_table(rows).items
        array([3, 7])
        """
        frame = as_frame(table)
        for argument, name in (("user", user), ("item", item), ("rating", rating), ("time", time)):
            if name is not None and name not in frame.columns:
                want = f"a column of the table: {', '.join(map(str, frame.columns))}"
                raise ValueError(must("Interactions.from_table", argument, want, name))
            if name is not None:
                refuse_rows(frame[name].isna(), f"the column {name!r} is empty")
            if argument in ("user", "item"):
                refuse_ids(frame[name])
        if at_least is not None and rating is None:
            raise ValueError(must("Interactions.from_table", "at_least", "None without `rating`", at_least))
        if rating is not None:
            frame = liked_rows(frame, rating, at_least)
        if not len(frame):
            raise ValueError("Interactions.from_table: no row is left that says that a user chose an item.")
        user_places, users = pd.factorize(frame[user], sort=True)
        item_places, items = pd.factorize(frame[item], sort=True)
        places = np.stack([user_places, item_places], 1)
        times = None if time is None else times_of(frame[time])
        return _of_places(places, np.asarray(users), np.asarray(items), times)

    @classmethod
    def from_pairs(
        cls, pairs: Any, *, num_users: int | None = None, num_items: int | None = None
    ) -> Interactions:
        """From pairs of whole numbers, which are both the places and the ids of rows and columns.

        Args:
            pairs: (n, 2) user and item.
            num_users: U; the largest user plus one if None.
            num_items: I; the largest item plus one if None.
        """
        places = np.asarray(pairs)
        if places.ndim != 2 or places.shape[1] != 2 or places.dtype.kind not in "iu":
            raise ValueError(
                must("Interactions.from_pairs", "pairs", "whole numbers of shape (n, 2)", places.shape)
            )
        if places.size and places.min() < 0:
            raise ValueError(must("Interactions.from_pairs", "pairs", "at least 0", int(places.min())))
        sizes = places.max(0) + 1 if len(places) else np.zeros(2, dtype=np.int64)
        users = int(sizes[0]) if num_users is None else whole_number("from_pairs", "num_users", num_users)
        items = int(sizes[1]) if num_items is None else whole_number("from_pairs", "num_items", num_items)
        if (sizes > (users, items)).any():
            raise ValueError(must("from_pairs", "pairs", f"below {users} and {items}", (sizes - 1).tolist()))
        return cls(_matrix(places, users, items), np.arange(users), np.arange(items))

    @classmethod
    def from_histories(cls, histories: Sequence[Sequence[Any]], items: Any) -> Interactions:
        """From lists of item ids, one for each user; ids that are not among `items` are left out.

        Args:
            histories: lists of U users, whose ids become 0, 1, ...
            items: (I,) ids of the columns.
        """
        frame = pd.DataFrame(
            {
                "user": np.repeat(np.arange(len(histories)), [len(one) for one in histories]),
                "item": [item for one in histories for item in one],
            }
        )
        index = pd.Index(np.asarray(items))
        known = index.get_indexer(frame["item"]) if len(frame) else np.zeros(0, dtype=np.int64)
        places = np.stack([frame["user"].to_numpy()[known >= 0], known[known >= 0]], 1)
        return cls(_matrix(places, len(histories), len(index)), np.arange(len(histories)), np.asarray(items))

    def __len__(self) -> int:
        """The number of pairs."""
        return int(self.matrix.nnz)

    def __repr__(self) -> str:
        return f"Interactions({len(self.users):,} users, {len(self.items):,} items, {len(self):,} pairs)"

    def pairs(self) -> NDArray[np.int64]:
        """(n, 2) places of users and items, in order."""
        rows = np.repeat(np.arange(len(self.users)), np.diff(self.matrix.indptr))
        return np.stack([rows, self.matrix.indices.astype(np.int64)], 1)

    def counts(self) -> NDArray[np.int64]:
        """(I,) how many users chose each item."""
        return np.bincount(self.matrix.indices, minlength=len(self.items))

    def aligned(self, items: NDArray[Any]) -> Interactions:
        """The same users with other columns; choices of items that are not among these are left out.

        Args:
            items: (I,) ids.
        """
        if len(items) == len(self.items) and bool(np.all(items == self.items)):
            return self
        places = pd.Index(items).get_indexer(pd.Index(self.items))
        pairs = self.pairs()
        pairs[:, 1] = places[pairs[:, 1]]
        known = pairs[:, 1] >= 0
        times = None if self.times is None else self.times[known]
        return _of_places(pairs[known], self.users, items, times)

    def of_users(self, places: NDArray[np.int64]) -> Interactions:
        """Some of the users.

        Args:
            places: (n,) their rows.
        """
        matrix = self.matrix[places]
        times = None
        if self.times is not None:
            starts, sizes = self.matrix.indptr[:-1][places], np.diff(matrix.indptr)
            within = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], sizes)
            times = self.times[np.repeat(starts, sizes) + within]
        return Interactions(matrix, self.users[places], self.items, times)

    def frequent(self, *, min_users: int = 0, min_items: int = 0) -> Interactions:
        """Only items that enough users chose, and then only users who chose enough of these.

        Args:
            min_users: least number of users of an item.
            min_items: least number of items of a user.
        """
        whole_number("frequent", "min_users", min_users, at_least=0)
        whole_number("frequent", "min_items", min_items, at_least=0)
        found = self.aligned(self.items[self.counts() >= min_users])
        return found.of_users(np.flatnonzero(np.diff(found.matrix.indptr) >= min_items))

    def hidden(self, *, held: float = 0.2, seed: int = 0) -> HeldOutUsers:
        """All users with a part of their items hidden, to test a model that was trained on others.

        Args:
            held: share of each user's items that is hidden, rounded down.
            seed: of the choice of hidden items.
        """
        real_number("hidden", "held", held, "in (0, 1)", above=0, below=1)
        source = np.random.default_rng(whole_seed("hidden", seed))
        pairs = self.pairs()
        # Each user's items are put in a random order, and the first ones are hidden.
        order = np.lexsort((source.random(len(pairs)), pairs[:, 0]))
        sizes = np.diff(self.matrix.indptr)
        rank = np.arange(len(pairs)) - np.repeat(self.matrix.indptr[:-1], sizes)
        away = np.zeros(len(pairs), dtype=np.bool_)
        away[order] = rank < np.repeat((held * sizes).astype(np.int64), sizes)
        if not away.any():
            raise ValueError(must("hidden", "held", "enough for one item of one user", held))
        shape = (len(self.users), len(self.items))
        seen, gone = (_matrix(pairs[which], *shape) for which in (~away, away))
        return HeldOutUsers(
            Interactions(seen, self.users, self.items), Interactions(gone, self.users, self.items)
        )

    def split_by_users(
        self,
        *,
        validation: int | float = 0.1,
        test: int | float = 0.1,
        held: float = 0.2,
        min_items: int = 5,
        seed: int = 0,
    ) -> UserSplit:
        """Users to train on, and other users with a part of their items hidden, as in Liang et al. (2018).

        Users with fewer than `min_items` are left out. Columns are the items of the training users.

        Args:
            validation: how many users to validate on, or which share of them.
            test: how many users to test on, or which share of them.
            held: share of a held-out user's items that is hidden and must be ranked, rounded down.
            min_items: least number of items of a user.
            seed: of the order of users and the choice of hidden items.
        """
        owner = "split_by_users"
        real_number(owner, "held", held, "in (0, 1)", above=0, below=1)
        enough = int((np.diff(self.matrix.indptr) >= min_items).sum())
        if not enough:
            most = int(np.diff(self.matrix.indptr).max(initial=0))
            raise ValueError(must(owner, "min_items", f"what some users have, at most {most}", min_items))
        found = split_by_users(
            torch.from_numpy(self.pairs()),
            num_validation=_number(owner, "validation", validation, enough),
            num_test=_number(owner, "test", test, enough),
            held_fraction=held,
            min_items=min_items,
            seed=whole_seed(owner, seed),
        )
        return UserSplit.of(found, users=self.users, items=self.items)

    def split_by_time(
        self,
        *,
        validation: float = 0.1,
        test: float = 0.1,
        last: Literal["of all", "of each user"] = "of all",
        min_items: int = 5,
    ) -> UserSplit:
        """Earlier choices to train on, and later choices of the same users to be ranked.

        "of all" cuts the choices of all users at the same two moments: those after the second are for the
        test, those between for validation. The model is fitted to choices before the first moment; in the
        test, it sees all choices of a user before the second. "of each user" holds out the last items of
        every user, whenever they were chosen, so that training may contain later choices of other users.

        Users with fewer than `min_items` are left out. Columns are the items of the training part, and
        held-out choices of other items are left out. Validation and test have only users with some choices
        that are seen and some that are held out; their earlier choices are in the training part too.

        Args:
            validation: share of choices to validate on; "of each user", it is rounded down to at least one.
            test: share of choices to test on; likewise.
            last: "of all" or "of each user".
            min_items: least number of items of a user; at least 3.
        """
        owner = "split_by_time"
        if self.times is None:
            hint = "Give from_table the column of times."
            raise ValueError(must(owner, "self", "Interactions with times", self, hint))
        for argument, share in (("validation", validation), ("test", test)):
            real_number(owner, argument, share, "in (0, 1)", above=0, below=1)
        if validation + test >= 1:
            raise ValueError(must(owner, "validation", "below 1 together with `test`", (validation, test)))
        if not is_one_of(last, ("of all", "of each user")):
            raise ValueError(must(owner, "last", "'of all' or 'of each user'", last))
        enough = whole_number(owner, "min_items", min_items, at_least=3)
        kept = self.of_users(np.flatnonzero(np.diff(self.matrix.indptr) >= enough))
        if not len(kept):
            raise ValueError(must(owner, "min_items", "what some users have", min_items))
        assert kept.times is not None
        if last == "of all":
            later = later_of_all(kept.times, validation, test)
        else:
            later = later_of_each(kept.times, np.diff(kept.matrix.indptr), validation, test)
        train = kept._where(later == 0)
        if not len(train) or not (later == 1).any() or not (later == 2).any():
            what = "a part of all choices that lies apart in time, and so must `test`"
            raise ValueError(must(owner, "validation", what, (validation, test)))
        items = kept.items[np.unique(train.matrix.indices)]
        return UserSplit(
            train.of_users(np.flatnonzero(np.diff(train.matrix.indptr))).aligned(items),
            _shown(train.aligned(items), kept._where(later == 1).aligned(items)),
            _shown(kept._where(later < 2).aligned(items), kept._where(later == 2).aligned(items)),
        )

    def _where(self, which: NDArray[np.bool_]) -> Interactions:
        """Some of the pairs, with the same rows and columns."""
        times = None if self.times is None else self.times[which]
        return _of_places(self.pairs()[which], self.users, self.items, times)


@dataclass(frozen=True, eq=False)
class HeldOutUsers:
    """Users of whom a model sees a part of the choices, and must rank the others.

    Attributes:
        seen: the choices that a model sees.
        held: the hidden choices, which it should rank before all other items.
    """

    seen: Interactions
    held: Interactions

    def first(self, count: int) -> HeldOutUsers:
        """The first users."""
        places = np.arange(min(count, len(self.seen.users)))
        return HeldOutUsers(self.seen.of_users(places), self.held.of_users(places))


@dataclass(frozen=True, eq=False)
class UserSplit:
    """Users for training, validation and test."""

    train: Interactions
    validation: HeldOutUsers
    test: HeldOutUsers

    @classmethod
    def of(
        cls, data: ImplicitFeedback, *, users: NDArray[Any] | None = None, items: NDArray[Any] | None = None
    ) -> UserSplit:
        """From pairs that are split already.

        Args:
            data: a result of `bayesdrop.data.split_by_users` or of a loader.
            users: ids by the numbers that the pairs had before the split; these numbers if None.
            items: likewise.
        """
        user_ids = data.users.numpy() if users is None else users[data.users.numpy()]
        item_ids = data.items.numpy() if items is None else items[data.items.numpy()]

        def part(pairs: torch.Tensor, first: int, last: int) -> Interactions:
            places = pairs.numpy() - np.array([first, 0])
            return Interactions(_matrix(places, last - first, data.num_items), user_ids[first:last], item_ids)

        train = int(data.train[:, 0].max()) + 1
        found = torch.cat([data.validation_seen, data.validation_held])
        middle = int(found[:, 0].max()) + 1 if len(found) else train
        end = data.num_users
        return cls(
            part(data.train, 0, train),
            HeldOutUsers(
                part(data.validation_seen, train, middle), part(data.validation_held, train, middle)
            ),
            HeldOutUsers(part(data.test_seen, middle, end), part(data.test_held, middle, end)),
        )


def _matrix(places: NDArray[Any], users: int, items: int) -> csr_array:
    ones = np.ones(len(places), dtype=np.float32)
    matrix = csr_array((ones, (places[:, 0], places[:, 1])), shape=(users, items))
    matrix.sum_duplicates()
    matrix.sort_indices()
    matrix.data[:] = 1
    return matrix


def _of_places(
    places: NDArray[Any], users: NDArray[Any], items: NDArray[Any], times: NDArray[np.float64] | None
) -> Interactions:
    """Interactions from pairs in any order; a pair that occurs twice counts at its first time."""
    matrix = _matrix(places, len(users), len(items))
    if times is None:
        return Interactions(matrix, users, items)
    order = np.lexsort((times, places[:, 1], places[:, 0]))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (places[order][1:] != places[order][:-1]).any(1)
    return Interactions(matrix, users, items, times[order][first])


def _shown(seen: Interactions, held: Interactions) -> HeldOutUsers:
    """Only the users with some choices that are seen and some that are held out."""
    both = np.flatnonzero((np.diff(seen.matrix.indptr) > 0) & (np.diff(held.matrix.indptr) > 0))
    return HeldOutUsers(seen.of_users(both), held.of_users(both))


def _number(owner: str, argument: str, value: Any, users: int) -> int:
    """A number of users, from a number or a share of them."""
    if isinstance(value, float):
        return int(users * real_number(owner, argument, value, "in [0, 1)", at_least=0, below=1))
    return whole_number(owner, argument, value, at_least=0)


def as_interactions(history: Any, items: NDArray[Any], owner: str) -> Interactions:
    """Histories of any accepted form as `Interactions` with the columns of a model.

    Args:
        history: `Interactions`, or lists of item ids, one for each user.
        items: (I,) ids of the model's items.
        owner: the caller, for errors.
    """
    if isinstance(history, Interactions):
        return history.aligned(items)
    listed = isinstance(history, Sequence | np.ndarray) and not isinstance(history, str | bytes | Mapping)
    if not listed or any(isinstance(one, str | bytes) or not hasattr(one, "__len__") for one in history):
        want = "Interactions, or a list with the item ids of every user"
        raise TypeError(must(owner, "history", want, history))
    return Interactions.from_histories(list(history), items)
