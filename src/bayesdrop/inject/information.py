"""How much a prediction says about its input: what noise may take away where there are no labels."""

from __future__ import annotations

import torch

from bayesdrop.errors import must
from bayesdrop.functional import entropy
from bayesdrop.likelihoods import ClassLikelihood, NumberLikelihood
from bayesdrop.predict import Prediction

__all__ = ["prediction_information"]


def prediction_information(prediction: Prediction) -> float:
    """Mutual information of the row x and the y that is predicted for it, in nats, rows being equally likely.

        classes   H[ (1/N) sum_n p(y | x_n) ] - (1/N) sum_n H[ p(y | x_n) ]
        numbers   sum_d log(1 + S_d / V_d) / 2,    S_d = Var_n mean_nd,    V_d = (1/N) sum_n variance_nd

    p is the predictive distribution, averaged over draws, and variance its whole variance, of the noise of y
    and of the draws. That of classes is exact; that of numbers is that of Gaussians with these variances.
    Positions (tokens, pixels) count as rows. Noise inside a network makes rows harder to tell apart by what
    is predicted for them, and the number smaller.

    Args:
        prediction: of classes, or of numbers with a likelihood.
    """
    likelihood = prediction.likelihood
    if isinstance(likelihood, ClassLikelihood):
        probs = prediction.class_probs.to(torch.float64)
        probs = probs.reshape(-1, probs.shape[-1])
        return float(entropy(probs.mean(0)) - entropy(probs).mean())
    if not isinstance(likelihood, NumberLikelihood):
        raise TypeError(must("inject", "likelihood", "of classes or of numbers", likelihood))
    mean = prediction.mean.to(torch.float64)
    # A single draw has no spread.
    spread = torch.zeros_like(mean) if prediction.num_draws < 2 else prediction.epistemic.to(torch.float64)
    noise = prediction.aleatoric.to(torch.float64) + spread
    mean, noise = (part.reshape(len(part), -1) for part in (mean, noise))
    return float(0.5 * torch.log1p(mean.var(0, correction=0) / noise.mean(0)).sum())
