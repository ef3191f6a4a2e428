"""Confusion counts of pixels, and the accuracies and IoU of segmentations from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.metrics.targets import Labelled, labelled
from bayesdrop.predict import Prediction

__all__ = ["Confusion", "confusion", "iou", "mean_iou"]


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each class was predicted for each true class. Counts add up, with `+` or `sum`.

    A class that is neither in the labels nor predicted anywhere has no IoU: it is NaN, and left out of the
    mean (as in Long et al., 2015). A class that is predicted and not in the labels has an IoU of 0, which
    counts. A void label that is one of the classes has no IoU either.
    """

    counts: Tensor  #: (K, K) labels, void ones left out: row is the true class, column the predicted one
    ignore_index: int | None = None  #: the void label

    def __add__(self, other: Confusion) -> Confusion:
        if not isinstance(other, Confusion):
            return NotImplemented
        if self.counts.shape != other.counts.shape or self.ignore_index != other.ignore_index:
            ours, theirs = (f"{part.counts.shape[0]} with void {part.ignore_index}" for part in (self, other))
            raise ValueError(must("Confusion", "other", f"of classes as here, {ours}", theirs))
        return Confusion(self.counts + other.counts, self.ignore_index)

    def __radd__(self, other: int) -> Confusion:
        # sum() starts at 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def num_labels(self) -> int:
        """How many labels were counted."""
        return int(self.counts.sum())

    @property
    def iou(self) -> Tensor:
        """(K,) intersection over union of every class, in double precision.

        IoU_k = n_kk / (labels of k + predictions of k - n_kk)
        """
        right = self.counts.diagonal()
        return self._of_classes(right / (self.counts.sum(0) + self.counts.sum(1) - right).double())

    @property
    def mean_iou(self) -> Tensor:
        """Mean of `iou` over the classes that have one. Shape (), in [0, 1]; higher is better."""
        return self.iou.nanmean()

    @property
    def class_accuracy(self) -> Tensor:
        """(K,) share of the labels of every class that were found; NaN for those without labels."""
        return self._of_classes(self.counts.diagonal() / self.counts.sum(1).double())

    @property
    def class_precision(self) -> Tensor:
        """(K,) share of the predictions of every class that were right; NaN for those never predicted."""
        return self._of_classes(self.counts.diagonal() / self.counts.sum(0).double())

    @property
    def mean_class_accuracy(self) -> Tensor:
        """Mean of `class_accuracy` over the classes that have one: balanced accuracy. Shape (), in [0, 1]."""
        return self.class_accuracy.nanmean()

    @property
    def pixel_accuracy(self) -> Tensor:
        """Share of all labels that were right. Shape (), in [0, 1]; NaN if there are none."""
        return self.counts.diagonal().sum() / self.counts.sum().double()

    def _of_classes(self, value: Tensor) -> Tensor:
        void = self.ignore_index
        if void is not None and 0 <= void < value.shape[0]:
            value[void] = math.nan
        return value


def confusion(prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Confusion:
    """Count labels by their class and by the most probable class.

    Counts of batches add up to those of the data set, from which its IoU follows; the mean IoU of batches or
    images is another number, smaller if a class is rare.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels. All of them may be void.
        ignore_index: the void label.

    >>> from bayesdrop import Categorical
    >>> logits = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    >>> prediction = Prediction.from_draws(logits, Categorical())
    >>> confusion(prediction, torch.tensor([0, 1, 1, 9]), ignore_index=9).iou
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    return _counted(labelled("confusion", prediction, y, ignore_index, may_be_void=True))


def iou(prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """Intersection over union (Jaccard index) of every class, over all images together.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        ignore_index: a label that does not count; predictions there do not count either.

    Returns: (K,), in [0, 1]; NaN for classes that are neither in the labels nor predicted. Higher is better.
    """
    counted = _counted(labelled("iou", prediction, y, ignore_index))
    return counted.iou.to(prediction.mean.dtype)


def mean_iou(prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """Mean of `iou` over the classes that have one: mIoU. Shape (), in [0, 1]; higher is better.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        ignore_index: a label that does not count; predictions there do not count either.
    """
    counted = _counted(labelled("mean_iou", prediction, y, ignore_index))
    return counted.mean_iou.to(prediction.mean.dtype)


def _counted(known: Labelled) -> Confusion:
    classes = known.probs.shape[1]
    pairs = known.labels * classes + known.probs.argmax(1)
    counts = torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return Confusion(counts.cpu(), known.ignore_index)
