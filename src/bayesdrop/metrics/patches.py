"""PAvPU: are predictions accurate where they are certain, and uncertain where they are wrong?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, real_number, real_numbers, whole_number
from bayesdrop.metrics.scores import uncertainty
from bayesdrop.metrics.targets import check_count, labelled, must_have_classes
from bayesdrop.predict import Prediction

__all__ = ["PAvPU", "entropy_range", "pavpu"]


@dataclass(frozen=True, eq=False)
class PAvPU:
    """Accuracy against uncertainty of patches, at M thresholds of the entropy.

    Counts of parts of a data set add up, with `+` or `sum`, where the thresholds are the same.
    """

    thresholds: Tensor  #: (M,) nats
    counts: Tensor  #: (M, 4) patches: accurate and certain, accurate and not, inaccurate and certain, and not

    def __add__(self, other: PAvPU) -> PAvPU:
        if not isinstance(other, PAvPU):
            return NotImplemented
        if not torch.equal(self.thresholds, other.thresholds):
            hint = "Give all parts one `entropy_range`, or one `threshold`."
            got = other.thresholds.tolist()
            raise ValueError(must("PAvPU", "other", "of the same thresholds", got, hint))
        return PAvPU(self.thresholds, self.counts + other.counts)

    def __radd__(self, other: int) -> PAvPU:
        # sum() starts at 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def accurate_if_certain(self) -> Tensor:
        """(M,) p(accurate | certain); NaN where no patch is certain."""
        ac, _, ic, _ = self.counts.unbind(1)
        return self._share(ac, ac + ic)

    @property
    def uncertain_if_inaccurate(self) -> Tensor:
        """(M,) p(uncertain | inaccurate); NaN if no patch is inaccurate."""
        _, _, ic, iu = self.counts.unbind(1)
        return self._share(iu, ic + iu)

    @property
    def pavpu(self) -> Tensor:
        """(M,) share of patches that are accurate and certain, or inaccurate and uncertain."""
        ac, _, _, iu = self.counts.unbind(1)
        return self._share(ac + iu, self.counts.sum(1))

    @property
    def mean(self) -> Tensor:
        """Mean of `pavpu` over the thresholds. Shape (); higher is better."""
        return self.pavpu.mean()

    def _share(self, part: Tensor, whole: Tensor) -> Tensor:
        return (part.to(torch.float64) / whole).to(self.thresholds.dtype)


def pavpu(
    prediction: Prediction,
    y: Tensor,
    *,
    threshold: float | None = None,
    num_thresholds: int = 11,
    patch: int = 1,
    stride: int | None = None,
    entropy_range: tuple[float, float] | Prediction | None = None,
    ignore_index: int | None = None,
) -> PAvPU:
    """Patch accuracy against patch uncertainty.

        p(accurate | certain)     = n_ac / (n_ac + n_ic)
        p(uncertain | inaccurate) = n_iu / (n_ic + n_iu)
        PAvPU                     = (n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu)

    A patch is accurate if more than half of its labels are right, and uncertain if its mean predictive
    entropy is above the threshold. Patches start at the first position and every `stride` after it, until one
    reaches the end; the last may be smaller, and all have the same weight. They do not overlap by default;
    `stride=1` slides a window over every position, as the metric was first proposed. Void labels are left
    out of both means, and patches of void labels alone are left out. Without positions every row is a patch.

    The thresholds are PredEnt_min + t (PredEnt_max - PredEnt_min), for t evenly spaced from 0 to 1. With the
    range of the data themselves no patch is above the threshold of t = 1, where PAvPU is the accuracy of
    patches.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels.
        threshold: one threshold in nats instead, as the mean entropy of a validation set.
        num_thresholds: M, the number of t.
        patch: w, the side of a patch (w x w for images).
        stride: from the start of a patch to that of the next, from 1 to w; None for w, patches side by side.
        entropy_range: PredEnt_min and PredEnt_max; or the prediction of a validation set to take them from,
            void pixels included (the function `entropy_range` leaves these out). None: the range of the
            labels that are not void here.
        ignore_index: the void label.

    Reference: Mukhoti & Gal (2018); Boluki et al. (2020), Eq. 9 and section 3.2 (PAvgPU).
    """
    check_count("pavpu", "patch", patch)
    step = patch if stride is None else whole_number("pavpu", "stride", stride, at_least=1, at_most=patch)
    known = labelled("pavpu", prediction, y, ignore_index)
    if patch > 1 and y.dim() < 2:
        raise ValueError(must("pavpu", "patch", "1 for labels without positions", patch))
    entropy = uncertainty(prediction, "entropy", owner="pavpu")
    if threshold is None:
        thresholds = _thresholds(entropy[known.valid], num_thresholds, entropy_range)
    elif entropy_range is not None:
        raise ValueError(must("pavpu", "entropy_range", "None when a threshold is given", entropy_range))
    else:
        threshold = real_number("pavpu", "threshold", threshold, "finite", at_least=-1e30, at_most=1e30)
        thresholds = torch.tensor([threshold], dtype=torch.float64)

    right = torch.zeros_like(entropy).masked_scatter(known.valid, known.right.to(entropy.dtype))
    size = _pooled(known.valid.to(entropy.dtype), patch, step)
    filled = size > 0
    accurate = (_pooled(right, patch, step) > 0.5 * size)[filled]
    level = _pooled(torch.where(known.valid, entropy, 0), patch, step)[filled] / size[filled]
    # A mean may round to above the largest value, so that equal entropies would exceed their maximum.
    largest = _pooled(torch.where(known.valid, entropy, -math.inf), patch, step, largest=True)[filled]
    level = torch.minimum(level, largest)

    ac = torch.searchsorted(level[accurate].sort().values, thresholds, right=True)
    ic = torch.searchsorted(level[~accurate].sort().values, thresholds, right=True)
    au, iu = int(accurate.sum()) - ac, int((~accurate).sum()) - ic
    return PAvPU(thresholds.to(prediction.mean.dtype), torch.stack((ac, au, ic, iu), 1))


def entropy_range(
    prediction: Prediction, y: Tensor | None = None, *, ignore_index: int | None = None
) -> tuple[float, float]:
    """The smallest and the largest predictive entropy of a validation set, for `pavpu`.

    For a set in several parts, take the smallest of the first numbers and the largest of the second.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels; None for the entropies of all pixels.
        ignore_index: the void label, whose entropies are left out.
    """
    must_have_classes("entropy_range", prediction)
    if y is None and ignore_index is not None:
        raise ValueError(must("entropy_range", "ignore_index", "None without labels", ignore_index))
    entropy = uncertainty(prediction, "entropy", owner="entropy_range")
    if y is not None:
        entropy = entropy[labelled("entropy_range", prediction, y, ignore_index).valid]
    return float(entropy.min()), float(entropy.max())


def _thresholds(
    entropy: Tensor, num_thresholds: int, entropy_range: tuple[float, float] | Prediction | None
) -> Tensor:
    num_thresholds = whole_number("pavpu", "num_thresholds", num_thresholds, at_least=2)
    if isinstance(entropy_range, Prediction):
        must_have_classes("pavpu", entropy_range)
        entropy = uncertainty(entropy_range, "entropy", owner="pavpu")
        entropy_range = None
    if entropy_range is None:
        low, high = float(entropy.min()), float(entropy.max())
    else:
        want = "two finite numbers, the smaller first"
        ends = real_numbers("pavpu", "entropy_range", entropy_range, want)
        if ends.shape != (2,) or not bool(torch.isfinite(ends).all()) or ends[0] > ends[1]:
            raise ValueError(must("pavpu", "entropy_range", want, entropy_range))
        low, high = ends.tolist()
    # lerp returns its ends exactly, where low + 1 * (high - low) may round to below `high`.
    ends = torch.tensor([low, high], dtype=torch.float64)
    return torch.lerp(ends[0], ends[1], torch.linspace(0, 1, num_thresholds, dtype=torch.float64))


def _pooled(value: Tensor, size: int, step: int, *, largest: bool = False) -> Tensor:
    """Sum, or maximum, over windows of `size` positions along every axis but the first."""
    empty = -math.inf if largest else 0.0
    for axis in range(1, value.dim()):
        length = value.shape[axis]
        count = 1 + math.ceil(max(0, length - size) / step)
        padding = [0, 0] * (value.dim() - 1 - axis) + [0, max(0, (count - 1) * step + size - length)]
        windows = torch.nn.functional.pad(value, padding, value=empty).unfold(axis, size, step)
        value = windows.amax(-1) if largest else windows.sum(-1)
    return value
