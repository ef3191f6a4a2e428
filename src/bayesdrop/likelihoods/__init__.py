"""What a network's output means."""

from bayesdrop.likelihoods.base import ClassLikelihood, Likelihood
from bayesdrop.likelihoods.bernoulli import Bernoulli
from bayesdrop.likelihoods.categorical import Categorical, Multinomial, SoftmaxLikelihood
from bayesdrop.likelihoods.gaussian import Gaussian
from bayesdrop.likelihoods.heteroscedastic import HeteroscedasticGaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "Multinomial",
    "SoftmaxLikelihood",
]
