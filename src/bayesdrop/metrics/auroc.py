"""How well uncertainty separates wrong predictions from right ones, and rows outside from those inside."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesdrop.errors import must, real_number
from bayesdrop.metrics.scores import By, ClassScore, Score, uncertainty
from bayesdrop.metrics.targets import has_classes, labelled, must_be_prediction
from bayesdrop.predict import Prediction

__all__ = ["misclassification_auroc", "ood_auroc", "ood_fpr"]


def misclassification_auroc(
    prediction: Prediction,
    y: Tensor,
    *,
    score: ClassScore = "entropy",
    ignore_index: int | None = None,
) -> Tensor:
    """Chance that a wrong prediction is less sure than a right one, ties counting half.

    Args:
        prediction: of classes, probabilities (N, K, ...).
        y: (N, ...) labels; at least one right and one wrong.
        score: the measure of uncertainty, see `uncertainty`.
        ignore_index: a label that does not count.

    Returns: shape (), in [0, 1]: 0.5 is chance; higher is better.
    Reference: Hendrycks & Gimpel (2017) (score "max_prob").
    """
    owner = "misclassification_auroc"
    known = labelled(owner, prediction, y, ignore_index)
    value = uncertainty(prediction, score, owner=owner)[known.valid]
    right = known.right
    if bool(right.all()) or not bool(right.any()):
        got = f"all {right.numel()} {'right' if bool(right.all()) else 'wrong'}"
        raise ValueError(must(owner, "y", "such that some predictions are right and some wrong", got))
    return _auroc(value[~right], value[right]).to(prediction.mean.dtype)


def ood_auroc(
    inside: Prediction, outside: Prediction, *, score: Score | None = None, by: By = "label"
) -> Tensor:
    """Chance that a row from outside the distribution is less sure than one from inside, ties counting half.

    Args:
        inside: of rows like the training data.
        outside: of rows that are not.
        score: see `uncertainty`; "entropy" for classes and "std" for numbers if None.
        by: what is ranked: every "label" of rows with several, as pixels or steps of a sequence, or the
            "row", by the mean over its labels.

    Returns: shape (), in [0, 1]: 0.5 is chance; higher is better.
    """
    within, without = _both("ood_auroc", inside, outside, score, by)
    return _auroc(without, within).to(inside.mean.dtype)


def ood_fpr(
    inside: Prediction,
    outside: Prediction,
    *,
    score: Score | None = None,
    tpr: float = 0.95,
    by: By = "label",
) -> Tensor:
    """Share of rows from outside that pass for inside, when a share `tpr` of those inside passes.

    A row passes if its score is at most the smallest one that lets `tpr` of the rows inside pass. Inside
    is the positive class here, as in the papers' "FPR at 95% TPR".

    Args:
        inside: of rows like the training data.
        outside: of rows that are not.
        score: see `uncertainty`; "entropy" for classes and "std" for numbers if None.
        tpr: in (0, 1].
        by: what is ranked, see `ood_auroc`.

    Returns: shape (), in [0, 1]; lower is better.
    Reference: Liang, Li & Srikant (2018).
    """
    tpr = real_number("ood_fpr", "tpr", tpr, "in (0, 1]", above=0, at_most=1)
    within, without = _both("ood_fpr", inside, outside, score, by)
    # 0.07 * 100 is 7.000000000000001, of which the ceiling would be 8.
    needed = max(1, math.ceil(round(tpr * within.numel(), 6)))
    limit = within.kthvalue(needed).values
    return (without <= limit).to(torch.float64).mean().to(inside.mean.dtype)


def _both(
    owner: str, inside: Prediction, outside: Prediction, score: Score | None, by: By
) -> tuple[Tensor, Tensor]:
    must_be_prediction(owner, inside, "inside")
    must_be_prediction(owner, outside, "outside")
    if has_classes(inside) != has_classes(outside):
        want = "of classes as `inside` is" if has_classes(inside) else "of numbers as `inside` is"
        raise TypeError(must(owner, "outside", want, outside))
    values = [uncertainty(part, score, by=by, owner=owner).flatten() for part in (inside, outside)]
    for name, value in zip(("inside", "outside"), values, strict=True):
        if not value.numel():
            raise ValueError(must(owner, name, "at least one value", value))
    return values[0], values[1]


def _auroc(positive: Tensor, negative: Tensor) -> Tensor:
    """P(positive > negative) + P(equal) / 2 of a pair at random: the Mann-Whitney statistic."""
    ordered = negative.sort().values
    below = torch.searchsorted(ordered, positive).sum()
    not_above = torch.searchsorted(ordered, positive, right=True).sum()
    return (below + not_above).to(torch.float64) / (2 * positive.numel() * negative.numel())
