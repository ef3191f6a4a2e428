"""Netflix: ratings of films from the Netflix Prize, in their original text files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.data.arrays import Arrays, load_arrays
from bayesdrop.data.movielens import Ratings

__all__ = ["load_netflix"]

_FILM = re.compile(rb"^(\d+):[ \t\r]*$", re.MULTILINE)


def load_netflix() -> Ratings:
    """100,480,507 ratings of 480,189 users and 17,770 films, from a folder that you provide.

    It is not downloaded. The folder `netflix` of a data folder has the files as they were published,
    `mv_*.txt`, or joined to `combined_data_*.txt`, at any depth. They are read again every time, which takes
    minutes.

    Terms: Netflix; for research, not to be passed on.
    """
    columns = {name: torch.from_numpy(column) for name, column in load_arrays("netflix", _read).items()}
    return Ratings(**columns)


def _read(folder: Path) -> Arrays:
    files = sorted(folder.rglob("mv_*.txt")) or sorted(folder.rglob("combined_data_*.txt"))
    if not files:
        raise ValueError(f"load_netflix: {folder} has neither mv_*.txt nor combined_data_*.txt.")
    kinds = [("user", "i8"), ("rating", "i8"), ("date", "M8[D]")]
    parts: dict[str, list[NDArray[np.int64]]] = {"user": [], "item": [], "rating": [], "timestamp": []}
    for file in files:
        for film, lines in _films(file):
            rows = np.loadtxt(io.BytesIO(lines), delimiter=",", dtype=kinds, ndmin=1)
            parts["user"].append(rows["user"])
            parts["item"].append(np.full(len(rows), film))
            parts["rating"].append(rows["rating"])
            parts["timestamp"].append(rows["date"].astype("M8[s]").astype(np.int64))
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def _films(file: Path) -> Iterator[tuple[int, bytes]]:
    """The number of each film, and its lines "user,rating,date"."""
    content = file.read_bytes()
    heads = list(_FILM.finditer(content))
    if not heads or content[: heads[0].start()].strip():
        raise ValueError(f'load_netflix: {file} does not begin with the number of a film, like "1:".')
    ends = [head.start() for head in heads[1:]] + [len(content)]
    for head, end in zip(heads, ends, strict=True):
        lines = content[head.end() : end]
        if lines.strip():
            yield int(head[1]), lines
