"""Trying strengths of noise on held-out rows, and choosing among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.inject.information import prediction_information
from bayesdrop.inject.report import TriedNoise
from bayesdrop.layers import ScaledDropout, StochasticLayer
from bayesdrop.likelihoods import Bernoulli, Categorical, NumberLikelihood
from bayesdrop.metrics import accuracy, rmse
from bayesdrop.metrics.likelihood import point_log_likelihood
from bayesdrop.noise import KeepNoise, Sampler
from bayesdrop.noise.samplers import GaussianMultiplier, ScaledKeepNoise
from bayesdrop.predict import Prediction
from bayesdrop.predict.sweep import NoiseSweep

__all__ = ["Measured", "Search", "chosen", "cross_fitted", "largest_rate"]

#: log-likelihoods that are kept for every candidate; where there are more points, means of neighbours
_KEPT_POINTS = 20_000
#: halvings of the interval in which the largest rate lies
_HALVINGS = 6


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured with one strength of the noise.

    Attributes:
        candidate: its numbers.
        points: (M,) log-likelihoods, or means of neighbouring ones; None without targets.
    """

    candidate: TriedNoise
    points: Tensor | None


class Search:
    """Measures of a model with noise, for any strength of it.

    Args:
        sweep: makes the predictions.
        informed: whether to compute the information of predictions, too.
        tolerance: how much worse the mean prediction may be: a difference of accuracies, a share of the RMSE.
        advance: is told of every measurement.
    """

    def __init__(
        self, sweep: NoiseSweep, *, informed: bool, tolerance: float, advance: Callable[[int, str], None]
    ) -> None:
        self._sweep = sweep
        self._informed = informed
        self._tolerance = tolerance
        self._advance = advance
        self.bare = self._measured(sweep.bare(), 0.0, 1.0)

    @property
    def metric(self) -> str | None:
        """What `TriedNoise.quality` is."""
        if self._sweep.targets is None:
            return None
        likelihood = self._sweep.likelihood
        if isinstance(likelihood, Categorical | Bernoulli):
            return "accuracy"
        return "rmse" if isinstance(likelihood, NumberLikelihood) else None

    def at(self, p: float, scale: float = 1.0) -> Measured:
        """The measures at one strength."""
        prediction = self._sweep.prediction(
            lambda sample: _changed(sample, p, scale), lambda: set_noise(self._sweep.model, p, scale)
        )
        made = self._measured(prediction, p, scale)
        self._advance(1, f"p = {p:.3g}")
        return replace(made, candidate=replace(made.candidate, allowed=self._allows(made.candidate)))

    def _allows(self, candidate: TriedNoise) -> bool:
        quality, before = candidate.quality, self.bare.candidate.quality
        if quality is None or before is None:
            return True
        if self.metric == "accuracy":
            return quality >= before - self._tolerance
        return quality <= before * (1 + self._tolerance)

    def _measured(self, prediction: Prediction, p: float, scale: float) -> Measured:
        y = self._sweep.targets
        points = log_likelihood = quality = None
        if y is not None:
            every = point_log_likelihood("inject", prediction, y)
            log_likelihood, points = float(every.mean()), _few(every)
            if self.metric is not None:
                quality = float((accuracy if self.metric == "accuracy" else rmse)(prediction, y))
        information = prediction_information(prediction) if self._informed else None
        return Measured(TriedNoise(p, scale, log_likelihood, quality, information, True), points)


def _few(points: Tensor) -> Tensor:
    if len(points) <= _KEPT_POINTS:
        return points
    return torch.stack([part.mean() for part in points.tensor_split(_KEPT_POINTS)])


def _changed(sample: Sampler, p: float, scale: float) -> Sampler:
    """The same noise at another strength."""
    if isinstance(sample, KeepNoise | ScaledKeepNoise):
        rate = torch.full_like(sample.p, p)
        return KeepNoise(rate) if scale == 1 else ScaledKeepNoise(rate, scale)
    assert isinstance(sample, GaussianMultiplier)
    return GaussianMultiplier(torch.full_like(sample.p, p))


@torch.no_grad()
def set_noise(model: nn.Module, p: float, scale: float) -> None:
    """Set the strength of all noise of a model."""
    for layer in model.modules():
        if isinstance(layer, StochasticLayer):
            layer.p.fill_(p)
            if isinstance(layer, ScaledDropout):
                layer.scale = scale


# by likelihood


def chosen(tried: Sequence[Measured], rows: slice | None = None) -> int:
    """The number of the likeliest candidate among those that are allowed.

    A scale other than 1 is chosen only if it is better than the best of scale 1 by more than a standard error
    of the difference: plain dropout is simpler, and runs faster.

    Args:
        tried: at least one of them allowed.
        rows: the points to choose by; all if None.
    """
    scores = [_points(one)[rows if rows is not None else slice(None)] for one in tried]
    allowed = [place for place, one in enumerate(tried) if one.candidate.allowed]
    best = max(allowed, key=lambda place: float(scores[place].mean()))
    plain = [place for place in allowed if tried[place].candidate.scale == 1]
    if tried[best].candidate.scale == 1 or not plain:
        return best
    simplest = max(plain, key=lambda place: float(scores[place].mean()))
    gain = scores[best] - scores[simplest]
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return best if float(gain.mean()) > error else simplest


def cross_fitted(tried: Sequence[Measured]) -> Tensor:
    """(M,) log-likelihoods, those of every other point with the noise that the rest of the points chooses."""
    made = torch.empty_like(_points(tried[0]))
    for own, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        made[own] = _points(tried[chosen(tried, other)])[own]
    return made


def _points(one: Measured) -> Tensor:
    assert one.points is not None
    return one.points


# by information


def largest_rate(search: Search, rates: Sequence[float], bound: float) -> tuple[Measured, list[Measured]]:
    """The largest rate at which predictions lose at most this share of their information, and all tried.

    The rates are tried in order until one loses more. Between it and the one before, the interval is halved
    a few times.
    """
    before = search.bare.candidate.information
    assert before is not None
    if before <= 0:
        got = "predictions that are the same for all rows"
        raise ValueError(must("inject", "model", "a network whose outputs depend on its inputs", got))
    tried: list[Measured] = []

    def measured(p: float) -> Measured:
        one = search.at(p)
        assert one.candidate.information is not None
        kept = one.candidate.information >= before * (1 - bound)
        one = replace(one, candidate=replace(one.candidate, allowed=one.candidate.allowed and kept))
        tried.append(one)
        return one

    last: Measured | None = None
    for p in sorted(rates):
        one = measured(p)
        if one.candidate.allowed:
            last = one
            continue
        if last is None:
            break
        low, high = last.candidate.p, p
        for _ in range(_HALVINGS):
            middle = measured(math.sqrt(low * high))
            if middle.candidate.allowed:
                last, low = middle, middle.candidate.p
            else:
                high = middle.candidate.p
        break
    if last is None:
        lost = 1 - (tried[0].candidate.information or 0) / before
        hint = "Give a smaller rate among `rates`, or a larger bound."
        got = f"{100 * lost:.1f} % lost at p = {min(rates):g}"
        raise ValueError(must("inject", "bound", "a loss that some rate stays below", got, hint))
    return last, tried
