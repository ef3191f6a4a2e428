"""Class probabilities of every draw."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.likelihoods import ClassLikelihood
from bayesdrop.predict import Prediction

__all__ = ["draw_probabilities"]


def draw_probabilities(owner: str, prediction: Prediction) -> Tensor:
    """(T, N, K) class probabilities of every draw, in double precision."""
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", type(prediction)))
    likelihood = prediction.likelihood
    if not isinstance(likelihood, ClassLikelihood):
        raise TypeError(must(owner, "prediction", "a prediction of classes", prediction))
    if prediction.label.numel() != len(prediction):
        got = tuple(prediction.mean.shape)
        raise ValueError(must(owner, "prediction", "of one label a row, probabilities (N, K)", got))
    if not prediction.shared:
        hint = "Call predict(..., draws='shared')."
        raise ValueError(must(owner, "prediction", "of draws that are functions", "independent draws", hint))
    if prediction.num_draws < 2:
        raise ValueError(must(owner, "prediction", "of at least 2 draws", prediction.num_draws))
    log_probs = likelihood.class_log_probs(prediction.draws.to(torch.float64), leading=1)
    return log_probs.exp().reshape(*prediction.draws.shape[:2], -1)
