"""The global random states, given back as they were found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["random_state_kept"]


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The global generators of torch, numpy and Python are afterwards as before, also after an exception."""
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    arrays, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        np.random.set_state(arrays)  # noqa: NPY002
        random.setstate(python)
