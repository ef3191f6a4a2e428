"""Checks of the arguments of plots, made before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import is_one_of, must, whole_number
from bayesdrop.likelihoods import ClassLikelihood
from bayesdrop.predict import Prediction

__all__ = [
    "Numbers",
    "Values",
    "check_axes",
    "check_output",
    "check_prediction",
    "has_classes",
    "list_axes",
    "numbers",
    "output_numbers",
    "row_numbers",
    "score_numbers",
    "target_numbers",
]

Numbers = NDArray[np.float64]
#: what a plot accepts as numbers
Values = Tensor | NDArray[Any] | Sequence[Any]

_CLASS_SCORES = ("entropy", "expected_entropy", "mutual_information", "variation_ratio")
_NUMBER_SCORES = ("std", "epistemic", "aleatoric")


def numbers(owner: str, argument: str, value: Any, *dims: int, finite: bool = True) -> Numbers:
    """The value as an array of doubles; raise if it is empty or has another number of axes than `dims`."""
    try:
        array = np.asarray(
            [_array(part) for part in value] if isinstance(value, list | tuple) else _array(value)
        )
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise TypeError(must(owner, argument, "numbers: a tensor, an array or a sequence", value))
    if array.ndim not in dims or not array.size:
        want = " or ".join(str(dim) for dim in dims)
        raise ValueError(must(owner, argument, f"of {want} axes, and not empty", array.shape))
    array = array.astype(np.float64)
    if finite and not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise ValueError(must(owner, argument, "finite", f"{bad} of {array.size} values NaN or infinite"))
    return array


def _array(value: Any) -> Any:
    """A tensor as an array of doubles, without its gradient; other values as they are."""
    return value.detach().cpu().double().numpy() if isinstance(value, Tensor) else value


def row_numbers(
    owner: str, argument: str, value: Any, rows: int | None = None, *, like: str = "x"
) -> Numbers:
    """(N,) from (N,) or (N, 1); raise unless there are `rows` rows, as in the argument `like`."""
    array = numbers(owner, argument, value, 1, 2)
    if array.ndim == 2 and array.shape[1] != 1:
        raise ValueError(must(owner, argument, "of shape (N,) or (N, 1)", array.shape))
    if rows is not None and len(array) != rows:
        raise ValueError(must(owner, argument, f"{rows} rows, as `{like}`", array.shape))
    return array.reshape(-1)


def target_numbers(owner: str, y: Any, prediction: Prediction, output: int) -> Numbers:
    """(N,) targets of one output, from (N,) or (N, D)."""
    array = numbers(owner, "y", y, 1, 2)
    if len(array) != len(prediction) or array.size != prediction.mean.numel():
        want = f"of shape {tuple(prediction.mean.shape)}, as `prediction`"
        raise ValueError(must(owner, "y", want, array.shape))
    column: Numbers = array.reshape(len(prediction), -1)[:, output]
    return column


def output_numbers(owner: str, name: str, value: Tensor, output: int) -> Numbers:
    """(N,) one output of an attribute of a prediction, (N,) or (N, D)."""
    array = numbers(owner, name, value.reshape(value.shape[0], -1), 2)
    column: Numbers = array[:, output]
    return column


def score_numbers(owner: str, prediction: Prediction, score: Any) -> Numbers:
    """(N,) scores of rows, from the name of a score or from numbers."""
    if not isinstance(score, str):
        return row_numbers(owner, "score", score, len(prediction), like="prediction")
    allowed = _CLASS_SCORES if has_classes(prediction) else _NUMBER_SCORES
    if not is_one_of(score, allowed):
        raise ValueError(must(owner, "score", f"numbers, or one of {', '.join(allowed)}", score))
    value: Tensor = getattr(prediction, score)
    if not has_classes(prediction):
        variance = (value.square() if score == "std" else value).reshape(len(prediction), -1).sum(1)
        value = variance.sqrt() if score == "std" else variance
    return row_numbers(owner, f"prediction.{score}", value)


def check_axes(owner: str, ax: Any, argument: str = "ax") -> None:
    """Raise unless `ax` can be drawn on."""
    if not hasattr(ax, "plot") or not hasattr(ax, "set_xlabel"):
        hint = "new_figure(6, 4).subplots() makes them; of several, take one."
        raise TypeError(must(owner, argument, "matplotlib axes", type(ax), hint))


def list_axes(owner: str, axes: Any, count: int | None = None) -> list[Any]:
    """One or more axes, a sequence or an array of them, as a list; of `count` axes if that is given."""
    found = list(np.asarray(axes, dtype=object).reshape(-1))
    if not found or (count is not None and len(found) != count):
        want = "one or more axes" if count is None else f"{count} axes"
        raise ValueError(must(owner, "axes", want, len(found)))
    for ax in found:
        check_axes(owner, ax, "axes")
    return found


def has_classes(prediction: Prediction) -> bool:
    """Whether a prediction is of classes."""
    return isinstance(prediction.likelihood, ClassLikelihood)


def check_prediction(
    owner: str, prediction: Any, *, classes: bool | None = None, spread: bool = True
) -> None:
    """Raise unless `prediction` is a Prediction; of `classes` or numbers; and, for `spread`, of 2 draws."""
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", prediction))
    if classes is False and has_classes(prediction):
        raise TypeError(must(owner, "prediction", "of numbers, not of classes", prediction))
    if classes and not has_classes(prediction):
        hint = "Call predict(..., likelihood=Categorical()), or Bernoulli()."
        raise TypeError(must(owner, "prediction", "of classes", prediction, hint))
    if classes and prediction.label.numel() != len(prediction):
        raise ValueError(must(owner, "prediction", "of one label a row, (N, K)", prediction))
    if spread and prediction.num_draws == 1:
        hint = "One draw has no spread: call predict(..., num_draws=100)."
        raise ValueError(must(owner, "prediction", "of at least 2 draws", prediction, hint))


def check_output(owner: str, prediction: Prediction, output: Any) -> None:
    """Raise unless `output` is one of the D outputs."""
    last = prediction.mean.numel() // len(prediction) - 1
    whole_number(owner, "output", output, at_least=0, at_most=last)
