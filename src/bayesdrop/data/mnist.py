"""Handwritten digits (MNIST), and clothes in the same format (Fashion-MNIST, the test part)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays, read_npz
from bayesdrop.data.idx import read_idx

__all__ = ["MNIST", "FashionMNIST", "load_fashion_mnist", "load_mnist"]

# Names of the arrays, and of the original files with their SHA-256.
_MNIST_FILES = {
    "x_train": (
        "train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "y_train": (
        "train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "x_test": (
        "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "y_test": (
        "t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
}
_FASHION_FILES = {
    "x_test": (
        "t10k-images-idx3-ubyte.gz",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    "y_test": (
        "t10k-labels-idx1-ubyte.gz",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}


@dataclass(frozen=True, eq=False)
class MNIST:
    """60,000 training and 10,000 test images of digits, in their original order."""

    x_train: Tensor  #: (60000, 28, 28) uint8, 0 is paper and 255 is ink
    y_train: Tensor  #: (60000,) int64, the digit
    x_test: Tensor  #: (10000, 28, 28) uint8
    y_test: Tensor  #: (10000,) int64


@dataclass(frozen=True, eq=False)
class FashionMNIST:
    """10,000 images of clothes, 1,000 of each of ten kinds: not digits, for models of MNIST."""

    x_test: Tensor  #: (10000, 28, 28) uint8
    y_test: Tensor  #: (10000,) int64, the kind


def load_mnist() -> MNIST:
    """MNIST (LeCun & Cortes), downloaded (11 MB) if it is not there yet."""
    return MNIST(**_tensors(load_arrays("mnist", read_npz, lambda fetch: _converted(_MNIST_FILES, fetch))))


def load_fashion_mnist() -> FashionMNIST:
    """The test part of Fashion-MNIST (Zalando), downloaded (4 MB) if it is not there yet."""
    arrays = load_arrays("fashion-mnist", read_npz, lambda fetch: _converted(_FASHION_FILES, fetch))
    return FashionMNIST(**_tensors(arrays))


def _converted(files: dict[str, tuple[str, str]], fetch: Fetch) -> Arrays:
    return {name: read_idx(fetch(file, sha256)) for name, (file, sha256) in files.items()}


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    # A copy: arrays of a file's bytes cannot be written to, and a tensor should be.
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    return {name: tensor if name.startswith("x") else tensor.long() for name, tensor in tensors.items()}
