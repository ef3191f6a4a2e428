"""Likelihoods: what a network's output means."""

from bayesdrop.likelihoods.base import ClassLikelihood, ConstantNoise, Likelihood, NumberLikelihood
from bayesdrop.likelihoods.bernoulli import Bernoulli
from bayesdrop.likelihoods.categorical import Categorical, Multinomial, SoftmaxLikelihood
from bayesdrop.likelihoods.gaussian import Gaussian
from bayesdrop.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bayesdrop.likelihoods.laplace import Laplace
from bayesdrop.likelihoods.warped import Warp, WarpedGaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "ConstantNoise",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Laplace",
    "Likelihood",
    "Multinomial",
    "NumberLikelihood",
    "SoftmaxLikelihood",
    "Warp",
    "WarpedGaussian",
]
