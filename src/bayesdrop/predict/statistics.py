"""Statistics of draws, updated draw by draw, so that memory does not grow with their number.

The keeper also keeps the draws themselves while they are small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.functional import entropy
from bayesdrop.likelihoods import Bernoulli, ClassLikelihood, Likelihood, SoftmaxLikelihood

__all__ = [
    "KEPT_BYTES",
    "ClassStatistics",
    "DrawStatistics",
    "Keeper",
    "RunningCovariance",
    "RunningLogMeanExp",
    "RunningMoments",
    "Statistics",
    "draw_covariance",
]

#: by default, draws are kept up to this size
KEPT_BYTES = 64 * 2**20
#: draws whose covariance is computed together
_FEW = 16
_WIDE = (torch.float32, torch.float64)

_NOTHING = torch.empty(0)


class RunningMoments:
    """Mean and sum of squared deviations by Welford's update, which loses no digits by cancellation."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = _NOTHING
        self.deviation = _NOTHING
        self._delta: Tensor | None = None

    def update(self, value: Tensor) -> None:
        """Add one value of every entry."""
        self.count += 1
        if self.count == 1:
            self.mean = value.clone()
            self.deviation = torch.zeros_like(value)
            return
        # The same memory for every value, instead of new large temporaries.
        if self._delta is None:
            self._delta = torch.empty_like(self.mean)
        torch.sub(value, self.mean, out=self._delta)
        self.mean.add_(self._delta, alpha=1 / self.count)
        self.deviation.addcmul_(self._delta, self._delta, value=1 - 1 / self.count)

    def update_many(self, values: Tensor) -> None:
        """Add values (C, ...) of every entry: the pairwise form of the same update."""
        size = values.shape[0]
        if size == 1:
            self.update(values[0])
            return
        # torch.var_mean over a leading axis takes ten times as long as these operations.
        mean = values.mean(0)
        self.merge(size, mean, (values - mean).square_().sum(0))

    def merge(self, count: int, mean: Tensor, deviation: Tensor) -> None:
        """Add `count` values, given by their mean and sum of squared deviations."""
        if self.count == 0:
            self.count, self.mean, self.deviation = count, mean, deviation
            return
        total = self.count + count
        delta = mean - self.mean
        self.deviation = self.deviation + deviation + delta.square() * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.count = total

    @property
    def variance(self) -> Tensor:
        """Variance of the values seen (divided by their number); NaN after a single one."""
        if self.count < 2:
            return torch.full_like(self.mean, math.nan)
        return self.deviation / self.count


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
        """Add `count` vectors, given by their mean and sum of outer products of deviations."""
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


class RunningLogMeanExp:
    """log (1/T) sum_t exp(v_t), element by element, without overflow."""

    def __init__(self) -> None:
        self.count = 0
        self.total = _NOTHING

    def update(self, value: Tensor) -> None:
        """Add one value of every entry."""
        self.count += 1
        self.total = value.clone() if self.count == 1 else torch.logaddexp(self.total, value)

    def update_many(self, values: Tensor) -> None:
        """Add values (C, ...) of every entry."""
        self.merge(values.shape[0], torch.logsumexp(values, 0))

    def merge(self, count: int, total: Tensor) -> None:
        """Add `count` values whose exponentials sum to exp(total)."""
        self.total = total if self.count == 0 else torch.logaddexp(self.total, total)
        self.count += count

    @property
    def value(self) -> Tensor:
        """The log of the mean of the exponentials seen."""
        return self.total - math.log(self.count)


