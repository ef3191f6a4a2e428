"""Million Song Dataset: how often users played songs (the Taste Profile subset)."""

from __future__ import annotations

import io
import zipfile
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.data.arrays import Arrays, load_arrays

__all__ = ["Plays", "load_msd"]


@dataclass(frozen=True, eq=False)
class Plays:
    """Triplets in the file's order; users and songs are numbered as they first occur."""

    user: Tensor  #: (n,) int64
    item: Tensor  #: (n,) int64
    count: Tensor  #: (n,) int64, at least 1
    users: NDArray[np.str_]  #: the original ids of the users
    items: NDArray[np.str_]  #: the original ids of the songs

    def __len__(self) -> int:
        """Number of triplets."""
        return self.user.shape[0]

    def pairs(self) -> Tensor:
        """(n, 2) user and song."""
        return torch.stack([self.user, self.item], dim=1)


def load_msd() -> Plays:
    """48,373,586 triplets of 1,019,318 users and 384,546 songs, from a file that you provide.

    It is not downloaded, as its checksum is not known. The archive is read again every time, which takes
    minutes.

    Terms: The Echo Nest; for research, not commercial.
    """
    arrays = load_arrays("msd", _read)
    user, item, count = (torch.from_numpy(arrays[name]) for name in ("user", "item", "count"))
    return Plays(user, item, count, arrays["users"], arrays["items"])


def _read(path: Path) -> Arrays:
    """train_triplets.txt.zip holds train_triplets.txt: user, song and count with tabs between."""
    users: dict[str, int] = {}
    songs: dict[str, int] = {}
    columns = array("q"), array("q"), array("q")
    with zipfile.ZipFile(path) as archive, archive.open("train_triplets.txt") as file:
        for number, line in enumerate(io.TextIOWrapper(file, encoding="ascii"), 1):
            cells = line.rstrip("\r\n").split("\t")
            if len(cells) != 3 or not cells[2].isdigit():
                raise ValueError(f"load_msd: line {number} of {path} is not a user, a song and a count.")
            columns[0].append(users.setdefault(cells[0], len(users)))
            columns[1].append(songs.setdefault(cells[1], len(songs)))
            columns[2].append(int(cells[2]))
    found = {
        name: np.array(column, dtype=np.int64)
        for name, column in zip(("user", "item", "count"), columns, strict=True)
    }
    return {**found, "users": np.array(list(users)), "items": np.array(list(songs))}
