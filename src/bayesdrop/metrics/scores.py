"""Scores of uncertainty, one number a row or label, by which predictions are ranked."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from bayesdrop.errors import is_one_of, must, must_be_finite
from bayesdrop.metrics.targets import has_classes, must_be_prediction
from bayesdrop.predict import Prediction

__all__ = ["By", "ClassScore", "NumberScore", "Score", "uncertainty"]

ClassScore = Literal["entropy", "expected_entropy", "mutual_information", "variation_ratio", "max_prob"]
NumberScore = Literal["std", "epistemic", "aleatoric"]
Score = ClassScore | NumberScore
By = Literal["label", "row"]

#: the spread of a single draw is unknown
_NEED_TWO_DRAWS = ("mutual_information", "variation_ratio", "std", "epistemic")


def uncertainty(
    prediction: Prediction, score: Score | None = None, *, by: By = "label", owner: str = "uncertainty"
) -> Tensor:
    """How unsure a prediction is, in double precision; higher is less sure.

    Args:
        prediction: of classes or numbers.
        score: for classes "entropy" (default), "expected_entropy", "mutual_information",
            "variation_ratio" or "max_prob" (1 - the largest probability); for numbers "std" (default),
            "epistemic" or "aleatoric" (variances). Variances are summed over the outputs of a row.
        by: "label" keeps a value for each label of a row with several, as pixels or the steps of a sequence;
            "row" takes their mean. Numbers have one value a row in any case.
        owner: the function that errors name.

    Returns: (N, ...) with one value a label for classes, (N,) by rows; (N,) for numbers.
    """
    must_be_prediction(owner, prediction)
    if not is_one_of(by, ("label", "row")):
        raise ValueError(must(owner, "by", "'label' or 'row'", by))
    classes = has_classes(prediction)
    allowed: tuple[str, ...] = get_args(ClassScore) if classes else get_args(NumberScore)
    chosen = allowed[0] if score is None else score
    if not is_one_of(chosen, allowed):
        kind = "classes" if classes else "numbers"
        raise ValueError(must(owner, "score", f"one of {', '.join(allowed)} for {kind}", score))
    if chosen in _NEED_TWO_DRAWS and prediction.num_draws < 2:
        raise ValueError(must(owner, "prediction", f"of at least 2 draws for {chosen!r}", 1))
    if chosen == "max_prob":
        value = 1 - prediction.class_probs.amax(-1).to(torch.float64)
    elif classes:
        value = getattr(prediction, chosen).to(torch.float64)
    else:
        variance = prediction.variance if chosen == "std" else getattr(prediction, chosen)
        value = variance.to(torch.float64).reshape(len(prediction), -1).sum(1)
        value = value.sqrt() if chosen == "std" else value
    must_be_finite(owner, f"prediction's {chosen}", value)
    return value.flatten(1).mean(1) if by == "row" and value.dim() > 1 else value
