"""Bernoulli dropout: the posterior of MC dropout."""

from __future__ import annotations

from torch import Tensor

from bayesdrop.functional import bernoulli_dropout_kl
from bayesdrop.functional.learned_kl import square_sum
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.layers.weights import num_random_units, of_random_units, random_weights, unit_square_norms
from bayesdrop.noise.samplers import KeepNoise, Noise

__all__ = ["BernoulliDropout"]


class BernoulliDropout(InputNoiseLayer):
    """Linear map whose input units are dropped with chance p.

        h = W (x * z / (1 - p)) + b,        z_k = 0 with chance p, else 1

    The divergence is sum_k [ l^2 |W_k|^2 / (2 (1 - p_k)) - H(p_k) ] + l^2 |b|^2 / 2, W_k being all
    weights that leave input unit k. The papers' M is our W / (1 - p).

    Args:
        layer: the linear map, see `StochasticLayer`; whole channels or words are dropped.
        p: chance of dropping, in [0, 1): one number, or one per input unit.
        elementwise: each position has its own noise, as in `nn.Dropout`.
        bias_p: chance of dropping each entry of the bias; None: the bias has no noise.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    Shape: as the wrapped layer.
    Reference: Gal & Ghahramani (2016), Eq. 4; Gal, Hron & Kendall (2017), Eq. 3.

    >>> import torch
    >>> layer = BernoulliDropout(torch.nn.Linear(4, 3), p=0.3)
    >>> layer(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def noise(self, p: Tensor) -> Noise:
        """Zero with chance p, else 1 / (1 - p)."""
        return KeepNoise(p)

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), up to the constant of a vanishing sigma. Shape ()."""
        l = self.prior_length_scale(length_scale)
        if self.p.dim() == 0:
            # With one rate the sum over all weights is enough, and cheaper than a sum for each unit.
            units = num_random_units(self.layer)
            weights = units * bernoulli_dropout_kl(square_sum(random_weights(self.layer)) / units, self.p, l)
        else:
            p = of_random_units(self.layer, self.p)
            weights = bernoulli_dropout_kl(unit_square_norms(self.layer), p, l).sum()
        return weights + self.bias_kl(length_scale)
