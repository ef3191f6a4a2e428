"""Keeping the outputs of all draws while they are small."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["KEPT_BYTES", "Keeper"]

#: draws are kept without being asked for up to this size
KEPT_BYTES = 64 * 2**20


class Keeper:
    """Keeps the outputs of all draws, or lets them go once they are no longer small.

    Args:
        keep: whether to keep them; None keeps up to `KEPT_BYTES`.
    """

    def __init__(self, keep: bool | None) -> None:
        self._keep = keep
        self._blocks: list[Tensor] | None = None if keep is False else []
        self._bytes = 0
        self._room = 0
        self._filled = 0

    def start(self, num_draws: int) -> None:
        """A batch begins, of at most so many draws."""
        self._room, self._filled = num_draws, 0

    def wants(self, size: int) -> bool:
        """Whether so many bytes more would be kept."""
        return self._blocks is not None and not (self._keep is None and self._bytes + size > KEPT_BYTES)

    def add(self, outputs: Tensor) -> None:
        """Some draws of the batch, (C, N, ...)."""
        if self._blocks is None:
            return
        if self._filled == 0:
            size = outputs[0].numel() * outputs.element_size() * self._room
            if not self.wants(size):
                self._blocks = None
                return
            self._bytes += size
            if outputs.shape[0] == self._room:
                self._filled = self._room
                self._blocks.append(outputs.to("cpu", copy=True, memory_format=torch.contiguous_format))
                return
            self._blocks.append(torch.empty((self._room, *outputs.shape[1:]), dtype=outputs.dtype))
        self._blocks[-1][self._filled : self._filled + outputs.shape[0]] = outputs
        self._filled += outputs.shape[0]

    def finish(self) -> None:
        """The batch is done; it may have needed fewer draws than there was room for."""
        if self._blocks and self._filled < self._room:
            self._blocks[-1] = self._blocks[-1][: self._filled].clone()

    def result(self) -> Tensor | None:
        """(T, N, ...) outputs; None if they were let go or differ in number from batch to batch."""
        if not self._blocks or len({block.shape[0] for block in self._blocks}) > 1:
            return None
        return self._blocks[0] if len(self._blocks) == 1 else torch.cat(self._blocks, dim=1)
