"""Pure tensor mathematics: no modules, no state."""

from bayesdrop.functional.entropy import (
    bernoulli_entropy,
    entropy,
    expected_entropy,
    mutual_information,
    predictive_entropy,
    variation_ratio,
)
from bayesdrop.functional.kl import (
    bernoulli_dropout_kl,
    gaussian_dropout_kl,
    gaussian_kl,
    low_rank_kl,
    mixture_dropout_kl,
    mixture_information,
)
from bayesdrop.functional.learned_kl import learned_dropout_kl
from bayesdrop.functional.relax import relaxed_keep, relaxed_moments
from bayesdrop.noise.samplers import gaussian_multiplier, keep_mask, standard_normal

__all__ = [
    "bernoulli_dropout_kl",
    "bernoulli_entropy",
    "entropy",
    "expected_entropy",
    "gaussian_dropout_kl",
    "gaussian_kl",
    "gaussian_multiplier",
    "keep_mask",
    "learned_dropout_kl",
    "low_rank_kl",
    "mixture_dropout_kl",
    "mixture_information",
    "mutual_information",
    "predictive_entropy",
    "relaxed_keep",
    "relaxed_moments",
    "standard_normal",
    "variation_ratio",
]
