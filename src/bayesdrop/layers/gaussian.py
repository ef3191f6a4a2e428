"""Gaussian dropout: multiplicative noise with the mean and variance of Bernoulli dropout."""

from __future__ import annotations

from torch import Tensor

from bayesdrop.functional import gaussian_dropout_kl
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.layers.weights import num_units, of_random_units, unit_square_norms
from bayesdrop.noise.samplers import GaussianMultiplier, Noise

__all__ = ["GaussianDropout"]


class GaussianDropout(InputNoiseLayer):
    """Linear map whose input units are multiplied by N(1, p / (1 - p)).

        h = W (x * (1 + sqrt(a) e)) + b,        e_k ~ N(0, 1),  a = p / (1 - p)

    The divergence is sum_k KL( N(r_k, a r_k^2) || N(0, 1 / l^2) ) with r_k = |W_k|: the weights that
    leave a unit share its noise, so that only their length along W_k is random.

    Args:
        layer: the linear map, see `StochasticLayer`; one value for a channel or word.
        p: the drop rate whose variance is matched, in [0, 1): one number, or one per input unit.
        elementwise: each position has its own noise.
        bias_p: chance of dropping each entry of the bias; None: the bias has no noise.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    Shape: as the wrapped layer.
    Reference: Gal & Ghahramani (2015), section 4.1; Srivastava et al. (2014), section 10.
    """

    def noise(self, p: Tensor) -> Noise:
        """N(1, p / (1 - p))."""
        return GaussianMultiplier(p)

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), up to the constant of a vanishing sigma. Shape ()."""
        p = of_random_units(self.layer, self.p.expand(num_units(self.layer)))
        weights = gaussian_dropout_kl(unit_square_norms(self.layer), p, self.prior_length_scale(length_scale))
        return weights.sum() + self.bias_kl(length_scale)
