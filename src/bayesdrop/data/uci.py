"""Ten UCI regression sets with the train and test splits of Hernandez-Lobato & Adams (2015)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays, read_npz
from bayesdrop.data.files import DataNotFound, cache_folder, data_folder
from bayesdrop.data.registry import DATASETS
from bayesdrop.data.table import Table
from bayesdrop.errors import must

__all__ = ["UCI", "load_uci"]


class UCIShape(NamedTuple):
    """The sizes that a set must have."""

    rows: int
    features: int
    splits: int
    train: int


#: rows, features, splits and training rows of every set, as the papers have them
UCI = {
    "boston": UCIShape(506, 13, 20, 455),
    "concrete": UCIShape(1030, 8, 20, 927),
    "energy": UCIShape(768, 8, 20, 691),
    "kin8nm": UCIShape(8192, 8, 20, 7373),
    "naval": UCIShape(11934, 16, 20, 10741),
    "power": UCIShape(9568, 4, 20, 8611),
    "protein": UCIShape(45730, 9, 5, 41157),
    "wine": UCIShape(1599, 11, 20, 1439),
    "yacht": UCIShape(308, 6, 20, 277),
    "year": UCIShape(515345, 90, 1, 463715),
}


def load_uci(name: str) -> Table:
    """One of the UCI regression sets, with the splits that the papers use.

    Six of them (boston, concrete, energy, kin8nm, power, protein) are downloaded if they are not there yet.
    The checksums of the others are not known: their files must be provided; `DataNotFound` says where.

    Args:
        name: a key of `UCI`.

    Reference: Gal & Ghahramani (2016), Table 1; energy has the first target, the heating load, alone.
    """
    if name not in UCI:
        raise ValueError(must("load_uci", "name", f"one of {', '.join(UCI)}", name))
    by_hand = _by_hand(name)
    if by_hand is not None:
        arrays = by_hand
    else:
        known = DATASETS[f"uci-{name}"].sha256
        arrays = load_arrays(
            f"uci-{name}", read_npz, (lambda fetch: _from_home(name, fetch)) if known else None
        )
    _check(name, arrays)
    return Table(
        name=name,
        x=torch.from_numpy(arrays["X"]).double(),
        y=torch.from_numpy(arrays["y"]).double().reshape(-1, 1),
        train=tuple(torch.from_numpy(rows).long() for rows in arrays["train_idx"]),
        test=tuple(torch.from_numpy(rows).long() for rows in arrays["test_idx"]),
    )


def read_texts(folder: Path, splits: int) -> Arrays:
    """A set in its original form: data.txt, index_features.txt, index_target.txt and two indices a split.

    Args:
        folder: the folder of those files.
        splits: how many splits.
    """
    return texts_to_arrays({file: folder / file for file in text_files(splits)}, splits)


def text_files(splits: int) -> list[str]:
    """Names of the files of a set in its original form."""
    indices = [f"index_{part}_{split}.txt" for split in range(splits) for part in ("train", "test")]
    return ["data.txt", "index_features.txt", "index_target.txt", *indices]


def texts_to_arrays(files: dict[str, Path], splits: int) -> Arrays:
    """The arrays of the stored form from the original files of a set."""

    def indices(file: str) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        # Row numbers are written as floats in some sets.
        return np.loadtxt(files[file], ndmin=1).astype(np.int32)

    data = np.loadtxt(files["data.txt"])
    return {
        "X": data[:, indices("index_features.txt")],
        "y": data[:, indices("index_target.txt")[0]],
        "train_idx": np.stack([indices(f"index_train_{split}.txt") for split in range(splits)]),
        "test_idx": np.stack([indices(f"index_test_{split}.txt") for split in range(splits)]),
    }


def read_year(path: Path, num_train: int) -> Arrays:
    """YearPredictionMSD.txt: the year, then 90 features; the first rows train, as its page says.

    Args:
        path: of the file, with commas between numbers.
        num_train: how many rows train.
    """
    data = np.loadtxt(path, delimiter=",")
    rows = np.arange(len(data), dtype=np.int32)
    return {
        "X": data[:, 1:],
        "y": data[:, 0],
        "train_idx": rows[None, :num_train],
        "test_idx": rows[None, num_train:],
    }


def _by_hand(name: str) -> Arrays | None:
    """A set in its original form, if a user has put it where the stored form would be; else None."""
    stored = Path(DATASETS[f"uci-{name}"].stored)
    named = data_folder()
    for folder in [*([] if named is None else [named]), cache_folder() / "data"]:
        place = folder / stored.parent
        if (folder / stored).exists():
            return None
        if name == "year" and (place / "YearPredictionMSD.txt").exists():
            return read_year(place / "YearPredictionMSD.txt", UCI[name].train)
        if (place / "data.txt").exists():
            return read_texts(place, UCI[name].splits)
    return None


def _from_home(name: str, fetch: Fetch) -> Arrays:
    splits = UCI[name].splits
    return texts_to_arrays({file: fetch(file) for file in text_files(splits)}, splits)


def _check(name: str, arrays: Arrays) -> None:
    """Raise unless a set has the sizes of the papers and every split is a partition of the rows."""
    shape = UCI[name]
    found = UCIShape(*arrays["X"].shape, *arrays["train_idx"].shape)
    partition = np.arange(shape.rows)
    if found != shape or any(
        not np.array_equal(np.sort(np.concatenate(pair)), partition)
        for pair in zip(arrays["train_idx"], arrays["test_idx"], strict=True)
    ):
        raise DataNotFound(
            f"The data set uci-{name} that was found is not the one of the papers: "
            f"it must have {shape} and splits that are partitions of the rows; it has {found}."
        )
