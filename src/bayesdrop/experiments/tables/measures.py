"""How good a contender's predictions of test rows are: the same functions for all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.likelihoods import Categorical, HeteroscedasticGaussian
from bayesdrop.metrics import (
    accuracy,
    brier,
    crps,
    expected_calibration_error,
    interval_coverage,
    interval_width,
    mean_log_likelihood,
    misclassification_auroc,
    r2,
    rmse,
)
from bayesdrop.predict import Prediction

__all__ = ["METRICS", "Metric", "class_measures", "gaussian_prediction", "number_measures"]

Array = NDArray[np.float64]

#: the least probability that a class is taken to have, for all contenders: no score is infinite
_LEAST = 1e-9


@dataclass(frozen=True)
class Metric:
    """A number that a contender is ranked by, or that is shown."""

    key: str
    title: str
    kind: str  #: "regression" or "classification"
    better: int  #: 1 if higher is better, -1 if lower is, 0 if it is not ranked


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("log_likelihood", "log-likelihood (nats)", "regression", 1),
        Metric("crps", "CRPS", "regression", -1),
        Metric("rmse", "RMSE", "regression", -1),
        Metric("r2", "R2", "regression", 0),
        Metric("coverage", "coverage of 95 % intervals", "regression", 0),
        Metric("width", "width of 95 % intervals", "regression", 0),
        Metric("log_loss", "log-loss (nats)", "classification", -1),
        Metric("brier", "Brier score", "classification", -1),
        Metric("accuracy", "accuracy", "classification", 1),
        Metric("ece", "calibration error", "classification", -1),
        Metric("error_auroc", "AUROC of errors", "classification", 0),
    )
}


def gaussian_prediction(mean: Array, std: Array) -> Prediction:
    """A Gaussian for every row, as a Prediction of one draw.

    Args:
        mean: (N,).
        std: (N,), above 0.
    """
    output = np.stack([mean, 2 * np.log(std)], axis=-1)
    return Prediction.from_draws(torch.from_numpy(output)[None], HeteroscedasticGaussian())


def number_measures(
    parts: Iterable[Prediction],
    y: Array,
    lower: Array | None,
    upper: Array | None,
    *,
    level: float,
    spread: float,
) -> dict[str, float | None]:
    """Measures of predicted numbers.

    Args:
        parts: predictions of the rows, some rows at a time, in order.
        y: (N,) targets.
        lower: (N,) lower ends of intervals; the predictions' own if None.
        upper: (N,) upper ends.
        level: of the predictions' own intervals.
        spread: what widths are divided by: the width of an interval that holds `level` of the training
            targets.
    """
    target = torch.tensor(y)[:, None]
    means, ends, log_prob, score, done = [], [], 0.0, 0.0, 0
    for part in parts:
        own = target[done : done + len(part)]
        done += len(part)
        log_prob += float(part.log_prob(own).double().sum())
        score += float(crps(part, own)) * len(own)
        means.append(part.mean.double())
        if lower is None:
            ends.append(part.interval(level))
    mean = Prediction.from_draws(torch.cat(means)[None])
    if lower is None or upper is None:
        interval = (
            torch.cat([one for one, _ in ends]).double(),
            torch.cat([one for _, one in ends]).double(),
        )
    else:
        interval = (torch.from_numpy(lower)[:, None], torch.from_numpy(upper)[:, None])
    return _plain(
        {
            "log_likelihood": log_prob / len(y),
            "crps": score / len(y),
            "rmse": rmse(mean, target),
            "r2": r2(mean, target),
            "coverage": interval_coverage(mean, target, interval=interval),
            "width": interval_width(mean, interval=interval) / spread,
        }
    )


def class_measures(probs: Array, y: NDArray[np.int64]) -> dict[str, float | None]:
    """Measures of class probabilities.

    Args:
        probs: (N, K); those below 1e-9 count as 1e-9.
        y: (N,) places of the labels.
    """
    known = np.clip(probs, _LEAST, None)
    logits = torch.from_numpy(np.log(known / known.sum(1, keepdims=True)))
    prediction, target = Prediction.from_draws(logits[None], Categorical()), torch.tensor(y)
    right = float(accuracy(prediction, target))
    return _plain(
        {
            "log_loss": -mean_log_likelihood(prediction, target),
            "brier": brier(prediction, target),
            "accuracy": right,
            "ece": expected_calibration_error(prediction, target),
            # Not defined where all are right, or all wrong.
            "error_auroc": misclassification_auroc(prediction, target) if 0 < right < 1 else math.nan,
        }
    )


def _plain(found: dict[str, Any]) -> dict[str, float | None]:
    numbers = {name: float(value) for name, value in found.items()}
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
