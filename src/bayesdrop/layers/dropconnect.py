"""DropConnect: every weight is dropped independently."""

from __future__ import annotations

from torch import Tensor

from bayesdrop.functional import bernoulli_dropout_kl
from bayesdrop.layers.base import WeightNoiseLayer
from bayesdrop.layers.weights import (
    of_random_units,
    random_part,
    units_like_weight,
    weight_by_unit,
)
from bayesdrop.noise.samplers import KeepNoise

__all__ = ["DropConnect"]


class DropConnect(WeightNoiseLayer):
    """Linear map whose single weights are dropped with chance p.

        h = (W * Z / (1 - p)) x + b,        Z_jk = 0 with chance p, else 1

    The divergence is sum_jk [ l^2 W_jk^2 / (2 (1 - p)) - H(p) ] + l^2 |b|^2 / 2.

    Args:
        layer: the linear map, see `StochasticLayer`; weights, stride, padding, dilation,
            groups and a missing bias are kept.
        p: chance of dropping, in [0, 1): one number, or one per input unit.
        per_row: in training, a set of weights for every row instead of one for the batch.
        bias_p: chance of dropping each entry of the bias; None: the bias has no noise.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    Shape: as the wrapped layer.
    Reference: Wan et al. (2013); as a posterior, Gal & Ghahramani (2016), section 3.
    """

    def _weight_p(self) -> Tensor:
        """The rate, shaped to broadcast against the weight."""
        return self.p if self.p.dim() == 0 else units_like_weight(self.layer, self.p)

    def weight_for(self, x: Tensor) -> Tensor:
        """The weights with their masks."""
        weight = self.layer.weight
        p = self._weight_p()
        noise = self.noise_for(x, "weight", self.sets_like(x, *weight.shape), KeepNoise(p), sets=True)
        return weight if noise is None else random_part(self.layer, weight * noise)

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), up to the constant of a vanishing sigma. Shape ()."""
        by_unit = weight_by_unit(self.layer)
        p = (self.p if self.p.dim() == 0 else of_random_units(self.layer, self.p)).expand_as(by_unit)
        weights = bernoulli_dropout_kl(by_unit.square(), p, self.prior_length_scale(length_scale))
        return weights.sum() + self.bias_kl(length_scale)
