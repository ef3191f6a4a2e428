"""Covariance between the outputs of a row, gathered while draws go by."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.likelihoods import Likelihood, SoftmaxLikelihood

__all__ = ["RunningCovariance", "draw_covariance", "row_vectors"]

_NOTHING = torch.empty(0)
#: draws that are looked at together
_FEW = 16
_WIDE = (torch.float32, torch.float64)


class RunningCovariance:
    """Mean and sum of outer products of deviations of vectors (..., D), by pairwise updates.

    Memory is that of one (..., D, D) whatever the number of vectors.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = _NOTHING
        self.deviation = _NOTHING

    def update_many(self, values: Tensor) -> None:
        """Add C vectors of every entry, (C, ..., D)."""
        mean = values.mean(0)
        # (..., D, C) by (..., C, D): the sum over C of outer products, without forming each.
        centred = (values - mean).movedim(0, -2)
        self.merge(values.shape[0], mean, centred.mT @ centred)

    def merge(self, count: int, mean: Tensor, deviation: Tensor) -> None:
        """Add `count` vectors that are known by their mean and sum of outer products of deviations."""
        if self.count == 0:
            self.count, self.mean, self.deviation = count, mean, deviation
            return
        total = self.count + count
        delta = mean - self.mean
        between = delta.unsqueeze(-1) * delta.unsqueeze(-2)
        self.deviation = self.deviation + deviation + between * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.count = total

    @property
    def covariance(self) -> Tensor:
        """(..., D, D) covariance of the vectors seen (divided by their number); NaN after a single one."""
        if self.count < 2:
            return torch.full_like(self.deviation, math.nan)
        return self.deviation / self.count


def row_vectors(owner: str, likelihood: Likelihood | None, means: Tensor, *, leading: int) -> Tensor:
    """The vectors whose covariance is meant: what a row says of D numbers, or of K classes.

    Args:
        owner: who asks, for the error.
        likelihood: what outputs mean.
        means: E[y | f], (N, D) or (N,); of a softmax, class probabilities (N, ..., K).
        leading: how many axes come before the rows: 1 for draws.
    """
    if isinstance(likelihood, SoftmaxLikelihood):
        return means
    dims = means.dim() - leading
    if dims > 2:
        shape = tuple(means.shape[leading:])
        hint = "Flatten the outputs that belong together, or predict maps without covariances."
        raise ValueError(must(owner, "covariance", "of outputs (N, D), or of classes", shape, hint))
    return means.unsqueeze(-1) if dims == 1 else means


def draw_covariance(owner: str, likelihood: Likelihood | None, draws: Tensor) -> Tensor:
    """Covariance of E[y | f_t] over kept draws (T, N, ...), a few at a time. Shape (N, D, D)."""
    running = RunningCovariance()
    for outputs in torch.split(draws, _FEW):
        means = _means(likelihood, outputs if outputs.dtype in _WIDE else outputs.float())
        running.update_many(row_vectors(owner, likelihood, means, leading=1))
    return running.covariance


def _means(likelihood: Likelihood | None, outputs: Tensor) -> Tensor:
    if isinstance(likelihood, SoftmaxLikelihood):
        return likelihood.class_log_probs(outputs, leading=1).exp()
    return outputs if likelihood is None else likelihood.moments(outputs)[0]
