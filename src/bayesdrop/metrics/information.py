"""Means over labels of entropies and other measures of the draws' classes. No targets are needed."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.metrics.scores import uncertainty
from bayesdrop.metrics.targets import must_have_classes
from bayesdrop.predict import Prediction

__all__ = ["expected_entropy", "mutual_information", "predictive_entropy", "variation_ratio"]


def predictive_entropy(prediction: Prediction) -> Tensor:
    """Mean entropy of the averaged probabilities: total uncertainty.

        (1/N) sum_n H( (1/T) sum_t p_nt )

    Returns: shape (), in [0, log K] nats.
    """
    must_have_classes("predictive_entropy", prediction)
    return _mean(prediction, uncertainty(prediction, "entropy", owner="predictive_entropy"))


def expected_entropy(prediction: Prediction) -> Tensor:
    """Mean entropy of a draw's probabilities: the aleatoric part.

        (1/N) sum_n (1/T) sum_t H(p_nt)

    Returns: shape (), in [0, log K] nats.
    """
    must_have_classes("expected_entropy", prediction)
    return _mean(prediction, uncertainty(prediction, "expected_entropy", owner="expected_entropy"))


def mutual_information(prediction: Prediction) -> Tensor:
    """Mean of predictive minus expected entropy: the epistemic part, the disagreement of the draws.

    Returns: shape (), in [0, log K] nats. Needs at least 2 draws.
    """
    must_have_classes("mutual_information", prediction)
    return _mean(prediction, uncertainty(prediction, "mutual_information", owner="mutual_information"))


def variation_ratio(prediction: Prediction) -> Tensor:
    """Mean share of draws that do not vote for the commonest class.

    Returns: shape (), in [0, 1 - 1/K]. Needs at least 2 draws.
    """
    must_have_classes("variation_ratio", prediction)
    return _mean(prediction, uncertainty(prediction, "variation_ratio", owner="variation_ratio"))


def _mean(prediction: Prediction, value: Tensor) -> Tensor:
    return value.to(torch.float64).mean().to(prediction.mean.dtype)
