"""The UCI sets: the form of their home and the stored form give the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdrop.data import DATASETS, UCI, DataNotFound, load_uci
from bayesdrop.data import uci as module
from bayesdrop.data.arrays import arrays_digest, read_npz


def write_texts(folder: Path, data: np.ndarray, features: list[int], splits: list[list[int]]) -> None:
    """A set in its home's form: numbers as repr has them, row numbers as floats."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [" ".join(map(repr, row)) for row in data.tolist()]
    (folder / "data.txt").write_text("\n".join(lines) + "\n")
    np.savetxt(folder / "index_features.txt", features)
    (folder / "index_target.txt").write_text(f"{data.shape[1] - 1}\n")
    for number, test in enumerate(splits):
        train = [row for row in range(len(data)) if row not in set(test)]
        np.savetxt(folder / f"index_train_{number}.txt", train)
        np.savetxt(folder / f"index_test_{number}.txt", test, fmt="%d")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setitem(module.UCI, "yacht", module.UCIShape(4, 2, 2, 3))
    # The third column is neither a feature nor the target, as one in the naval set.
    return np.array([[1.0, 2.0, 9.0, 3.0], [4.0, 5.0, 9.0, 6.0], [7.0, 8.0, 9.0, 9.5], [0.1, 0.2, 9.0, 0.3]])


def test_a_folder_of_texts_is_read_where_the_stored_form_would_be(small: np.ndarray, cache: Path) -> None:
    write_texts(cache / "data" / "uci" / "yacht", small, [0, 1], [[3], [0]])
    table = load_uci("yacht")
    assert table.x.tolist() == small[:, :2].tolist()
    assert table.y.tolist() == small[:, 3:].tolist()
    assert [rows.tolist() for rows in table.train] == [[0, 1, 2], [1, 2, 3]]
    assert [rows.tolist() for rows in table.test] == [[3], [0]]
    assert table.x.dtype == torch.float64


def test_texts_with_other_splits_are_refused(small: np.ndarray, cache: Path) -> None:
    write_texts(cache / "data" / "uci" / "yacht", small, [0, 1], [[3], [0]])
    (cache / "data" / "uci" / "yacht" / "index_test_1.txt").write_text("1\n")
    with pytest.raises(DataNotFound, match="partitions of the rows"):
        load_uci("yacht")


def test_the_year_set_trains_on_its_first_rows(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.UCI, "year", module.UCIShape(3, 2, 1, 2))
    path = cache / "data" / "uci" / "YearPredictionMSD" / "YearPredictionMSD.txt"
    path.parent.mkdir(parents=True)
    path.write_text("2001,49.9,21.2\n2002,48.7,18.4\n1999,50.9,31.8\n")
    table = load_uci("year")
    assert table.y.tolist() == [[2001], [2002], [1999]]
    assert table.x[2].tolist() == [50.9, 31.8]
    assert (table.train[0].tolist(), table.test[0].tolist()) == ([0, 1], [2])


@pytest.mark.parametrize("name", ["naval", "wine", "yacht", "year"])
def test_a_set_without_a_checksum_is_not_downloaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDROP_OFFLINE", "0")
    with pytest.raises(DataNotFound, match="no checksum of it is on record"):
        load_uci(name)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"load_uci: `name` must be one of boston, .*; got 'bostn'"):
        load_uci("bostn")


@pytest.mark.parametrize("name", [name for name in UCI if DATASETS[f"uci-{name}"].sha256])
def test_the_stored_sets_have_the_papers_rows_and_splits(name: str, real: Callable[[str], Path]) -> None:
    real(f"uci-{name}")
    table = load_uci(name)
    shape = UCI[name]
    assert table.x.shape == (shape.rows, shape.features)
    assert table.num_splits == shape.splits
    assert {len(rows) for rows in table.train} == {shape.train}


def test_the_home_gives_the_stored_arrays(real: Callable[[str], Path], tmp_path: Path) -> None:
    stored = read_npz(real("uci-boston"))
    data = np.column_stack([stored["X"], stored["y"]])
    write_texts(tmp_path, data, list(range(13)), [])
    for split in range(20):
        for part in ("train", "test"):
            np.savetxt(tmp_path / f"index_{part}_{split}.txt", stored[f"{part}_idx"][split])
    converted = module._from_home("boston", lambda file: tmp_path / file)
    assert arrays_digest(converted) == DATASETS["uci-boston"].sha256