@dataclass(frozen=True)
class ClassStatistics:
    """Statistics of class probabilities beyond their moments. Shapes without the class axis."""

    expected_entropy: Tensor
    variation_ratio: Tensor
    #: P(y = 0) where the mean holds P(y = 1) alone (`Bernoulli`): 1 - mean would round small chances to 0
    complement: Tensor | None = None

    @staticmethod
    def concatenate(parts: list[ClassStatistics]) -> ClassStatistics:
        """The batches one after another."""
        others = [part.complement for part in parts if part.complement is not None]
        return ClassStatistics(
            expected_entropy=torch.cat([part.expected_entropy for part in parts]),
            variation_ratio=torch.cat([part.variation_ratio for part in parts]),
            complement=torch.cat(others) if others else None,
        )


@dataclass(frozen=True)
class Statistics:
    """The statistics of T draws of one batch, or of all batches."""

    mean: Tensor
    epistemic: Tensor
    aleatoric: Tensor
    draws_used: Tensor  #: (N,)
    classes: ClassStatistics | None
    log_prob: Tensor | None
    covariance: Tensor | None = None  #: (N, D, D) of the draws' means, if it was wanted

    @staticmethod
    def concatenate(parts: list[Statistics]) -> Statistics:
        """The batches one after another."""
        if len(parts) == 1:
            return parts[0]
        classes = [part.classes for part in parts if part.classes is not None]
        scores = [part.log_prob for part in parts if part.log_prob is not None]
        covariances = [part.covariance for part in parts if part.covariance is not None]
        return Statistics(
            mean=torch.cat([part.mean for part in parts]),
            epistemic=torch.cat([part.epistemic for part in parts]),
            aleatoric=torch.cat([part.aleatoric for part in parts]),
            draws_used=torch.cat([part.draws_used for part in parts]),
            classes=ClassStatistics.concatenate(classes) if classes else None,
            log_prob=torch.cat(scores) if scores else None,
            covariance=torch.cat(covariances) if covariances else None,
        )


class DrawStatistics:
    """Running statistics of the draws of one batch.

    Args:
        likelihood: what outputs mean; None for moments of the raw outputs.
        targets: y, scored with every draw; None to score nothing.
        covariance: compute the covariance between the outputs of a row, too.
    """

    def __init__(
        self, likelihood: Likelihood | None, targets: Tensor | None = None, *, covariance: bool = False
    ) -> None:
        self.likelihood = likelihood
        self.targets = targets
        self._moments = RunningMoments()
        self._variance = RunningMoments()
        self._entropy = RunningMoments()
        self._covariance = RunningCovariance() if covariance else None
        self._votes: Tensor | None = None
        self._scores = RunningLogMeanExp()
        #: sum over rows of log p(y | f_t), a number a draw
        self.joint: list[float] = []

    def update(self, output: Tensor) -> None:
        """Add one draw's output."""
        self.update_many(output.unsqueeze(0))

    def update_many(self, outputs: Tensor) -> None:
        """Add the outputs (C, N, ...) of C draws."""
        outputs = outputs.detach()
        if outputs.dtype in (torch.float16, torch.bfloat16):
            outputs = outputs.float()
        likelihood = self.likelihood
        if likelihood is None:
            self._moments.update_many(outputs)
            self._update_covariance(outputs)
            return
        if isinstance(likelihood, ClassLikelihood):
            self._update_classes(likelihood, outputs)
        else:
            mean, variance = likelihood.moments(outputs)
            self._moments.update_many(mean)
            self._update_covariance(mean)
            self._variance.update_many(variance)
        if self.targets is not None:
            scores = torch.stack([likelihood.log_prob(output, self.targets) for output in outputs])
            self._scores.update_many(scores)
            self.joint += scores.flatten(1).sum(1, dtype=torch.float64).tolist()

    def _update_classes(self, likelihood: ClassLikelihood, outputs: Tensor) -> None:
        # Kept with the classes last; `result` lays them out as the outputs are.
        probs = likelihood.class_log_probs(outputs, leading=1).exp()
        self._moments.update_many(probs)
        self._update_covariance(probs if isinstance(likelihood, SoftmaxLikelihood) else probs[..., 1])
        self._variance.update_many(probs * (1 - probs))
        self._entropy.update_many(entropy(probs))
        if self._votes is None:
            self._votes = torch.zeros_like(probs[0], dtype=torch.int32)
        for winner in probs.argmax(-1, keepdim=True):
            self._votes.scatter_add_(-1, winner, torch.ones_like(winner, dtype=torch.int32))

    def _update_covariance(self, means: Tensor) -> None:
        if self._covariance is not None:
            self._covariance.update_many(_row_vectors("predict", self.likelihood, means, leading=1))

    @property
    def count(self) -> int:
        """How many draws have been added."""
        return self._moments.count

    def largest_error(self) -> float:
        """The largest ratio of the mean's standard error to the predictive standard deviation."""
        count = self._moments.count
        if count < 2:
            return math.inf
        spread = self._moments.variance
        total = spread if self.likelihood is None else spread + self._variance.mean
        ratio = (spread / (count - 1) / total).nan_to_num(nan=0.0)
        return math.sqrt(float(ratio.max()))

    def result(self) -> Statistics:
        """The statistics so far, on the CPU."""
        mean, epistemic = self._moments.mean, self._moments.variance
        count = self._moments.count
        aleatoric = torch.zeros_like(epistemic) if self.likelihood is None else self._variance.mean
        classes = None
        if self._votes is not None and isinstance(self.likelihood, ClassLikelihood):
            most = self._votes.amax(-1)
            complement = mean[..., 0].cpu().contiguous() if isinstance(self.likelihood, Bernoulli) else None
            classes = ClassStatistics(
                expected_entropy=self._entropy.mean.cpu(),
                variation_ratio=(1 - most.to(epistemic.dtype) / count).cpu(),
                complement=complement,
            )
            mean, epistemic, aleatoric = (
                self.likelihood.laid_out(value).contiguous() for value in (mean, epistemic, aleatoric)
            )
        return Statistics(
            mean=mean.cpu(),
            epistemic=epistemic.cpu(),
            aleatoric=aleatoric.cpu(),
            draws_used=torch.full((epistemic.shape[0],), count),
            classes=classes,
            log_prob=self._scores.value.cpu() if self.targets is not None else None,
            covariance=None if self._covariance is None else self._covariance.covariance.cpu(),
        )


