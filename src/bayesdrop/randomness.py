"""The global random state, given back as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["random_state_kept"]


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The state of the global generators is afterwards what it was before, also after an exception."""
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=cuda):
        yield
