"""Calibration of class probabilities: how often events of probability c happen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bayesdrop.errors import must, must_be_flag
from bayesdrop.metrics.targets import check_count, labelled
from bayesdrop.predict import Prediction

__all__ = [
    "ReliabilityCurve",
    "class_calibration_error",
    "class_reliability_curve",
    "expected_calibration_error",
    "reliability_curve",
    "rms_calibration_error",
]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Mean confidence and observed frequency of B bins of equal width. NaN in bins that are empty.

    Curves of parts of a data set add up to that of the whole, with `+` or `sum`.
    """

    confidence: Tensor  #: (B,) mean predicted probability
    accuracy: Tensor  #: (B,) observed frequency
    count: Tensor  #: (B,) how many are in the bin
    edges: Tensor  #: (B + 1,) the bins are (edges[b], edges[b + 1]], and 0 is in the first

    def __add__(self, other: ReliabilityCurve) -> ReliabilityCurve:
        if not isinstance(other, ReliabilityCurve):
            return NotImplemented
        if not torch.equal(self.edges, other.edges):
            want = f"a curve of the same {len(self.count)} bins"
            raise ValueError(must("ReliabilityCurve", "other", want, f"one of {len(other.count)}"))
        count = self.count + other.count

        def joined(ours: Tensor, theirs: Tensor) -> Tensor:
            sums = [
                torch.where(part.count > 0, value.double() * part.count, 0)
                for part, value in ((self, ours), (other, theirs))
            ]
            return ((sums[0] + sums[1]) / count).to(ours.dtype)

        return ReliabilityCurve(
            joined(self.confidence, other.confidence),
            joined(self.accuracy, other.accuracy),
            count,
            self.edges,
        )

    def __radd__(self, other: int) -> ReliabilityCurve:
        # sum() starts at 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def rms_error(self, *, weighted: bool = False) -> Tensor:
        """Root mean square distance of the curve from the diagonal, over the bins that are not empty.

        Args:
            weighted: weight bins by their counts; otherwise all bins count the same, as points of a plot.

        Returns: shape (), in [0, 1]; lower is better.
        """
        must_be_flag("ReliabilityCurve.rms_error", weighted=weighted)
        gap, share = _gaps(self)
        if not weighted:
            filled = (self.count > 0).to(torch.float64)
            share = filled / filled.sum()
        return (share * gap.square()).sum().sqrt().to(self.accuracy.dtype)


def reliability_curve(
    prediction: Prediction, y: Tensor, *, num_bins: int = 15, ignore_index: int | None = None
) -> ReliabilityCurve:
    """Accuracy against confidence, the probability of the most probable class.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        num_bins: B bins of equal width in [0, 1].
        ignore_index: a label that does not count.

    Reference: Guo et al. (2017).
    """
    return _top_curve("reliability_curve", prediction, y, num_bins, ignore_index)


def expected_calibration_error(
    prediction: Prediction, y: Tensor, *, num_bins: int = 15, ignore_index: int | None = None
) -> Tensor:
    """ECE: distance of accuracy from confidence, averaged over labels, bin by bin.

        sum_b (n_b / N) |accuracy_b - confidence_b|

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        num_bins: bins of equal width in [0, 1].
        ignore_index: a label that does not count.

    Returns: shape (), in [0, 1]; lower is better.
    Reference: Guo et al. (2017).
    """
    curve = _top_curve("expected_calibration_error", prediction, y, num_bins, ignore_index)
    gap, share = _gaps(curve)
    return (share * gap.abs()).sum().to(prediction.mean.dtype)


def rms_calibration_error(
    prediction: Prediction, y: Tensor, *, num_bins: int = 15, ignore_index: int | None = None
) -> Tensor:
    """Root mean square distance of accuracy from confidence; at least `expected_calibration_error`.

        sqrt sum_b (n_b / N) (accuracy_b - confidence_b)^2

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        num_bins: bins of equal width in [0, 1].
        ignore_index: a label that does not count.

    Returns: shape (), in [0, 1]; lower is better.
    """
    curve = _top_curve("rms_calibration_error", prediction, y, num_bins, ignore_index)
    return curve.rms_error(weighted=True)


def class_reliability_curve(
    prediction: Prediction, y: Tensor, *, num_bins: int = 15, ignore_index: int | None = None
) -> ReliabilityCurve:
    """Frequency against probability, where each class of each label is a separate event.

    `reliability_curve` uses the most probable class only. Here N labels give N K pairs of a probability p_nk
    and whether y_n = k.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        num_bins: B bins of equal width in [0, 1].
        ignore_index: a label that does not count.

    Reference: Kendall & Gal (2017), whose calibration plot of segmentations this is: all pixels and all
    classes. Its RMSE is `curve.rms_error()`, or `class_calibration_error`.
    """
    return _class_curve("class_reliability_curve", prediction, y, num_bins, ignore_index)


def class_calibration_error(
    prediction: Prediction,
    y: Tensor,
    *,
    num_bins: int = 15,
    weighted: bool = False,
    ignore_index: int | None = None,
) -> Tensor:
    """Root mean square distance of `class_reliability_curve` from the diagonal.

        sqrt mean_b (frequency_b - probability_b)^2          over the bins b that are not empty

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        num_bins: bins of equal width in [0, 1].
        weighted: weight bins by their counts. Most pairs have a probability near 0, close to the diagonal, so
            that the weighted error is much smaller; the plot has one point a bin.
        ignore_index: a label that does not count.

    Returns: shape (), in [0, 1]; lower is better.
    """
    must_be_flag("class_calibration_error", weighted=weighted)
    curve = _class_curve("class_calibration_error", prediction, y, num_bins, ignore_index)
    return curve.rms_error(weighted=weighted)


def _top_curve(
    owner: str, prediction: Prediction, y: Tensor, num_bins: int, ignore_index: int | None
) -> ReliabilityCurve:
    check_count(owner, "num_bins", num_bins)
    known = labelled(owner, prediction, y, ignore_index)
    return _binned(known.probs.amax(1), known.right, num_bins, prediction.mean.dtype)


def _class_curve(
    owner: str, prediction: Prediction, y: Tensor, num_bins: int, ignore_index: int | None
) -> ReliabilityCurve:
    check_count(owner, "num_bins", num_bins)
    known = labelled(owner, prediction, y, ignore_index)
    truth = one_hot(known.labels, known.probs.shape[1])
    return _binned(known.probs.flatten(), truth.flatten(), num_bins, prediction.mean.dtype)


def _binned(probability: Tensor, happened: Tensor, num_bins: int, dtype: torch.dtype) -> ReliabilityCurve:
    # Edges are rounded to the precision of the probabilities, so that 0.2 is on the edge 0.2.
    edges = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64).to(dtype)
    index = torch.bucketize(probability, edges[1:-1].to(torch.float64))
    count = torch.bincount(index, minlength=num_bins)
    confidence = torch.bincount(index, probability, num_bins) / count
    frequency = torch.bincount(index, happened.to(torch.float64), num_bins) / count
    return ReliabilityCurve(confidence.to(dtype), frequency.to(dtype), count, edges)


def _gaps(curve: ReliabilityCurve) -> tuple[Tensor, Tensor]:
    """Accuracy minus confidence, 0 in empty bins, and the share of each bin."""
    gap = curve.accuracy.to(torch.float64) - curve.confidence.to(torch.float64)
    share = curve.count / curve.count.sum(dtype=torch.float64)
    return torch.where(curve.count > 0, gap, 0), share
