"""Channels last: the layout in which convolutions are faster on most machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.fit.data import TrainingBatch, WrappedBatches
from bayesdrop.inputs import Inputs, each_part

__all__ = ["ChannelsLast", "laid_out"]


class ChannelsLast(WrappedBatches):
    """The same minibatches, with images (N, C, H, W) laid out with their channels last."""

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        return ((_channels_last(x), y) for x, y in self._batches.epoch(epoch))

    def in_order(self) -> Iterator[TrainingBatch]:
        return ((_channels_last(x), y) for x, y in self._batches.in_order())


def _channels_last(x: Inputs) -> Inputs:
    def laid(part: Any) -> Any:
        is_image = isinstance(part, Tensor) and part.dim() == 4
        return part.contiguous(memory_format=torch.channels_last) if is_image else part

    return each_part(laid, x)


@contextmanager
def laid_out(*modules: nn.Module, channels_last: bool) -> Iterator[None]:
    """A context: tensors of four axes have channels last inside, and their own layout afterwards."""
    if not channels_last:
        yield
        return
    changed: list[tuple[Tensor, torch.Tensor]] = []
    try:
        for tensor in chain.from_iterable((*module.parameters(), *module.buffers()) for module in modules):
            if tensor.dim() == 4 and not tensor.is_contiguous(memory_format=torch.channels_last):
                changed.append((tensor, torch.empty_like(tensor, device="meta")))
                tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
        yield
    finally:
        for tensor, before in changed:
            tensor.data = torch.empty_strided(
                before.shape, before.stride(), dtype=tensor.dtype, device=tensor.device
            ).copy_(tensor.data)
