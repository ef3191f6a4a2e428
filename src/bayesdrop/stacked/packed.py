"""PackedInputs: the encoded columns of a long table in a fraction of their size, unpacked row by row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["PackedInputs"]


@dataclass(frozen=True, eq=False)
class PackedInputs:
    """(N, K) inputs of a network, held in three numbers a column and row instead of 1 + B.

    Of the B pieces of a column (see `Encoder`) all below one place are full and all above it are empty: the
    place and its piece say everything. Indexing by rows gives the same numbers, to the last bit, as
    indexing a tensor of all inputs.

    Attributes:
        plain: (N, D) standardised columns.
        place: (N, D) uint8 or int16, the piece that is neither full nor empty.
        part: (N, D) that piece.
        empty: (D, B) pieces that are empty.
        full: (D, B) pieces that are full.
    """

    plain: Tensor
    place: Tensor
    part: Tensor
    empty: Tensor
    full: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.plain)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """(R, K) inputs of some rows."""
        return self.index_select(0, rows)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """As a tensor's, over axis 0."""
        place = self.place.index_select(dim, rows)
        columns, bins = self.full.shape
        made = self.plain.new_empty(len(rows), columns * (1 + bins))
        made[:, :columns] = self.plain.index_select(dim, rows)
        pieces = made[:, columns:].view(len(rows), columns, bins)
        full = self.numbers < place.unsqueeze(2)
        torch.where(full, self.full, self.empty, out=pieces)
        pieces.scatter_(2, place.to(torch.int64).unsqueeze(2), self.part.index_select(dim, rows).unsqueeze(2))
        return made

    @cached_property
    def numbers(self) -> Tensor:
        """(B,) 0, 1, ... to compare places with."""
        return torch.arange(self.full.shape[1]).to(self.place.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.plain), self.plain.shape[1] + self.full.numel()

    @property
    def dtype(self) -> torch.dtype:
        """Of the inputs."""
        return self.plain.dtype

    def unpacked(self) -> Tensor:
        """(N, K) all inputs."""
        return self[torch.arange(len(self))]
