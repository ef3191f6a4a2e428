"""What the training loop keeps of each network of a stack, and the rows that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.packed import PackedInputs
from bayesdrop.stacked.streams import RowStream

__all__ = ["JoinedTable", "Network"]


class Network:
    """What the loop keeps of one network."""

    def __init__(self, job: Job, offset: int) -> None:
        self.job = job
        own = torch.arange(len(job.x)) if job.rows is None else job.rows
        self.rows = RowStream(job.seed, own.numpy().astype(np.int64) + offset)
        self.num_data = len(own)
        #: what makes the weights of the network's own rows one on average
        self.weight_factor = 1.0 if job.weight is None else 1.0 / float(job.weight[own].mean())
        self.epoch_steps = -(-self.num_data // job.settings.batch_size)
        self.total = job.settings.epochs * self.epoch_steps
        self.history: dict[str, list[Any]] = {"epoch": [], "nll": [], "kl": []}
        self.best: dict[str, Tensor] | None = None
        self.best_score = -float("inf")
        self.best_epoch: int | None = None
        self.waited = 0
        self.result: Trained | None = None

    def next_event(self, step: int) -> int:
        """The next step, after `step`, at whose end something is to be done."""
        settings = self.job.settings
        every = self.epoch_steps * (1 if settings.noise == "map" else settings.check_every)
        return min((step // every + 1) * every, self.total)

    def is_check(self, step: int) -> bool:
        """Whether a check is due at the end of `step`."""
        return step % (self.epoch_steps * self.job.settings.check_every) == 0 or step == self.total


class JoinedTable:
    """Rows of all distinct tables of a stack, one after another."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        places: dict[tuple[int, int, int], int] = {}
        xs: list[Tensor | PackedInputs] = []
        ys: list[Tensor] = []
        weights: list[Tensor] = []
        self.offsets: list[int] = []
        total = 0
        weighted = any(job.weight is not None for job in jobs)
        for job in jobs:
            key = (id(job.x), id(job.y), id(job.weight))
            if key not in places:
                places[key] = total
                xs.append(job.x)
                ys.append(job.y)
                if weighted:
                    ones = torch.ones(len(job.x))
                    weights.append((ones if job.weight is None else job.weight).to(job.x.dtype))
                total += len(job.x)
            self.offsets.append(places[key])
        self.x = xs[0] if len(xs) == 1 else torch.cat([_unpacked(x) for x in xs])
        self.y = ys[0] if len(ys) == 1 else torch.cat(ys)
        self.weight = torch.cat(weights) if weighted else None


def _unpacked(x: Tensor | PackedInputs) -> Tensor:
    return x.unpacked() if isinstance(x, PackedInputs) else x
