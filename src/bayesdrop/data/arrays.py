"""The arrays of a data set: from a data folder, from the cache, or converted from its original files."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data.files import DataNotFound, cache_folder, data_folder, write_whole
from bayesdrop.data.registry import DATASETS, DataSet
from bayesdrop.errors import require

__all__ = ["Arrays", "Fetch", "arrays_digest", "fetch_original", "load_arrays", "read_npz"]

Arrays = dict[str, NDArray[Any]]
#: file name, SHA-256 of the file if known -> the file
Fetch = Callable[..., Path]


def load_arrays(
    name: str, read: Callable[[Path], Arrays], convert: Callable[[Fetch], Arrays] | None = None
) -> Arrays:
    """The arrays of a data set, from the first of these places that has them.

    The stored form in `$BAYESDROP_DATA`; the same in the folder `data` of the cache; arrays that were
    converted before; the original files, which are downloaded unless the user has put them into the cache.
    Converted arrays must have the checksum of the registry, and are kept in the cache.

    Args:
        name: one of `DATASETS`.
        read: path of the stored form's first file -> arrays.
        convert: makes the same arrays from original files, each of which `fetch(file)` finds.
    """
    dataset = DATASETS[name]
    for folder in _folders():
        if (folder / dataset.stored).exists():
            return read(folder / dataset.stored)
    kept = cache_folder() / "data" / "converted" / f"{name}.npz"
    if kept.exists():
        return read_npz(kept)
    if convert is None:
        raise DataNotFound(_not_here(dataset, "It is not downloaded: no checksum of it is on record."))

    def fetch(file: str, sha256: str = "") -> Path:
        return fetch_original(dataset, file, sha256)

    arrays = convert(fetch)
    if dataset.sha256:
        if arrays_digest(arrays) != dataset.sha256:
            reason = f"What was made of the files in {_originals(dataset)} is not what it should be: "
            raise DataNotFound(_not_here(dataset, f"{reason}its SHA-256 is another. Remove them, try again."))
        buffer = io.BytesIO()
        entries: dict[str, Any] = dict(arrays)
        np.savez_compressed(buffer, **entries)
        write_whole(kept, buffer.getvalue())
    return arrays


def fetch_original(dataset: DataSet, file: str, sha256: str = "") -> Path:
    """An original file of a data set, from the cache or downloaded to it.

    Args:
        dataset: the data set.
        file: its address after `dataset.download`; the last part is its name in the cache.
        sha256: the file's checksum; not checked if empty.
    """
    path = _originals(dataset) / Path(file).name
    if path.exists():
        if sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise DataNotFound(_not_here(dataset, f"{path} is damaged: its SHA-256 is not {sha256}."))
        return path
    by_hand = f"To do it by hand, put {path.name} into {path.parent}."
    if not dataset.download:
        raise DataNotFound(_not_here(dataset, by_hand))
    if os.environ.get("BAYESDROP_OFFLINE", "") not in ("", "0"):
        reason = "BAYESDROP_OFFLINE is set, so nothing is downloaded."
        raise DataNotFound(_not_here(dataset, f"{reason} {by_hand}"))
    pooch = require("pooch", extra="data", owner=f"The download of {dataset.name}")
    try:
        pooch.retrieve(
            f"{dataset.download}{file}", sha256 or None, fname=path.name, path=path.parent, progressbar=False
        )
    except (OSError, ValueError) as error:
        # requests' errors are OSErrors; a checksum that does not agree is a ValueError.
        reason = f"{dataset.download}{file} could not be downloaded ({type(error).__name__}: {error})."
        raise DataNotFound(_not_here(dataset, f"{reason} {by_hand}")) from error
    return path


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of arrays: their names, types, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()


def read_npz(path: Path) -> Arrays:
    """All arrays of an npz file."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _folders() -> list[Path]:
    named = data_folder()
    return [*([] if named is None else [named]), cache_folder() / "data"]


def _originals(dataset: DataSet) -> Path:
    return cache_folder() / "data" / "originals" / dataset.name


def _not_here(dataset: DataSet, reason: str) -> str:
    named = data_folder()
    first = "$BAYESDROP_DATA, which is not set," if named is None else f"$BAYESDROP_DATA ({named})"
    return (
        f"The data set {dataset.name} is not available here. Looked for {dataset.stored} in {first} and in "
        f"{cache_folder() / 'data'}. {reason} Its home: {dataset.home}"
    )
