"""Sharing the work of one prediction between the processes of `torch.distributed`."""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from bayesdrop.errors import is_one_of, must
from bayesdrop.predict.statistics import ClassStatistics, DrawStatistics, Statistics

__all__ = ["Ranks", "Share"]

Share = Literal["draws", "rows"]


class Ranks:
    """The place of this process among those that share a prediction.

    Args:
        share: "draws": every process runs a part of the draws for all rows. "rows": every process runs
            all draws for a part of the rows.
    """

    def __init__(self, share: Share) -> None:
        if not is_one_of(share, ("draws", "rows")):
            raise ValueError(must("predict", "share", "'draws', 'rows' or None", share))
        if not (dist.is_available() and dist.is_initialized()):
            hint = "Call torch.distributed.init_process_group first, as under torchrun."
            raise ValueError(must("predict", "share", "None outside torch.distributed", share, hint))
        self.share = share
        self.size = dist.get_world_size()
        self.rank = dist.get_rank()

    def part(self, count: int) -> tuple[int, int]:
        """First and last + 1 of this process's part of `count` draws or rows."""
        return count * self.rank // self.size, count * (self.rank + 1) // self.size

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, in the order of their ranks; sizes of axis 0 may differ."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([tensor.shape[0]]))
        longest = max(int(size) for size in sizes)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded.contiguous())
        return [part[: int(size)] for part, size in zip(parts, sizes, strict=True)]

    def merge_draws(self, running: DrawStatistics) -> None:
        """Replace the statistics by those of the draws of all processes, in the order of the draws."""
        asked = running._covariance is not None
        merged = DrawStatistics(running.likelihood, running.targets, covariance=asked)
        counts = [int(count) for count in self.gather(torch.tensor([running.count]))]
        for name in ("_moments", "_variance", "_entropy", "_covariance"):
            own = getattr(running, name)
            if own is None or own.count == 0:
                continue
            means, deviations = self._gather_whole(own.mean), self._gather_whole(own.deviation)
            for count, mean, deviation in zip(counts, means, deviations, strict=True):
                getattr(merged, name).merge(count, mean, deviation)
        if running._votes is not None:
            merged._votes = torch.stack(self._gather_whole(running._votes)).sum(0, dtype=torch.int32)
        if running.targets is not None:
            for count, total in zip(counts, self._gather_whole(running._scores.total), strict=True):
                merged._scores.merge(count, total)
            joint = self.gather(torch.tensor(running.joint, dtype=torch.float64))
            merged.joint = torch.cat(joint).tolist()
        vars(running).update(vars(merged))

    def _gather_whole(self, tensor: Tensor) -> list[Tensor]:
        return [part[0] for part in self.gather(tensor.unsqueeze(0))]

    def merge_rows(self, statistics: Statistics) -> Statistics:
        """The rows of all processes, one after another."""

        def rows(tensor: Tensor) -> Tensor:
            return torch.cat(self.gather(tensor))

        classes = statistics.classes
        return Statistics(
            mean=rows(statistics.mean),
            epistemic=rows(statistics.epistemic),
            aleatoric=rows(statistics.aleatoric),
            draws_used=rows(statistics.draws_used),
            classes=None
            if classes is None
            else ClassStatistics(
                rows(classes.expected_entropy),
                rows(classes.variation_ratio),
                None if classes.complement is None else rows(classes.complement),
            ),
            log_prob=None if statistics.log_prob is None else rows(statistics.log_prob),
            covariance=None if statistics.covariance is None else rows(statistics.covariance),
        )
