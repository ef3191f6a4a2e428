"""Checks of predictions and targets, common to all calibrators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, must_be_tensor, whole_number
from bayesdrop.likelihoods import Bernoulli, ClassLikelihood
from bayesdrop.predict import Prediction

__all__ = ["check_classes", "check_labels", "check_numbers", "check_targets"]


def check_classes(owner: str, prediction: Any) -> None:
    """Raise unless `prediction` is a finite prediction of classes."""
    _check_prediction(owner, prediction)
    if not isinstance(prediction.likelihood, ClassLikelihood):
        hint = "Predict with likelihood=Categorical(), or Bernoulli()."
        raise TypeError(must(owner, "prediction", "a prediction of classes", prediction, hint))


def check_numbers(owner: str, prediction: Any) -> None:
    """Raise unless `prediction` is a finite prediction of numbers."""
    _check_prediction(owner, prediction)
    if isinstance(prediction.likelihood, ClassLikelihood):
        raise TypeError(must(owner, "prediction", "a prediction of numbers, not of classes", prediction))


def check_labels(owner: str, prediction: Prediction, y: Tensor, ignore_index: int | None = None) -> Tensor:
    """The labels as int64, one for every distribution over classes.

    Those of a `Bernoulli` may be booleans, or 0 and 1 as floating-point numbers.
    """
    binary = isinstance(prediction.likelihood, Bernoulli)
    must_be_tensor(owner, "y", y)
    if not binary and (y.is_floating_point() or y.dtype == torch.bool):
        raise TypeError(must(owner, "y", "a tensor of integer labels", y.dtype))
    must_be_finite(owner, "y", y)
    if not bool((y == y.long()).all()):
        raise ValueError(must(owner, "y", "0 or 1", y[y != y.long()].flatten()[0].item()))
    probs = prediction.class_probs
    if y.shape != probs.shape[:-1]:
        raise ValueError(must(owner, "y", f"labels of shape {tuple(probs.shape[:-1])}", tuple(y.shape)))
    if ignore_index is not None:
        ignore_index = whole_number(owner, "ignore_index", ignore_index)
    counted = y if ignore_index is None else y[y != ignore_index]
    if not counted.numel():
        raise ValueError(must(owner, "y", "at least one label that counts", tuple(y.shape)))
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= probs.shape[-1]:
        raise ValueError(must(owner, "y", f"in 0 to {probs.shape[-1] - 1}", f"{low} to {high}"))
    return y.long()


def check_targets(owner: str, prediction: Prediction, y: Any) -> Tensor:
    """The targets in double precision, of the shape of the prediction's mean."""
    if not isinstance(y, Tensor) or y.is_complex():
        raise TypeError(must(owner, "y", "a tensor of real numbers", type(y)))
    if y.shape != prediction.mean.shape:
        hint = "Pass y.unsqueeze(-1)." if prediction.mean.shape == (*y.shape, 1) else ""
        want = f"of the prediction's shape {tuple(prediction.mean.shape)}"
        raise ValueError(must(owner, "y", want, tuple(y.shape), hint))
    must_be_finite(owner, "y", y)
    return y.to(torch.float64)


def _check_prediction(owner: str, prediction: Any) -> None:
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", type(prediction)))
    must_be_finite(owner, "prediction.mean", prediction.mean)