def _row_vectors(owner: str, likelihood: Likelihood | None, means: Tensor, *, leading: int) -> Tensor:
    """The vectors whose covariance is computed: the D numbers of a row, or its K class probabilities.

    Args:
        owner: the function that the error names.
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
        running.update_many(_row_vectors(owner, likelihood, means, leading=1))
    return running.covariance


def _means(likelihood: Likelihood | None, outputs: Tensor) -> Tensor:
    if isinstance(likelihood, SoftmaxLikelihood):
        return likelihood.class_log_probs(outputs, leading=1).exp()
    return outputs if likelihood is None else likelihood.moments(outputs)[0]


class Keeper:
    """Keeps the outputs of all draws, or none of them once they are too large.

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
        """Begin a batch of at most `num_draws` draws."""
        self._room, self._filled = num_draws, 0

    def wants(self, size: int) -> bool:
        """Whether `size` more bytes would be kept."""
        return self._blocks is not None and not (self._keep is None and self._bytes + size > KEPT_BYTES)

    def add(self, outputs: Tensor) -> None:
        """Add some draws of the batch, (C, N, ...)."""
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
        """End the batch, which may have used fewer draws than there was room for."""
        if self._blocks and self._filled < self._room:
            self._blocks[-1] = self._blocks[-1][: self._filled].clone()

    def result(self) -> Tensor | None:
        """(T, N, ...) outputs; None if they are not kept, or differ in number from batch to batch."""
        if not self._blocks or len({block.shape[0] for block in self._blocks}) > 1:
            return None
        return self._blocks[0] if len(self._blocks) == 1 else torch.cat(self._blocks, dim=1)
