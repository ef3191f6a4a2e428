"""Job: data, settings and seed of one network that is to be trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite
from bayesdrop.stacked.encode import EncodedRows
from bayesdrop.stacked.heads import outputs_for
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.trained import Trained

__all__ = ["Job"]


@dataclass(frozen=True, eq=False)
class Job:
    """One network to train. Jobs that share a table should share its tensors: they are then held once.

    Args:
        x: (R, K) inputs of a table, standardised as they should be; encoded when asked for, if they are many.
        y: (R, D) targets; (R,) integer labels with `noise="classes"`; (R, D) of 0 and 1 with "labels".
        settings: how the network is built and trained.
        seed: of first weights, order of rows and noise.
        rows: (N,) places of the rows to train on; all if None.
        validation: (V,) places of rows to check on; they must not be among `rows`.
        weight: (R,) weights of the rows of the table; scaled to mean one over `rows`.
        classes: K, with labels; the largest label plus one if None.
        start: a network to go on from, instead of weights at random; its rates and noise too.
        name: anything that tells the job from others.
    """

    x: Tensor | EncodedRows
    y: Tensor
    settings: Settings
    seed: int = 0
    rows: Tensor | None = None
    validation: Tensor | None = None
    weight: Tensor | None = None
    classes: int | None = None
    start: Trained | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if len(self.x.shape) != 2 or not self.x.dtype.is_floating_point:
            raise ValueError(must("Job", "x", "a floating tensor of shape (R, K)", tuple(self.x.shape)))
        must_be_finite("Job", "x", torch.from_numpy(self.x.x) if isinstance(self.x, EncodedRows) else self.x)
        labels = self.settings.noise == "classes"
        if labels and (self.y.dim() != 1 or self.y.dtype != torch.int64):
            raise ValueError(must("Job", "y", "int64 labels of shape (R,)", f"{tuple(self.y.shape)}"))
        if not labels and (self.y.dim() != 2 or self.y.dtype != self.x.dtype):
            want = "of shape (R, D) and of the dtype of x"
            raise ValueError(must("Job", "y", want, f"{tuple(self.y.shape)}, {self.y.dtype}"))
        must_be_finite("Job", "y", self.y)
        if self.settings.noise == "labels" and not bool(((self.y == 0) | (self.y == 1)).all()):
            raise ValueError(must("Job", "y", "0 or 1", self.y[(self.y != 0) & (self.y != 1)][0].item()))
        if len(self.y) != len(self.x):
            raise ValueError(must("Job", "y", f"{len(self.x)} rows", len(self.y)))
        if self.num_rows < 1:
            raise ValueError(must("Job", "rows", "at least one row", self.num_rows))
        if self.settings.patience is not None and self.validation is None:
            raise ValueError(must("Job", "patience", "None without validation rows", self.settings.patience))
        if self.weight is not None and self.weight.shape != (len(self.x),):
            raise ValueError(must("Job", "weight", f"of shape ({len(self.x)},)", tuple(self.weight.shape)))
        if self.start is not None and self.start.widths != self.widths:
            raise ValueError(must("Job", "start", f"a network of widths {self.widths}", self.start.widths))

    @property
    def num_rows(self) -> int:
        """N, rows to train on."""
        return len(self.x) if self.rows is None else len(self.rows)

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden units, outputs."""
        return (self.x.shape[1], *self.settings.hidden, outputs_for(self.settings.noise, self.targets))

    @property
    def targets(self) -> int:
        """D targets or labels, or K classes."""
        if self.settings.noise != "classes":
            return self.y.shape[1]
        return int(self.y.max()) + 1 if self.classes is None else self.classes
