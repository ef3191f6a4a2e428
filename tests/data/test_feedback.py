"""MovieLens, Gowalla, and splits by users."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdrop.data import (
    DATASETS,
    DataNotFound,
    load_gowalla,
    load_movielens_1m,
    load_movielens_20m,
    load_movielens_100k,
    load_msd,
    load_netflix,
    split_by_users,
)
from bayesdrop.data import gowalla as gowalla_module
from bayesdrop.data import movielens as movielens_module
from bayesdrop.data.arrays import arrays_digest, read_npz


def test_the_archive_of_movielens_gives_the_stored_ratings(
    real: Callable[[str], Path], tmp_path: Path
) -> None:
    real("movielens-100k")
    data = load_movielens_100k()
    columns = torch.stack([data.user, data.item, data.rating, data.timestamp], dim=1)
    text = "".join("\t".join(map(str, row)) + "\n" for row in columns.tolist()).encode()
    # of u.data as it is published
    assert hashlib.md5(text).hexdigest() == "6e47046882bad158b0efbb84cd5cb987"
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", text)
    converted = movielens_module._from_home(lambda file: tmp_path / file)
    assert arrays_digest(converted) == DATASETS["movielens-100k"].sha256
    assert (len(data), len(data.user.unique()), len(data.item.unique())) == (100_000, 943, 1682)
    assert len(data.liked()) == int((data.rating >= 4).sum())


def test_the_users_of_movielens_1m_are_apart(real: Callable[[str], Path]) -> None:
    real("movielens-1m")
    data = load_movielens_1m()
    train, validation, test = (
        set(pairs[:, 0].tolist()) for pairs in (data.train, data.validation_seen, data.test_seen)
    )
    assert (len(train), len(validation), len(test)) == (4034, 1000, 1000)
    assert not train & validation | validation & test | train & test
    assert set(data.test_held[:, 0].tolist()) <= test
    assert data.num_items == len(data.train[:, 1].unique()) == 3406
    assert data.num_users == 6034


def test_lines_of_users_become_sorted_pairs() -> None:
    pairs = gowalla_module.adjacency_pairs(["1 7 3\n", "0 5\n", "2\n"])
    assert pairs.tolist() == [[0, 5], [1, 3], [1, 7]]
    assert pairs.dtype == np.int32


def test_the_home_of_gowalla_gives_the_stored_pairs(real: Callable[[str], Path], tmp_path: Path) -> None:
    stored = read_npz(real("gowalla"))
    for part in ("train", "test"):
        users, starts = np.unique(stored[part][:, 0], return_index=True)
        groups = np.split(stored[part][:, 1], starts[1:])
        lines = [f"{user} {' '.join(map(str, items))}" for user, items in zip(users, groups, strict=True)]
        (tmp_path / f"{part}.txt").write_text("\n".join(lines) + "\n")
    converted = gowalla_module._from_home(lambda file: tmp_path / file)
    assert arrays_digest(converted) == DATASETS["gowalla"].sha256
    assert load_gowalla().train.shape == (810128, 2)


@pytest.fixture
def pairs() -> torch.Tensor:
    """60 users who like 3 to 30 of 50 items, named by odd numbers; some pairs come twice."""
    generator = np.random.default_rng(0)
    rows = []
    for user in range(60):
        items = generator.choice(50, size=generator.integers(3, 31), replace=False)
        rows += [(1000 + 7 * user, 10 * item) for item in items]
    return torch.tensor([*rows, *rows[:20]])


def test_a_split_by_users_holds_what_it_says(pairs: torch.Tensor) -> None:
    split = split_by_users(pairs, num_validation=10, num_test=15, seed=3)
    unique = {tuple(pair) for pair in pairs.tolist()}
    users = [user for user in {user for user, _ in unique} if sum(u == user for u, _ in unique) >= 5]
    assert split.num_users == len(users)
    num_train = split.num_users - 25
    assert set(split.train[:, 0].tolist()) == set(range(num_train))
    assert set(split.validation_seen[:, 0].tolist()) == set(range(num_train, num_train + 10))
    assert set(split.test_seen[:, 0].tolist()) == set(range(num_train + 10, split.num_users))
    assert set(split.train[:, 1].tolist()) == set(range(split.num_items))
    for seen, held in ((split.validation_seen, split.validation_held), (split.test_seen, split.test_held)):
        together = torch.cat([seen, held])
        assert len({tuple(pair) for pair in together.tolist()}) == len(together)
        for user in together[:, 0].unique().tolist():
            count, kept = int((together[:, 0] == user).sum()), int((held[:, 0] == user).sum())
            assert kept == (int(0.2 * count) if count >= 5 else 0)
    everything = sum(
        len(part)
        for part in (
            split.train,
            split.validation_seen,
            split.validation_held,
            split.test_seen,
            split.test_held,
        )
    )
    # all 50 items are liked by some training user, so no pair is left out but those of small users
    assert split.num_items == 50
    assert everything == sum(user in set(users) for user, _ in unique)


def test_items_that_no_training_user_likes_are_left_out() -> None:
    rows = [(user, item) for user in range(20) for item in range(6)]
    own = [(user, 100 + user) for user in range(20)]
    split = split_by_users(torch.tensor(rows + own), num_validation=5, num_test=5)
    assert split.num_items == 6 + 10
    assert all((part[:, 1] < 6).all() for part in (split.test_seen, split.test_held))
    assert int((split.train[:, 1] >= 6).sum()) == 10


def test_a_seed_gives_its_split_again(pairs: torch.Tensor) -> None:
    first, second, other = (
        split_by_users(pairs, num_validation=10, num_test=15, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first.test_held, second.test_held)
    assert not torch.equal(first.train, other.train)


def test_too_few_users_are_refused(pairs: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="`num_test` must be below"):
        split_by_users(pairs, num_validation=30, num_test=30)


def test_what_is_absent_is_said_to_be() -> None:
    for load in (load_movielens_100k, load_movielens_20m, load_gowalla):
        with pytest.raises(DataNotFound, match="BAYESDROP_OFFLINE is set"):
            load()
    for load_own in (load_movielens_1m, load_netflix, load_msd):
        with pytest.raises(DataNotFound, match="no checksum of it is on record"):
            load_own()


def test_the_archive_of_movielens_20m_has_half_stars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "movielens-20m").mkdir()
    path = tmp_path / "movielens-20m" / "ml-20m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "ml-20m/ratings.csv", "userId,movieId,rating,timestamp\n1,2,3.5,1112486027\n1,29,4.0,7\n"
        )
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path))
    data = load_movielens_20m()
    assert data.rating.tolist() == [3.5, 4.0]
    assert data.liked().tolist() == [[1, 29]]
    assert data.timestamp.tolist() == [1112486027, 7]


def test_an_archive_of_movielens_20m_that_is_another_is_refused(cache: Path) -> None:
    originals = cache / "data" / "originals" / "movielens-20m"
    originals.mkdir(parents=True)
    (originals / "ml-20m.zip").write_bytes(b"something else")
    with pytest.raises(DataNotFound, match="its SHA-256 is not 96f243c3"):
        load_movielens_20m()


@pytest.mark.parametrize(
    "files",
    [
        {"combined_data_1.txt": "1:\n7,3,2005-09-06\n8,5,2005-05-13\n2:\n7,4,1999-11-11\n"},
        {
            "training_set/mv_0000001.txt": "1:\r\n7,3,2005-09-06\r\n8,5,2005-05-13\r\n",
            "training_set/mv_0000002.txt": "2:\n7,4,1999-11-11",
        },
    ],
    ids=["joined", "a file for every film"],
)
def test_the_files_of_netflix_give_ratings(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        path = tmp_path / "netflix" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path))
    data = load_netflix()
    assert data.user.tolist() == [7, 8, 7]
    assert data.item.tolist() == [1, 1, 2]
    assert data.rating.tolist() == [3, 5, 4]
    assert data.timestamp[2] == 942278400
    assert data.liked().tolist() == [[8, 1], [7, 2]]


def test_files_of_netflix_that_are_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netflix").mkdir()
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"has neither mv_\*.txt nor combined_data_\*.txt"):
        load_netflix()
    (tmp_path / "netflix" / "mv_1.txt").write_text("7,3,2005-09-06\n")
    with pytest.raises(ValueError, match="does not begin with the number of a film"):
        load_netflix()


def test_the_triplets_of_msd_are_numbered_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msd").mkdir()
    path = tmp_path / "msd" / "train_triplets.txt.zip"
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_triplets.txt", "b80\tSOA\t1\nb80\tSOB\t12\nc1\tSOA\t3\n")
    data = load_msd()
    assert data.pairs().tolist() == [[0, 0], [0, 1], [1, 0]]
    assert data.count.tolist() == [1, 12, 3]
    assert (data.users.tolist(), data.items.tolist()) == (["b80", "c1"], ["SOA", "SOB"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_triplets.txt", "b80\tSOA\t1\nb80 SOB 12\n")
    with pytest.raises(ValueError, match=r"line 2 of .* is not a user, a song and a count"):
        load_msd()
