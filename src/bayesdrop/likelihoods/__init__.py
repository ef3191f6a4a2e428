"""What a network's output means."""

from bayesdrop.likelihoods.base import ClassLikelihood, Likelihood
from bayesdrop.likelihoods.categorical import Categorical, Multinomial
from bayesdrop.likelihoods.gaussian import Gaussian
from bayesdrop.likelihoods.heteroscedastic import HeteroscedasticGaussian

__all__ = [
    "Categorical",
    "ClassLikelihood",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "Multinomial",
]
