"""Scores of a network on frames: these pass a few at a time, and their counts are added up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop import metrics
from bayesdrop.data.camvid import CAMVID_CLASSES, CAMVID_VOID
from bayesdrop.experiments.camvid.frames import as_inputs
from bayesdrop.experiments.camvid.loss import LIKELIHOOD
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.predict import Prediction, predict

__all__ = ["confusion_by_image", "find_entropy_range", "make_maps", "mean_iou_by_image", "score"]

#: frames that pass through a network at a time
_FRAMES = 8
_PATCH, _THRESHOLDS = 2, 21


def score(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    num_draws: int | None,
    seed: int,
    entropy_range: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """All measures of a network on some frames.

    Args:
        net: in eval mode.
        x: (N, 3, H, W) bytes.
        y: (N, H, W) labels.
        num_draws: T; None for the single pass without noise.
        seed: of the draws.
        entropy_range: the thresholds of PAvPU span it; without it there is no PAvPU.

    Returns: `iou` (K,), NaN for classes that are nowhere, and `mean_iou`, both over all frames;
    `mean_iou_by_image`; `accuracy` of pixels; `log_likelihood` (nats a pixel); `calibration`, the RMSE of the
    reliability diagram of all classes, and the diagram's `confidence`, `frequency` and `count` by bin;
    `pavpu` by threshold, and `mean_pavpu`.
    """
    counts, curves, patches = [], [], []
    total = 0.0
    for prediction, labels in _predictions(net, x, y, num_draws, seed):
        counts.append(confusion_by_image(prediction.label, labels))
        curves.append(metrics.class_reliability_curve(prediction, labels, num_bins=15))
        total += float(metrics.mean_log_likelihood(prediction, labels)) * int(counts[-1].sum())
        if entropy_range is not None:
            some = metrics.pavpu(
                prediction, labels, patch=_PATCH, num_thresholds=_THRESHOLDS, entropy_range=entropy_range,
                ignore_index=CAMVID_VOID,
            )  # fmt: skip
            patches.append(some)
    by_image = torch.cat(counts)
    whole = metrics.Confusion(by_image.sum(0), CAMVID_VOID)
    curve: Any = sum(curves)
    found = {
        "iou": whole.iou,
        "mean_iou": float(whole.mean_iou),
        "mean_iou_by_image": mean_iou_by_image(by_image),
        "accuracy": float(whole.pixel_accuracy),
        "log_likelihood": total / whole.num_labels,
        "calibration": float(curve.rms_error()),
        "confidence": curve.confidence,
        "frequency": curve.accuracy,
        "count": curve.count,
    }
    if patches:
        certain: Any = sum(patches)
        found |= {"pavpu": certain.pavpu, "mean_pavpu": float(certain.mean)}
    return found


def find_entropy_range(
    net: nn.Module, x: Tensor, y: Tensor, *, num_draws: int | None, seed: int
) -> tuple[float, float]:
    """The smallest and the largest entropy of pixels that are not void. Arguments as for `score`."""
    ends = [
        metrics.entropy_range(prediction, labels, ignore_index=CAMVID_VOID)
        for prediction, labels in _predictions(net, x, y, num_draws, seed)
    ]
    return min(low for low, _ in ends), max(high for _, high in ends)


def make_maps(
    net: nn.Module, x: Tensor, y: Tensor, count: int, *, num_draws: int, seed: int
) -> dict[str, Any]:
    """What the network says of `count` frames, evenly spread; the frames themselves are not among the maps.

    Returns, (count, H, W) each: `map: label`, the most probable class; `map: right`, 1 where it is the true
    one, 0 where not, 2 where void; `map: noise` and `map: model`, expected entropy and mutual information in
    nats.
    """
    chosen = torch.linspace(0, len(x) - 1, count + 2).round().long()[1:-1]
    found: dict[str, list[Any]] = {"label": [], "right": [], "noise": [], "model": []}
    for prediction, labels in _predictions(net, x[chosen], y[chosen], num_draws, seed):
        right = torch.where(labels == CAMVID_VOID, 2, (prediction.label == labels).long())
        found["label"].append(prediction.label.byte().numpy())
        found["right"].append(right.byte().numpy())
        found["noise"].append(prediction.expected_entropy.numpy().round(2))
        found["model"].append(prediction.mutual_information.numpy().round(3))
    return {f"map: {name}": np.concatenate(parts) for name, parts in found.items()}


def confusion_by_image(predicted: Tensor, labels: Tensor) -> Tensor:
    """(N, K, K) how many pixels of each class (row) were given each class (column); void pixels left out."""
    classes = len(CAMVID_CLASSES)
    known = labels != CAMVID_VOID
    image = torch.arange(len(labels)).reshape(-1, 1, 1).expand_as(labels)
    triples = (image[known] * classes + labels[known]) * classes + predicted[known]
    counts = torch.bincount(triples, minlength=len(labels) * classes * classes)
    return counts.reshape(len(labels), classes, classes)


def mean_iou_by_image(counts: Tensor) -> float:
    """The mean over images of each one's own mean IoU, which is over the classes that the image has.

    Boluki et al. print this; it is not the IoU over the data set.

    Args:
        counts: (N, K, K) of `confusion_by_image`.
    """
    values = []
    for one in counts:
        ious = metrics.Confusion(one).iou
        values.append(ious[one.sum(1) > 0].mean())
    return float(torch.stack(values).nanmean())


def _predictions(
    net: nn.Module, x: Tensor, y: Tensor, num_draws: int | None, seed: int
) -> Iterator[tuple[Prediction, Tensor]]:
    """Predictions and labels of a few frames at a time; draws are the same functions for all frames."""
    for frames, labels in zip(torch.split(x, _FRAMES), torch.split(y, _FRAMES), strict=True):
        inputs = as_inputs(frames)
        if num_draws is None:
            yield one_pass(net, inputs, LIKELIHOOD), labels
        else:
            made = predict(
                net, inputs, num_draws=num_draws, seed=seed, likelihood=LIKELIHOOD, keep_draws=False
            )
            yield made, labels
