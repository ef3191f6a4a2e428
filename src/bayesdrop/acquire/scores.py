"""How informative a label would be: one number a row, from a prediction of rows without labels."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.acquire.probabilities import draw_probabilities
from bayesdrop.errors import must, must_be_finite, whole_seed
from bayesdrop.likelihoods import ClassLikelihood
from bayesdrop.predict import Prediction

__all__ = ["bald", "entropy", "mean_std", "random", "variation_ratio", "zero_one"]


def entropy(prediction: Prediction) -> Tensor:
    """Entropy of the averaged class probabilities: the total uncertainty of the label, noise included.

    Args:
        prediction: of classes; for rows with several labels, their mean is taken.

    Returns: (N,), in nats; rows with higher scores are labelled first.
    Reference: Shannon (1948).
    """
    _check_classes("acquire.entropy", prediction)
    return _by_row(prediction.entropy)


def bald(prediction: Prediction) -> Tensor:
    """Mutual information of label and weights: how much the label would reveal about the function.

        I(y; w) = H[(1/T) sum_t p_t] - (1/T) sum_t H[p_t]

    Rows that are ambiguous to every draw score 0: their label is noise.

    Args:
        prediction: of classes, of at least 2 draws.

    Returns: (N,), in nats; rows with higher scores are labelled first.
    Reference: Houlsby et al. (2011); Gal, Islam & Ghahramani (2017).
    """
    _check_classes("acquire.bald", prediction)
    _check_draws("acquire.bald", prediction)
    return _by_row(prediction.mutual_information)


def variation_ratio(prediction: Prediction) -> Tensor:
    """Share of draws that do not vote for the commonest class.

    Args:
        prediction: of classes, of at least 2 draws.

    Returns: (N,), in [0, 1); rows with higher scores are labelled first.
    Reference: Freeman (1965).
    """
    _check_classes("acquire.variation_ratio", prediction)
    _check_draws("acquire.variation_ratio", prediction)
    return _by_row(prediction.variation_ratio)


def mean_std(prediction: Prediction) -> Tensor:
    """Standard deviation of the draws' predictions, averaged over classes or outputs.

        (1/K) sum_k sqrt(Var_t p_t(k))

    Args:
        prediction: of classes or numbers, of at least 2 draws.

    Returns: (N,); rows with higher scores are labelled first.
    Reference: Kampffmeyer, Salberg & Jenssen (2016); Kendall, Badrinarayanan & Cipolla (2017).
    """
    _check("acquire.mean_std", prediction)
    if not prediction.is_analytic:
        _check_draws("acquire.mean_std", prediction)
    return _by_row(prediction.epistemic.clamp_min(0).sqrt())


def zero_one(prediction: Prediction) -> Tensor:
    """How many fewer errors a predictor would make that knew the true draw: BALD for the zero-one loss.

        (1/T) sum_t max_k p_t(k) - max_k (1/T) sum_t p_t(k)

    A row scores 0 if all draws agree on the class, however sure each of them is.

    Args:
        prediction: of classes, one label a row, of at least 2 draws, which were kept.

    Returns: (N,), in [0, 1); rows with higher scores are labelled first.
    Reference: Hofman, Sale & Hüllermeier (2024), the epistemic part under zero-one loss; arXiv 2512.12341,
    for active learning.
    """
    probs = draw_probabilities("acquire.zero_one", prediction)
    return (probs.amax(-1).mean(0) - probs.mean(0).amax(-1)).clamp_min(0)


def random(prediction: Prediction, *, seed: int = 0) -> Tensor:
    """Random scores, as a baseline.

    Args:
        prediction: gives the number of rows.
        seed: of the scores.

    Returns: (N,), uniform in [0, 1).
    """
    _check("acquire.random", prediction)
    generator = torch.Generator().manual_seed(whole_seed("acquire.random", seed))
    return torch.rand(len(prediction), generator=generator, dtype=torch.float64)


def _by_row(value: Tensor) -> Tensor:
    return value.to(torch.float64).reshape(value.shape[0], -1).mean(1)


def _check(owner: str, prediction: Prediction) -> None:
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", type(prediction)))
    must_be_finite(owner, "prediction.mean", prediction.mean)


def _check_classes(owner: str, prediction: Prediction) -> None:
    _check(owner, prediction)
    if not isinstance(prediction.likelihood, ClassLikelihood):
        hint = "Use acquire.mean_std for numbers, or predict with likelihood=Categorical() or Bernoulli()."
        raise TypeError(must(owner, "prediction", "a prediction of classes", prediction, hint))


def _check_draws(owner: str, prediction: Prediction) -> None:
    if prediction.num_draws < 2:
        raise ValueError(must(owner, "prediction", "of at least 2 draws", prediction.num_draws))
