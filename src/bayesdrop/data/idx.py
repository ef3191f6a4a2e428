"""The IDX format of MNIST and its like: a few bytes of header, then unsigned bytes."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_idx"]


def read_idx(path: Path) -> NDArray[Any]:
    """The array of an IDX file of unsigned bytes, compressed with gzip or not.

    Two zero bytes, the type (8 is uint8), the number of axes, then every axis' length as four bytes, the
    largest first, then the values.
    """
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"read_idx: {path} is not an IDX file of unsigned bytes.")
    axes = content[3]
    shape = tuple(int(n) for n in np.frombuffer(content, dtype=">u4", count=axes, offset=4))
    if len(content) != 4 + 4 * axes + math.prod(shape):
        raise ValueError(f"read_idx: {path} must hold {shape} bytes after its header; it is cut or longer.")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
