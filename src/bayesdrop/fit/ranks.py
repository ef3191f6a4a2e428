"""Training shared by the processes of `torch.distributed`: every minibatch is split between them.

A process computes the loss of its rows and multiplies it by its share of the rows of the minibatch; the sum
of all gradients is then that of the whole minibatch. As the shares add up to one, the divergence, which every
process computes, is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bayesdrop.errors import must

__all__ = ["Alone", "TrainingRanks", "seed_of_rank", "training_ranks"]


class Alone:
    """One process that trains by itself."""

    size, rank = 1, 0

    def own_rows(self, count: int) -> slice:
        """The rows of a minibatch that this process computes."""
        return slice(0, count)

    def sum_gradients(self, parameters: Sequence[Tensor], numbers: list[float]) -> list[float]:
        """Sum the gradients over all processes in place. Returns: sums of some numbers besides."""
        return numbers

    def same_start(self, modules: Iterable[nn.Module]) -> None:
        """Give all processes the tensors of the first."""

    def mean_buffers(self, modules: Iterable[nn.Module]) -> None:
        """Give all processes the mean of their floating-point buffers, as BatchNorm's statistics."""

    def of_first(self, number: float) -> float:
        """The number of the first process."""
        return number

    def any_of(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, which have one shape."""
        return [tensor]

    def wait(self) -> None:
        """Until all processes are here."""


class TrainingRanks(Alone):
    """The place of this process among those that train one model together."""

    def __init__(self, device: torch.device) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            hint = "Call torch.distributed.init_process_group first, as under torchrun."
            raise ValueError(must("fit", "share", "None outside torch.distributed", "rows", hint))
        self.size, self.rank = dist.get_world_size(), dist.get_rank()
        self._device = device

    def own_rows(self, count: int) -> slice:
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor], numbers: list[float]) -> list[float]:
        # One message for each precision: a message costs more than its numbers.
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            some = [p for p in parameters if p.dtype == dtype]
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in some])
            dist.all_reduce(flat)
            start = 0
            for parameter in some:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()
        return self._summed(numbers)

    def _summed(self, numbers: Sequence[float]) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        dist.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    @torch.no_grad()
    def same_start(self, modules: Iterable[nn.Module]) -> None:
        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                first = tensor.detach().clone()
                dist.broadcast(first, 0)
                tensor.copy_(first)

    @torch.no_grad()
    def mean_buffers(self, modules: Iterable[nn.Module]) -> None:
        for module in modules:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    mean = buffer.detach().clone()
                    dist.all_reduce(mean)
                    buffer.copy_(mean / self.size)

    def of_first(self, number: float) -> float:
        told = torch.tensor([number], dtype=torch.float64, device=self._device)
        dist.broadcast(told, 0)
        return float(told)

    def any_of(self, flag: bool) -> bool:
        return self._summed([float(flag)])[0] > 0

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor)
        return parts

    def wait(self) -> None:
        dist.barrier()


def training_ranks(share: str | None, device: torch.device) -> Alone:
    """The processes that share a training.

    Args:
        share: "rows" or None.
        device: where collectives put their numbers.
    """
    return Alone() if share is None else TrainingRanks(device)


def seed_of_rank(seed: int, rank: int) -> int:
    """The seed of a process's noise: the first one has that of a run of one process."""
    return seed if rank == 0 else int(np.random.default_rng((seed % 2**63, rank)).integers(2**62))
