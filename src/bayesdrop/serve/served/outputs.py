"""answers_of(): from a Prediction of a torch model to answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.likelihoods import Bernoulli
from bayesdrop.likelihoods.base import ClassLikelihood
from bayesdrop.predict import Prediction
from bayesdrop.serve.served.answers import Answers, plain
from bayesdrop.tables.written import written

__all__ = ["answers_of", "task_of"]


def task_of(likelihood: Any) -> str:
    """What a model with this likelihood predicts."""
    return "classification" if isinstance(likelihood, ClassLikelihood) else "regression"


def answers_of(
    prediction: Prediction,
    *,
    classes: Sequence[str],
    level: float | None,
    defer_above: float | None,
    scale: float,
    sketch: NDArray[np.float64],
) -> Answers:
    """Answers for N rows.

    Args:
        prediction: of N rows: classes (N, K), or numbers (N,) or (N, D).
        classes: labels of the K classes; () for numbers.
        level: of intervals.
        defer_above: rows with a higher entropy, or standard deviation, go to a person; None for none but
            those whose prediction is not finite.
        scale: standard deviation at which the uncertainty of numbers is 0.5.
        sketch: (N, S).
    """
    columns: dict[str, list[Any]]
    if classes:
        probs = prediction.probs.double()
        if isinstance(prediction.likelihood, Bernoulli) and (probs.dim() == 1 or probs.shape[-1] == 1):
            yes = probs.reshape(len(probs))
            both = np.stack([1 - yes.numpy(), yes.numpy()], 1)
        else:
            both = probs.numpy()
        entropy = prediction.entropy.double().numpy().reshape(len(both))
        information = prediction.mutual_information.double().numpy().reshape(len(both))
        columns = {
            "label": [classes[place] for place in both.argmax(1)],
            "probs": plain(both),
            "entropy": plain(entropy),
            "mutual_information": plain(information),
        }
        score, name = entropy, "entropy"
        doubt = entropy / math.log(max(2, len(classes)))
        finite = np.isfinite(both).all(1)
    else:
        std = prediction.std.double().numpy()
        parts = {"mean": prediction.mean.double().numpy(), "std": std}
        for part in ("epistemic", "aleatoric"):
            parts[f"{part}_std"] = np.sqrt(getattr(prediction, part).double().numpy())
        if level is not None:
            ends = prediction.interval(level)
            parts |= {
                end: value.double().numpy() for end, value in zip(("lower", "upper"), ends, strict=True)
            }
        # One number a row is a number, several are a list.
        columns = {
            key: plain(value[:, 0] if value.shape[1:] == (1,) else value) for key, value in parts.items()
        }
        score, name = std.reshape(len(std), -1).max(1), "std"
        finite = np.logical_and.reduce([np.isfinite(v).reshape(len(v), -1).all(1) for v in parts.values()])
        with np.errstate(invalid="ignore"):
            doubt = score / (score + scale)
    defer = ~finite if defer_above is None else ~finite | ~(score <= defer_above)
    reason = [
        "" if not go else "the prediction is not finite" if not whole else _because(name, value, defer_above)
        for go, whole, value in zip(defer, finite, score, strict=True)
    ]
    doubt = np.where(finite, np.clip(np.nan_to_num(doubt, nan=1.0), 0.0, 1.0), 1.0)
    return Answers(columns, doubt, defer, reason, sketch)


def _because(name: str, score: float, threshold: float | None) -> str:
    assert threshold is not None
    return f"{name} = {written(float(score), digits=4)}, above {written(threshold, digits=4)}"
