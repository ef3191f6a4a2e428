"""What is measured of one network's predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesdrop import metrics
from bayesdrop.calibration import ConformalClassifier, TemperatureScaling
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics.scores import ClassScore
from bayesdrop.predict import Prediction

__all__ = ["SCORES", "measured"]

SCORES: tuple[ClassScore, ...] = ("entropy", "mutual_information", "variation_ratio", "max_prob")
_POINTS = 100


def measured(
    inside: Prediction, outside: Mapping[str, Prediction], y: Tensor, level: float, splits: int
) -> dict[str, Any]:
    """Accuracy, detection, deferral, calibration and conformal coverage.

    Args:
        inside: of digits.
        outside: of other images, by the name of their set.
        y: the digits.
        level: coverage of conformal sets.
        splits: how often the digits are split into calibration and test.

    Returns: numbers by name, shares in per cent; those that begin with "curve" are what the picture shows.
    """
    found: dict[str, Any] = {"accuracy": 100 * float(metrics.accuracy(inside, y))}
    scores: list[ClassScore] = [s for s in SCORES if inside.num_draws > 1 or s in ("entropy", "max_prob")]
    for place, other in outside.items():
        for score in scores:
            found[f"auroc {place} {score}"] = float(metrics.ood_auroc(inside, other, score=score))
            found[f"fpr {place} {score}"] = float(metrics.ood_fpr(inside, other, score=score))
        found[f"curve entropy {place}"] = _histogram(other.entropy)
    found["curve entropy digits"] = _histogram(inside.entropy)
    risk = metrics.risk_coverage(inside, y).risk
    for share in (0, 1, 5, 10):
        found[f"deferred {share}"] = 100 * float(risk[round((1 - share / 100) * len(y)) - 1])
    places = torch.linspace(0.5, 1, _POINTS, dtype=torch.float64).mul(len(y)).round().long() - 1
    found["curve risk"] = 100 * risk[places]
    found.update(_scaled(inside, y, level, splits))
    return found


def _histogram(entropy: Tensor) -> Tensor:
    """(40,) share of the images in each of 40 equal bins of the entropy, from 0 to log 10."""
    counts = torch.histc(entropy.float(), bins=40, min=0, max=2.302586)
    return counts / counts.sum()


def _part(prediction: Prediction, rows: Tensor) -> Prediction:
    return Prediction.from_draws(prediction.draws[:, rows], Categorical(), shared=prediction.shared)


def _scaled(inside: Prediction, y: Tensor, level: float, splits: int) -> dict[str, Any]:
    """Calibration before and after scaling, and coverage of sets on the scaled predictive.

    The temperature is fitted on the first fifth, which takes no further part; the rest is split in two again
    and again. One split's coverage varies with its calibration set; the mean over splits is what is promised.
    """
    first = len(y) // 5
    fifth, rest = torch.arange(first), torch.arange(first, len(y))
    others, labels = _part(inside, rest), y[rest]
    found: dict[str, Any] = {"ece": 100 * float(metrics.expected_calibration_error(others, labels))}
    found["nll"] = -float(metrics.mean_log_likelihood(others, labels))
    found["curve before"] = _reliability(others, labels)
    scaled = others
    for over in ("mean", "draws"):
        scaling = TemperatureScaling(over).fit(_part(inside, fifth), y[fifth])
        scaled = scaling.apply(others)
        found[f"temperature {over}"] = scaling.temperature
        found[f"ece {over}"] = 100 * float(metrics.expected_calibration_error(scaled, labels))
        found[f"nll {over}"] = -float(metrics.mean_log_likelihood(scaled, labels))
    found["curve after"] = _reliability(scaled, labels)
    # Sets need the averaged probabilities alone.
    logits = scaled.probs.double().clamp_min(1e-300).log().unsqueeze(0)
    generator = torch.Generator().manual_seed(0)
    half = len(labels) // 2
    for score in ("lac", "aps", "raps"):
        coverage, size = [], []
        for split in range(splits):
            order = torch.randperm(len(labels), generator=generator)
            calibration, test = (
                Prediction.from_draws(logits[:, rows], Categorical()) for rows in (order[:half], order[half:])
            )
            conformal = ConformalClassifier(level, score=score)
            sets = conformal.fit(calibration, labels[order[:half]], seed=split).sets(test, seed=split)
            coverage.append(float(sets.coverage(labels[order[half:]])))
            size.append(float(sets.size.double().mean()))
        found[f"coverage {score}"] = 100 * sum(coverage) / splits
        found[f"size {score}"] = sum(size) / splits
        found[f"curve coverage {score}"] = 100 * torch.tensor(coverage)
    return found


def _reliability(prediction: Prediction, y: Tensor) -> Tensor:
    """(2, 10) mean confidence and accuracy of the 500 least sure images, in ten groups of equal size."""
    confidence, order = prediction.probs.amax(1).sort()
    right = (prediction.label == y)[order].to(confidence.dtype)
    # The others are sure and right: bins of them would show nothing.
    pairs = [
        torch.stack([a.mean(), b.mean()])
        for a, b in zip(confidence[:500].chunk(10), right[:500].chunk(10), strict=True)
    ]
    return torch.stack(pairs, 1)
