"""Interactions: tables, pairs and lists as one matrix; what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bayesdrop.recommend import EASE, Interactions


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
        ({"rating": [1, float("inf"), 2]}, {"rating": "rating"}, r"'rating' is not a number in row 2"),
        ({"rating": [5, float("inf"), 2]}, {"rating": "rating", "at_least": 4}, r"not a number in row 2"),
        ({"user": [1, [2], 2]}, {}, r"the column 'user' is neither a number nor a text in row 2"),
        ({"item": list(pd.date_range("2020-01-01", periods=3))}, {}, r"'item' is neither .* in row 1, 2, 3"),
        ({"item": [1, 2]}, {}, r"Interactions.from_table: `table`.*same length"),
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


@pytest.mark.parametrize(
    "times",
    [
        [30, 10, 20, 5],
        ["2020-01-30", "2020-01-10 12:00", "2020-01-20", "2020-01-05"],
        pd.to_datetime(["2020-01-30", "2020-01-10", "2020-01-20", "2020-01-05"]),
        ["30", "10", "20", "5"],
    ],
    ids=["numbers", "dates in words", "dates", "numbers in words"],
)
def test_a_pair_is_chosen_at_its_first_time(times: object) -> None:
    table = pd.DataFrame({"user": ["b", "a", "b", "b"], "item": [1, 1, 1, 0], "when": times})
    found = Interactions.from_table(table, time="when")
    assert found.pairs().tolist() == [[0, 1], [1, 0], [1, 1]]
    assert found.times is not None
    assert np.argsort(found.times).tolist() == [1, 0, 2]
    swapped = found.aligned(np.array([1, 0])).of_users(np.array([1]))
    assert swapped.times is not None
    assert swapped.times.tolist() == found.times[[2, 1]].tolist()


def timed(users: int = 60, seed: int = 0) -> tuple[pd.DataFrame, Interactions]:
    source = np.random.default_rng(seed)
    size = 1500
    table = pd.DataFrame(
        {
            "user": source.integers(users, size=size),
            "item": source.integers(0, 50, size=size),
            "when": source.integers(0, 1000, size=size),
        }
    )
    first = table.groupby(["user", "item"], as_index=False)["when"].min()
    return first, Interactions.from_table(table, time="when")


def rows_of(data: Interactions) -> set[tuple[int, int]]:
    return {(int(data.users[user]), int(data.items[item])) for user, item in data.pairs()}


def test_the_last_choices_of_all_are_after_two_moments() -> None:
    first, data = timed()
    split = data.split_by_time(validation=0.2, test=0.1)
    order = np.sort(first["when"].to_numpy())
    cuts = order[int(0.7 * len(order))], order[int(0.9 * len(order))]

    def rows(frame: pd.DataFrame) -> set[tuple[int, int]]:
        return set(zip(frame["user"], frame["item"], strict=True))

    assert rows_of(split.train) == rows(first[first["when"] < cuts[0]])
    between = first[(first["when"] >= cuts[0]) & (first["when"] < cuts[1])]
    assert rows_of(split.validation.held) == rows(between)
    assert rows_of(split.validation.seen) <= rows_of(split.train)
    assert rows_of(split.test.held) == rows(first[first["when"] >= cuts[1]])
    assert rows_of(split.test.seen) <= rows(first[first["when"] < cuts[1]])
    for part in (split.validation, split.test):
        assert (part.seen.users == part.held.users).all()
        assert (np.diff(part.seen.matrix.indptr) > 0).all()
        assert (np.diff(part.held.matrix.indptr) > 0).all()


def test_the_last_choices_of_each_user_are_held() -> None:
    first, data = timed()
    split = data.split_by_time(validation=0.1, test=0.2, last="of each user")
    known = set(split.train.items.tolist())
    for user, own in first.sort_values(["when", "item"]).groupby("user"):
        ids = own["item"].tolist()
        tested, validated = max(1, int(0.2 * len(ids))), max(1, int(0.1 * len(ids)))
        parts = ids[: -tested - validated], ids[-tested - validated : -tested], ids[-tested:]
        for held_out, want in ((split.validation, parts[1]), (split.test, parts[2])):
            place = np.flatnonzero(held_out.held.users == user)
            assert set(held_out.held.items[held_out.held.matrix[place].indices]) == set(want) & known
        place = np.flatnonzero(split.train.users == user)
        assert set(split.train.items[split.train.matrix[place].indices]) == set(parts[0])


def test_a_model_takes_a_split_by_time() -> None:
    split = timed()[1].split_by_time()
    model = EASE(l2=5).fit(split.train, split.validation)
    assert len(model.ranked(split.test, 10).hits) == len(split.test.seen.users)


def test_times_that_say_nothing_are_refused() -> None:
    table = {"user": [1, 1, 2], "item": [5, 6, 5], "when": ["yesterday", "2020-01-01", "2020-01-02"]}
    with pytest.raises(ValueError, match=r"'when' is neither a number nor a date .* in row 1"):
        Interactions.from_table(table, time="when")
    with pytest.raises(ValueError, match=r"split_by_time: `self` must be Interactions with times"):
        Interactions.from_table(table).split_by_time()
    data = timed()[1]
    with pytest.raises(ValueError, match=r"`validation` must be below 1 together with `test`"):
        data.split_by_time(validation=0.5, test=0.5)
    with pytest.raises(ValueError, match=r"`last` must be 'of all' or 'of each user'"):
        data.split_by_time(last="week")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`min_items` must be what some users have"):
        data.split_by_time(min_items=1000)
    still = {"user": np.repeat(np.arange(5), 6), "item": np.tile(np.arange(6), 5), "when": [7] * 30}
    with pytest.raises(ValueError, match=r"a part of all choices that lies apart in time"):
        Interactions.from_table(still, time="when").split_by_time()


def test_rare_items_go_first_and_then_users_with_few() -> None:
    table = {"user": ["a", "a", "a", "b", "b", "c"], "item": [1, 2, 3, 1, 2, 1]}
    found = Interactions.from_table(table).frequent(min_users=2, min_items=2)
    assert found.items.tolist() == [1, 2]
    assert found.users.tolist() == ["a", "b"]
    assert len(found) == 4


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"`table` must be a data frame or a mapping of columns; got \[1, 2\]"
    ):
        Interactions.from_table([1, 2])


def test_users_of_one_item_are_left_out_of_splits_and_named_where_nothing_is_left() -> None:
    alone = Interactions.from_table({"user": np.arange(40), "item": np.arange(40) % 5})
    with pytest.raises(ValueError, match=r"`min_items` must be what some users have, at most 1; got 5"):
        alone.split_by_users()
    with pytest.raises(ValueError, match=r"`held` must be enough for one item of one user"):
        alone.hidden()
    others = {"user": np.repeat(np.arange(100, 130), 8), "item": np.tile(np.arange(8), 30)}
    both = {name: np.concatenate([column, np.arange(5)]) for name, column in others.items()}
    split = Interactions.from_table(both).split_by_users(validation=5, test=5)
    assert min(split.train.users) >= 100
