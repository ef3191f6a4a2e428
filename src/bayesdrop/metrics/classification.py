"""Accuracy and Brier score of class probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.metrics.targets import labelled
from bayesdrop.predict import Prediction

__all__ = ["accuracy", "brier"]


def accuracy(prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """Share of labels that are the most probable class.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        ignore_index: a label that does not count.

    Returns: shape (), in [0, 1]; higher is better.
    """
    right = labelled("accuracy", prediction, y, ignore_index).right
    return right.to(torch.float64).mean().to(prediction.mean.dtype)


def brier(prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """Brier score: squared distance of the probabilities from the label, summed over classes.

        (1/N) sum_n sum_k (p_nk - 1[y_n = k])^2

    For two classes this is twice the score that counts the positive class alone.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        ignore_index: a label that does not count.

    Returns: shape (), in [0, 2]; lower is better.
    Reference: Brier (1950).
    """
    known = labelled("brier", prediction, y, ignore_index)
    # |p - e_y|^2 = |p|^2 - 2 p_y + 1 would need no copy, but loses digits where p_y is near 1.
    distance = known.probs.scatter_add(
        1, known.labels.unsqueeze(1), known.probs.new_full((known.labels.shape[0], 1), -1.0)
    )
    return distance.square().sum(1).mean().to(prediction.mean.dtype)
