"""Statistics of draws that are seen once and let go: memory does not grow with their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.functional import entropy
from bayesdrop.likelihoods import ClassLikelihood, Likelihood

__all__ = ["ClassStatistics", "DrawStatistics", "RunningLogMeanExp", "RunningMoments", "Statistics"]


class RunningMoments:
    """Mean and sum of squared deviations by Welford's update, which does not cancel."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.empty(0)
        self.deviation = torch.empty(0)

    def update(self, value: Tensor) -> None:
        """Add one value of every entry."""
        self.count += 1
        if self.count == 1:
            self.mean = value.clone()
            self.deviation = torch.zeros_like(value)
            return
        delta = value - self.mean
        self.mean += delta / self.count
        self.deviation.addcmul_(delta, value - self.mean)

    @property
    def variance(self) -> Tensor:
        """Variance of the values seen (divided by their number); NaN after a single one."""
        if self.count < 2:
            return torch.full_like(self.mean, math.nan)
        return self.deviation / self.count


class RunningLogMeanExp:
    """log (1/T) sum_t exp(v_t), element by element, without overflow."""

    def __init__(self) -> None:
        self.count = 0
        self.total = torch.empty(0)

    def update(self, value: Tensor) -> None:
        """Add one value of every entry."""
        self.count += 1
        self.total = value.clone() if self.count == 1 else torch.logaddexp(self.total, value)

    @property
    def value(self) -> Tensor:
        """The log of the mean of the exponentials seen."""
        return self.total - math.log(self.count)


@dataclass(frozen=True)
class ClassStatistics:
    """What is known of class probabilities beyond their moments. Shapes without the class axis."""

    expected_entropy: Tensor
    variation_ratio: Tensor


@dataclass(frozen=True)
class Statistics:
    """What T draws of one batch, or of all batches, came to."""

    mean: Tensor
    epistemic: Tensor
    aleatoric: Tensor
    classes: ClassStatistics | None
    log_prob: Tensor | None

    @staticmethod
    def concatenate(parts: list[Statistics]) -> Statistics:
        """The batches one after another."""
        if len(parts) == 1:
            return parts[0]
        classes = [part.classes for part in parts if part.classes is not None]
        scores = [part.log_prob for part in parts if part.log_prob is not None]
        return Statistics(
            mean=torch.cat([part.mean for part in parts]),
            epistemic=torch.cat([part.epistemic for part in parts]),
            aleatoric=torch.cat([part.aleatoric for part in parts]),
            classes=ClassStatistics(
                expected_entropy=torch.cat([part.expected_entropy for part in classes]),
                variation_ratio=torch.cat([part.variation_ratio for part in classes]),
            )
            if classes
            else None,
            log_prob=torch.cat(scores) if scores else None,
        )


class DrawStatistics:
    """Running statistics of the draws of one batch.

    Args:
        likelihood: what outputs mean; None for moments of the raw outputs.
        targets: scored against every draw as it passes, if given.
    """

    def __init__(self, likelihood: Likelihood | None, targets: Tensor | None = None) -> None:
        self.likelihood = likelihood
        self.targets = targets
        self._moments = RunningMoments()
        self._variance = RunningMoments()
        self._entropy = RunningMoments()
        self._votes: Tensor | None = None
        self._scores = RunningLogMeanExp()
        #: sum over rows of log p(y | f_t), a number a draw
        self.joint: list[float] = []

    def update(self, output: Tensor) -> None:
        """Add one draw's output."""
        output = output.detach()
        if output.dtype in (torch.float16, torch.bfloat16):
            output = output.float()
        likelihood = self.likelihood
        if likelihood is None:
            self._moments.update(output)
            return
        mean, variance = likelihood.moments(output)
        self._moments.update(mean)
        self._variance.update(variance)
        if isinstance(likelihood, ClassLikelihood):
            axis = likelihood.class_axis
            self._entropy.update(entropy(mean, axis))
            if self._votes is None:
                self._votes = torch.zeros_like(mean, dtype=torch.int32)
            winner = mean.argmax(axis, keepdim=True)
            self._votes.scatter_add_(axis, winner, torch.ones_like(winner, dtype=torch.int32))
        if self.targets is not None:
            score = likelihood.log_prob(output, self.targets)
            self._scores.update(score)
            self.joint.append(float(score.sum(dtype=torch.float64)))

    def result(self) -> Statistics:
        """The statistics so far, on the CPU."""
        epistemic = self._moments.variance
        count = self._moments.count
        aleatoric = torch.zeros_like(epistemic) if self.likelihood is None else self._variance.mean
        classes = None
        if self._votes is not None and isinstance(self.likelihood, ClassLikelihood):
            most = self._votes.amax(self.likelihood.class_axis)
            classes = ClassStatistics(
                expected_entropy=self._entropy.mean.cpu(),
                variation_ratio=(1 - most.to(epistemic.dtype) / count).cpu(),
            )
        return Statistics(
            mean=self._moments.mean.cpu(),
            epistemic=epistemic.cpu(),
            aleatoric=aleatoric.cpu(),
            classes=classes,
            log_prob=self._scores.value.cpu() if self.targets is not None else None,
        )
