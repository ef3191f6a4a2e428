"""CIFAR-10: small colour pictures of ten kinds of things."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays, read_npz
from bayesdrop.errors import must, require

__all__ = ["CIFAR10", "CIFAR10_CLASSES", "load_cifar10"]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)
_ARCHIVE = "cifar-10-binary.tar.gz"
_ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
# A stored batch is one picture of 100 x 100 tiles.
_TILES, _SIDE = 100, 32


@dataclass(frozen=True, eq=False)
class CIFAR10:
    """Up to 50,000 training images and 10,000 test images, in their original order."""

    x_train: Tensor  #: (N, 3, 32, 32) uint8, red, green, blue
    y_train: Tensor  #: (N,) int64, an index of `CIFAR10_CLASSES`
    x_test: Tensor  #: (10000, 3, 32, 32) uint8
    y_test: Tensor  #: (10000,) int64


def load_cifar10(*, num_batches: int = 5) -> CIFAR10:
    """CIFAR-10 (Krizhevsky, 2009), downloaded (162 MB) if it is not there yet.

    Args:
        num_batches: how many of the five training batches of 10,000 images; each takes a second or so.
    """
    if num_batches not in range(1, 6):
        raise ValueError(must("load_cifar10", "num_batches", "from 1 to 5", num_batches))
    arrays = load_arrays("cifar10", lambda path: _read(path, num_batches), _from_home)
    rows = num_batches * _TILES**2
    return CIFAR10(
        x_train=torch.from_numpy(arrays["x_train"][:rows]),
        y_train=torch.from_numpy(arrays["y_train"][:rows]).long(),
        x_test=torch.from_numpy(arrays["x_test"]),
        y_test=torch.from_numpy(arrays["y_test"]).long(),
    )


def binary_batch(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images (n, 3, 32, 32) and labels (n,) of the binary form: a byte for the label, then three planes."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * _SIDE * _SIDE)
    return records[:, 1:].reshape(-1, 3, _SIDE, _SIDE), records[:, 0]


def mosaic_batch(picture: NDArray[Any]) -> NDArray[Any]:
    """Images (n, 3, 32, 32) of one large picture (H, W, 3) whose tiles they are, row by row."""
    down, across = picture.shape[0] // _SIDE, picture.shape[1] // _SIDE
    tiles = picture.reshape(down, _SIDE, across, _SIDE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3)).reshape(-1, 3, _SIDE, _SIDE)


def _read(path: Path, num_batches: int = 5) -> Arrays:
    image = require("PIL.Image", extra="data", owner="load_cifar10")

    def images(batches: Sequence[str]) -> NDArray[Any]:
        parts = []
        for batch in batches:
            with image.open(path.with_name(f"{batch}.webp")) as picture:
                parts.append(mosaic_batch(np.asarray(picture.convert("RGB"))))
        return np.concatenate(parts)

    labels = read_npz(path)
    return {
        "x_train": images(_TRAIN[:num_batches]),
        "y_train": labels["train"],
        "x_test": images(_TEST),
        "y_test": labels["test"],
    }


def _from_home(fetch: Fetch) -> Arrays:
    arrays: Arrays = {}
    with tarfile.open(fetch(_ARCHIVE, _ARCHIVE_SHA256)) as archive:
        for part, batches in (("train", _TRAIN), ("test", _TEST)):
            pairs = []
            for batch in batches:
                member = archive.extractfile(f"cifar-10-batches-bin/{batch}.bin")
                assert member is not None
                pairs.append(binary_batch(member.read()))
            arrays[f"x_{part}"] = np.concatenate([images for images, _ in pairs])
            arrays[f"y_{part}"] = np.concatenate([labels for _, labels in pairs])
    return arrays
