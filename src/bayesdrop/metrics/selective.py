"""Selective prediction: the risk that remains when the least sure predictions are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from bayesdrop.errors import is_one_of, must, must_be_tensor
from bayesdrop.likelihoods import Bernoulli, Categorical
from bayesdrop.metrics.likelihood import point_log_likelihood
from bayesdrop.metrics.scores import Score, uncertainty
from bayesdrop.metrics.targets import has_classes, labelled, must_be_prediction, regression_targets
from bayesdrop.predict import Prediction

__all__ = ["Loss", "RiskCoverage", "area_under_risk_coverage", "risk_coverage"]

Loss = Literal["error", "squared_error", "absolute_error", "negative_log_likelihood"]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Mean loss of the surest predictions, for every number of them."""

    coverage: Tensor  #: (N,) 1/N, 2/N, ..., 1
    risk: Tensor  #: (N,) mean loss of that share

    @classmethod
    def from_losses(cls, score: Tensor, loss: Tensor) -> RiskCoverage:
        """The curve of rows whose scores and losses are known; see `risk_coverage`.

        Args:
            score: (N,) how unsure each prediction is.
            loss: (N,) loss of each prediction.
        """
        owner = "RiskCoverage.from_losses"
        for name, value in (("score", score), ("loss", loss)):
            must_be_tensor(owner, name, value, floating=True)
        if bool(score.isnan().any()):
            raise ValueError(must(owner, "score", "numbers", f"{int(score.isnan().sum())} NaN"))
        if score.dim() != 1 or score.shape != loss.shape or not score.numel():
            want = "(N,) as `score` is, with N at least 1"
            raise ValueError(must(owner, "loss", want, (tuple(score.shape), tuple(loss.shape))))
        # Each of a group of equal scores gets the group's mean loss: its expectation in a random order.
        _, group, size = torch.unique(score, return_inverse=True, return_counts=True)
        mean_loss = torch.bincount(group, loss.to(torch.float64), size.numel()) / size
        number = torch.arange(1, loss.numel() + 1, dtype=torch.float64, device=loss.device)
        return cls(number / loss.numel(), mean_loss.repeat_interleave(size).cumsum(0) / number)


def risk_coverage(
    prediction: Prediction,
    y: Tensor,
    *,
    score: Score | None = None,
    loss: Loss | None = None,
    ignore_index: int | None = None,
) -> RiskCoverage:
    """Mean loss of the n surest predictions, for n = 1 to N.

        risk_n = (1/n) sum of the losses of the n predictions of lowest score

    Among predictions of equal score none comes first: the risk is the mean over all their orders, and
    does not depend on the order of the rows.

    Args:
        prediction: of classes or numbers.
        y: targets.
        score: see `uncertainty`; "entropy" for classes and "std" for numbers if None.
        loss: "error" (classes; the default there), "squared_error" (numbers; the default there, a mean
            over the outputs of a row), "absolute_error" (numbers) or "negative_log_likelihood".
        ignore_index: a label that does not count.

    Reference: Geifman & El-Yaniv (2017).
    """
    return _risk_coverage("risk_coverage", prediction, y, score, loss, ignore_index)


def area_under_risk_coverage(
    prediction: Prediction,
    y: Tensor,
    *,
    score: Score | None = None,
    loss: Loss | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """AURC: the mean of `risk_coverage` over all coverages.

        (1/N) sum_n risk_n

    Args:
        prediction: of classes or numbers.
        y: targets.
        score: as in `risk_coverage`.
        loss: as in `risk_coverage`.
        ignore_index: a label that does not count.

    Returns: shape (). In units of the loss; lower is better. For a random score, its expectation is the mean
    loss.
    Reference: Geifman, Uziel & El-Yaniv (2019).
    """
    curve = _risk_coverage("area_under_risk_coverage", prediction, y, score, loss, ignore_index)
    return curve.risk.to(torch.float64).mean().to(prediction.mean.dtype)


def _risk_coverage(
    owner: str,
    prediction: Prediction,
    y: Tensor,
    score: Score | None,
    loss: Loss | None,
    ignore_index: int | None,
) -> RiskCoverage:
    must_be_prediction(owner, prediction)
    losses = _losses(owner, prediction, y, loss, ignore_index)
    value = uncertainty(prediction, score, owner=owner)
    if ignore_index is not None or isinstance(prediction.likelihood, Categorical | Bernoulli):
        value = value[labelled(owner, prediction, y, ignore_index).valid]
    curve = RiskCoverage.from_losses(value.flatten(), losses)
    dtype = prediction.mean.dtype
    return RiskCoverage(curve.coverage.to(dtype), curve.risk.to(dtype))


def _losses(
    owner: str, prediction: Prediction, y: Tensor, loss: Loss | None, ignore_index: int | None
) -> Tensor:
    """(M,) one loss a row or label, in double precision."""
    if loss is not None and not is_one_of(loss, get_args(Loss)):
        raise ValueError(must(owner, "loss", f"one of {', '.join(get_args(Loss))}", loss))
    if loss == "negative_log_likelihood":
        return -point_log_likelihood(owner, prediction, y, ignore_index)
    if has_classes(prediction):
        if not is_one_of(loss, (None, "error")):
            raise ValueError(must(owner, "loss", "error or negative_log_likelihood for classes", loss))
        return (~labelled(owner, prediction, y, ignore_index).right).to(torch.float64)
    if loss == "error":
        raise ValueError(must(owner, "loss", "squared_error, say, for numbers", loss))
    if ignore_index is not None:
        raise ValueError(must(owner, "ignore_index", "None unless the targets are labels", ignore_index))
    distance = (regression_targets(owner, prediction, y) - prediction.mean).reshape(len(prediction), -1)
    return (distance.abs() if loss == "absolute_error" else distance.square()).mean(1)
