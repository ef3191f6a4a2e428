"""Temperature scaling of the Monte Carlo predictive."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from bayesdrop.calibration.saved import Calibrator
from bayesdrop.calibration.targets import check_classes, check_labels
from bayesdrop.errors import is_one_of, must
from bayesdrop.likelihoods import ClassLikelihood
from bayesdrop.predict import Prediction

__all__ = ["TemperatureScaling"]

_GRID = 13


class TemperatureScaling(Calibrator):
    """A temperature that makes class probabilities of T draws softer or sharper, fitted by likelihood.

        over="draws"   p(y) = (1/T) sum_t softmax(f_t / c)_y      every draw's logits, before averaging
        over="mean"    p(y) = softmax(log p / c)_y                the averaged probabilities p themselves

    A `Bernoulli` has sigmoid(f_t / c) in the first and sigmoid(logit(p) / c) in the second, with one c for
    all its outputs.

    The first keeps the draws, and so the two parts of the uncertainty; it needs `keep_draws=True`. The second
    needs no draws and does not change the order of classes; its result has one distribution a row, so that
    mutual information and variation ratio are NaN. With one draw the two are the same.

    The temperature c minimises the negative log-likelihood of the labels between 1/20 and 20. It is at the
    lower end if every label is right, where the minimum is at 0.

    Args:
        over: "draws" or "mean".

    Reference: Guo et al. (2017), for a single network.

    >>> _ = torch.manual_seed(0)
    >>> logits = 3 * torch.randn(20, 500, 4)
    >>> labels = torch.distributions.Categorical(logits=(logits / 3).log_softmax(-1)[0]).sample()
    >>> from bayesdrop import Categorical, Prediction
    >>> scaling = TemperatureScaling().fit(Prediction.from_draws(logits[:1], Categorical()), labels)
    >>> 2.5 < scaling.temperature < 3.5
    True
    """

    def __init__(self, over: Literal["draws", "mean"] = "draws") -> None:
        if not is_one_of(over, ("draws", "mean")):
            raise ValueError(must("TemperatureScaling", "over", "'draws' or 'mean'", over))
        self.over: Literal["draws", "mean"] = over
        self._temperature: float | None = None

    @property
    def temperature(self) -> float:
        """c; above 1 softens."""
        self.must_be_fitted("temperature")
        assert self._temperature is not None
        return self._temperature

    def fit(self, prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Self:
        """Find the temperature on a calibration set, which is not the training set.

        Args:
            prediction: of classes.
            y: (N, ...) labels, one for every distribution over classes.
            ignore_index: a label that does not count.

        Returns: itself.
        """
        owner = "TemperatureScaling.fit"
        check_classes(owner, prediction)
        labels = check_labels(owner, prediction, y, ignore_index)
        # Rows that count, classes last: (T, M, K). In double precision, as rounded sums would locate the
        # minimum hundreds of times less exactly.
        rows = self._class_logits(prediction).flatten(1, -2).to(torch.float64)
        if ignore_index is not None:
            counted = labels != ignore_index
            rows, labels = rows[:, counted.flatten()], labels[counted]
        labels = labels.flatten()

        def loss(log_temperature: float) -> float:
            scaled = rows / math.exp(log_temperature)
            chosen = scaled.gather(-1, labels.expand(rows.shape[:-1]).unsqueeze(-1)).squeeze(-1)
            log_prob = torch.logsumexp(chosen - torch.logsumexp(scaled, -1), 0)
            return -float(log_prob.mean(dtype=torch.float64))

        self._temperature = math.exp(_minimum(loss, math.log(1 / 20), math.log(20)))
        return self

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction at the fitted temperature."""
        self.must_be_fitted("apply")
        check_classes("TemperatureScaling.apply", prediction)
        likelihood = prediction.likelihood
        assert isinstance(likelihood, ClassLikelihood)
        if self.over == "draws":
            logits = prediction.draws
        else:
            logits = likelihood.output_of(self._class_logits(prediction)[0]).unsqueeze(0)
        made = Prediction.from_draws(
            (logits / self.temperature).to(prediction.mean.dtype),
            likelihood,
            shared=prediction.shared,
        )
        what = "draws" if self.over == "draws" else "mean probabilities"
        return replace(made, plan=f"{prediction.plan}\n{what} at temperature {self.temperature:.4g}")

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {"over": self.over}

    def fitted(self) -> dict[str, Any] | None:
        """The temperature."""
        return None if self._temperature is None else {"temperature": self._temperature}

    def put(self, fitted: Mapping[str, Any]) -> None:
        """Set the temperature."""
        temperature = float(fitted["temperature"])
        if not 0 < temperature < math.inf:
            raise ValueError(must("TemperatureScaling", "temperature", "a positive number", temperature))
        self._temperature = temperature

    def _class_logits(self, prediction: Prediction) -> Tensor:
        """(T, N, ..., K) log-probabilities of every class, in which the scaling is a division."""
        if self.over == "mean":
            # Without 0, whose logarithm is infinite; such a class stays as good as impossible.
            tiny = torch.finfo(prediction.mean.dtype).tiny
            return prediction.class_probs.clamp_min(tiny).log().unsqueeze(0)
        assert isinstance(prediction.likelihood, ClassLikelihood)
        return prediction.likelihood.class_log_probs(prediction.draws, leading=1)


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function of one number: the best of a grid, then golden section around it."""
    grid = torch.linspace(low, high, _GRID, dtype=torch.float64).tolist()
    values = [function(point) for point in grid]
    best = min(range(_GRID), key=lambda index: values[index])
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, _GRID - 1)])
    ratio = (math.sqrt(5) - 1) / 2
    inner, outer = right - ratio * (right - left), left + ratio * (right - left)
    at_inner, at_outer = function(inner), function(outer)
    while right - left > 1e-5:
        if at_inner <= at_outer:
            right, outer, at_outer = outer, inner, at_inner
            inner = right - ratio * (right - left)
            at_inner = function(inner)
        else:
            left, inner, at_inner = inner, outer, at_outer
            outer = left + ratio * (right - left)
            at_outer = function(outer)
    return (left + right) / 2
