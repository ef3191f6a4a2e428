"""Checks of predictions and targets, common to all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, whole_number
from bayesdrop.likelihoods import Bernoulli, Categorical, ClassLikelihood
from bayesdrop.predict import Prediction

__all__ = [
    "Labelled",
    "check_count",
    "check_tensor",
    "has_classes",
    "labelled",
    "must_be_prediction",
    "must_have_classes",
    "regression_targets",
]


@dataclass(frozen=True)
class Labelled:
    """The labels that count, with their probabilities, one row each."""

    probs: Tensor  #: (M, K) in double precision
    labels: Tensor  #: (M,)
    valid: Tensor  #: (N, ...) which of all labels are among the M
    ignore_index: int | None = None  #: the void label

    @property
    def right(self) -> Tensor:
        """(M,) whether the most probable class is the label."""
        return self.probs.argmax(1) == self.labels


def has_classes(prediction: Prediction) -> bool:
    """Whether the prediction is of classes."""
    return isinstance(prediction.likelihood, ClassLikelihood)


def must_be_prediction(owner: str, prediction: Any, argument: str = "prediction") -> None:
    """Raise unless `prediction` is a Prediction whose mean is finite."""
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, argument, "a Prediction", type(prediction)))
    must_be_finite(owner, f"{argument}.mean", prediction.mean)


def must_have_classes(owner: str, prediction: Prediction) -> None:
    """Raise unless `prediction` is a finite Prediction of classes."""
    must_be_prediction(owner, prediction)
    if not has_classes(prediction):
        hint = "Predict with likelihood=Categorical(), or Bernoulli()."
        raise TypeError(must(owner, "prediction", "a prediction of classes", prediction, hint))


def check_tensor(owner: str, y: Any) -> None:
    """Raise unless the targets are a real tensor of finite numbers."""
    if not isinstance(y, Tensor):
        raise TypeError(must(owner, "y", "a tensor", type(y)))
    if y.is_complex():
        raise TypeError(must(owner, "y", "real", y.dtype))
    must_be_finite(owner, "y", y)


def check_count(owner: str, argument: str, value: Any) -> None:
    """Raise unless the value is a whole number of at least one."""
    whole_number(owner, argument, value, at_least=1)


def regression_targets(owner: str, prediction: Prediction, y: Tensor) -> Tensor:
    """The targets in double precision, of the shape of the prediction's mean."""
    must_be_prediction(owner, prediction)
    if has_classes(prediction):
        raise TypeError(must(owner, "prediction", "a prediction of numbers, not of classes", prediction))
    check_tensor(owner, y)
    mean = prediction.mean
    if y.shape != mean.shape:
        hint = "Pass y.unsqueeze(-1)." if mean.shape == (*y.shape, 1) else ""
        want = f"of the prediction's shape {tuple(mean.shape)}"
        raise ValueError(must(owner, "y", want, tuple(y.shape), hint))
    if not y.numel():
        raise ValueError(must(owner, "y", "at least one value", y))
    return y.detach().to(mean.device, torch.float64)


def labelled(
    owner: str,
    prediction: Prediction,
    y: Tensor,
    ignore_index: int | None = None,
    *,
    may_be_void: bool = False,
) -> Labelled:
    """The labels other than `ignore_index`, and the probabilities that belong to them.

    Args:
        owner: the metric that errors name.
        prediction: of classes.
        y: (N, ...) integer labels; for a `Bernoulli`, 0 and 1 may be floating-point numbers.
        ignore_index: the void label, which may lie outside the classes. None: the likelihood's.
        may_be_void: whether all labels may be void.
    """
    must_have_classes(owner, prediction)
    check_tensor(owner, y)
    if ignore_index is None and isinstance(prediction.likelihood, Categorical):
        ignore_index = prediction.likelihood.ignore_index
    if ignore_index is not None:
        ignore_index = whole_number(owner, "ignore_index", ignore_index)
    if y.is_floating_point() and not (
        isinstance(prediction.likelihood, Bernoulli) and bool((y == y.round()).all())
    ):
        raise TypeError(must(owner, "y", "integer labels", y.dtype))
    probs = prediction.class_probs
    if y.shape != probs.shape[:-1]:
        want = f"labels of shape {tuple(probs.shape[:-1])}"
        raise ValueError(must(owner, "y", want, tuple(y.shape)))
    labels = y.detach().to(probs.device, torch.int64)
    valid = torch.ones_like(labels, dtype=torch.bool) if ignore_index is None else labels != ignore_index
    kept = labels[valid]
    if not kept.numel():
        if may_be_void:
            return Labelled(probs[valid].to(torch.float64), kept, valid, ignore_index)
        raise ValueError(must(owner, "y", "at least one label that is not ignored", tuple(y.shape)))
    low, high, classes = int(kept.min()), int(kept.max()), probs.shape[-1]
    if low < 0 or high >= classes:
        hint = "" if ignore_index is not None else "Pass ignore_index= for void labels."
        raise ValueError(must(owner, "y", f"in 0 to {classes - 1}", f"{low} to {high}", hint))
    return Labelled(probs[valid].to(torch.float64), kept, valid, ignore_index)
