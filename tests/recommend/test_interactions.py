"""Interactions: tables, pairs and lists as one matrix; what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bayesdrop.recommend import Interactions


def test_a_table_becomes_a_matrix_with_its_ids() -> None:
    frame = pd.DataFrame({"who": ["b", "a", "b", "b"], "what": [30, 10, 10, 30], "stars": [5, 4, 2, 4]})
    found = Interactions.from_table(frame, user="who", item="what")
    assert found.users.tolist() == ["a", "b"]
    assert found.items.tolist() == [10, 30]
    np.testing.assert_array_equal(found.matrix.toarray(), [[1, 0], [1, 1]])
    liked = Interactions.from_table(frame, user="who", item="what", rating="stars", at_least=4)
    np.testing.assert_array_equal(liked.matrix.toarray(), [[1, 0], [0, 1]])
    assert len(liked) == 2


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"user": "name"}, r"`user` must be a column of the table: user, item, rating; got 'name'"),
        ({"user": [1, None, 2]}, {}, r"the column 'user' is empty in row 2"),
        ({"rating": [1, "many", 2]}, {"rating": "rating"}, r"'rating' is not a number in row 2"),
        ({"rating": [1, -1, 0]}, {"rating": "rating"}, r"'rating' is not positive, .* in row 2, 3"),
        ({}, {"at_least": 3}, r"`at_least` must be None without `rating`; got 3"),
        ({}, {"rating": "rating", "at_least": 9}, r"no row is left"),
    ],
)
def test_rows_that_mean_nothing_are_named(
    change: dict[str, list[object]], options: dict[str, object], message: str
) -> None:
    table = {"user": [1, 1, 2], "item": [5, 6, 5], "rating": [1, 2, 3]} | change
    with pytest.raises(ValueError, match=message):
        Interactions.from_table(table, **options)  # type: ignore[arg-type]


def test_lists_leave_unknown_items_out() -> None:
    found = Interactions.from_histories([["x", "z"], [], ["nobody knows"]], np.array(["x", "y", "z"]))
    np.testing.assert_array_equal(found.matrix.toarray(), [[1, 0, 1], [0, 0, 0], [0, 0, 0]])


def test_columns_follow_the_ids() -> None:
    found = Interactions.from_table({"user": [1, 1, 2], "item": ["a", "c", "b"]})
    other = found.aligned(np.array(["c", "d", "a"]))
    np.testing.assert_array_equal(other.matrix.toarray(), [[1, 0, 1], [0, 0, 0]])


def test_a_split_keeps_ids_and_loses_no_choice() -> None:
    source = np.random.default_rng(0)
    table = {"user": source.integers(100, 200, size=3000), "item": source.integers(0, 40, size=3000) * 7}
    data = Interactions.from_table(table)
    split = data.split_by_users(validation=20, test=0.3, seed=1)
    assert [len(part.users) for part in (split.train, split.validation.seen, split.test.seen)] == [50, 20, 30]
    whole = pd.DataFrame(table).drop_duplicates().groupby("user")["item"].agg(set)
    for held_out in (split.validation, split.test):
        for place, user in enumerate(held_out.seen.users):
            seen = set(held_out.seen.items[held_out.seen.matrix[[place]].indices])
            held = set(held_out.held.items[held_out.held.matrix[[place]].indices])
            assert not seen & held
            assert seen | held == whole[user] & set(split.train.items)
            assert len(held) == int(0.2 * len(seen | held))
    for place, user in enumerate(split.train.users):
        assert set(split.train.items[split.train.matrix[[place]].indices]) == whole[user]


@pytest.mark.parametrize("pairs", [[[0, -1]], [[0.5, 1.0]], [0, 1], [[3, 0]]])
def test_pairs_that_are_no_places_are_refused(pairs: object) -> None:
    with pytest.raises(ValueError, match=r"`pairs` must be"):
        Interactions.from_pairs(pairs, num_users=3, num_items=3)
