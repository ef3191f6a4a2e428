"""Errors of the mean; coverage and width of intervals."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, real_number
from bayesdrop.metrics.targets import has_classes, must_be_prediction, regression_targets
from bayesdrop.predict import Prediction

__all__ = ["interval_coverage", "interval_width", "mean_absolute_error", "r2", "rmse"]

Interval = tuple[Tensor, Tensor]


def rmse(prediction: Prediction, y: Tensor) -> Tensor:
    """Root mean squared error of the predictive mean, over all rows and outputs.

        sqrt (1/ND) sum_nd (y_nd - mean_nd)^2

    Returns: shape (). In units of y; lower is better.

    >>> rmse(Prediction.from_draws(torch.tensor([[[1.0]], [[3.0]]])), torch.tensor([[5.0]]))
    tensor(3.)
    """
    target = regression_targets("rmse", prediction, y)
    value = (target - prediction.mean).square().mean().sqrt()
    return value.to(prediction.mean.dtype)


def mean_absolute_error(prediction: Prediction, y: Tensor) -> Tensor:
    """Mean distance of targets from the predictive mean, over all rows and outputs.

        (1/ND) sum_nd |y_nd - mean_nd|

    Returns: shape (). In units of y; lower is better.

    >>> mean_absolute_error(Prediction.from_draws(torch.tensor([[[1.0]], [[3.0]]])), torch.tensor([[5.0]]))
    tensor(3.)
    """
    target = regression_targets("mean_absolute_error", prediction, y)
    return (target - prediction.mean).abs().mean().to(prediction.mean.dtype)


def r2(prediction: Prediction, y: Tensor) -> Tensor:
    """Coefficient of determination of the predictive mean: the share of the targets' variance it explains.

        1 - sum_n (y_nd - mean_nd)^2 / sum_n (y_nd - average_d)^2,    averaged over the outputs d

    Returns: shape (). 1 is perfect, 0 is as good as the targets' average; NaN if an output never varies.

    >>> r2(Prediction.from_draws(torch.tensor([[[1.0], [3.0]]])), torch.tensor([[1.0], [5.0]]))
    tensor(0.5000)
    """
    target = regression_targets("r2", prediction, y)
    spread = (target - target.mean(0)).square().sum(0)
    ratio = (target - prediction.mean).square().sum(0) / spread.where(spread > 0, torch.nan)
    return (1 - ratio).mean().to(prediction.mean.dtype)


def interval_coverage(
    prediction: Prediction, y: Tensor, *, level: float = 0.95, interval: Interval | None = None
) -> Tensor:
    """Share of targets in the central predictive interval, over all rows and outputs.

        (1/ND) sum_nd 1[lower_nd <= y_nd <= upper_nd]

    Args:
        prediction: with its draws kept.
        y: (N, D) targets.
        level: probability of the interval.
        interval: lower and upper ends, (N, D) each, as from `ConformalRegressor.intervals`, instead of the
            prediction's own.

    Returns: shape (). Best at `level`: below is overconfident, above is too wide.
    """
    target = regression_targets("interval_coverage", prediction, y)
    lower, upper = _interval("interval_coverage", prediction, level, interval)
    inside = (lower <= target) & (target <= upper)
    return inside.to(torch.float64).mean().to(prediction.mean.dtype)


def interval_width(
    prediction: Prediction, *, level: float = 0.95, interval: Interval | None = None
) -> Tensor:
    """Mean width of the central predictive interval, over all rows and outputs.

    Args:
        prediction: with its draws kept.
        level: probability of the interval.
        interval: lower and upper ends, (N, D) each, instead of the prediction's own.

    Returns: shape (). In units of y; lower is better at equal coverage.
    """
    must_be_prediction("interval_width", prediction)
    if has_classes(prediction):
        want = "a prediction of numbers, not of classes"
        raise TypeError(must("interval_width", "prediction", want, prediction))
    lower, upper = _interval("interval_width", prediction, level, interval)
    return (upper.to(torch.float64) - lower).mean().to(prediction.mean.dtype)


def _interval(owner: str, prediction: Prediction, level: float, given: Interval | None) -> Interval:
    if given is not None:
        shape = tuple(prediction.mean.shape)
        pair = isinstance(given, tuple) and len(given) == 2
        if not pair or not all(isinstance(end, Tensor) and end.shape == shape for end in given):
            want = f"a pair of tensors of the prediction's shape {shape}, or None"
            raise ValueError(must(owner, "interval", want, given))
        return given
    level = real_number(owner, "level", level, "in (0, 1)", above=0, below=1)
    must_be_finite(owner, "prediction.aleatoric", prediction.aleatoric)
    return prediction.interval(level)
