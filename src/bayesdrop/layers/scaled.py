"""Scaled dropout: the masks of Bernoulli dropout, and a number that scales their distance from one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from bayesdrop.functional import bernoulli_dropout_kl
from bayesdrop.layers.base import InputNoiseLayer, positive_scale
from bayesdrop.layers.weights import num_units, of_random_units, unit_square_norms
from bayesdrop.noise.samplers import Noise, ScaledKeepNoise

__all__ = ["ScaledDropout"]


class ScaledDropout(InputNoiseLayer):
    """Linear map whose input units are weakened with chance p, and strengthened otherwise.

        h = W (x * (1 + s (z / (1 - p) - 1))) + b,        z_k = 0 with chance p, else 1

    The noise has the mean 1 and the variance s^2 p / (1 - p). At s = 1 this is `BernoulliDropout`. A small s
    with a large p changes every unit a little, where a small p changes a few units altogether. `inject`
    chooses both.

    The divergence is sum_k [ l^2 |W_k|^2 (1 + s^2 p_k / (1 - p_k)) / 2 - H(p_k) ] + l^2 |b|^2 / 2.

    Args:
        layer: the linear map, see `StochasticLayer`.
        p: chance that a unit is dropped, in [0, 1): one number, or one per input unit.
        scale: s, above 0.
        elementwise: each position has its own noise, as in `nn.Dropout`.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    Shape: as the wrapped layer.
    """

    def __init__(
        self,
        layer: nn.Module,
        p: float | Sequence[float] | Tensor = 0.1,
        *,
        scale: float = 1.0,
        elementwise: bool = False,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            p,
            elementwise=elementwise,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        self.scale = positive_scale("ScaledDropout", "scale", scale)

    def extra_repr(self) -> str:
        """The rate and the scale, for `print(model)`."""
        return f"{super().extra_repr()}, scale={self.scale:g}"

    def noise(self, p: Tensor) -> Noise:
        """1 - s with chance p, else 1 + s p / (1 - p)."""
        return ScaledKeepNoise(p, self.scale)

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), up to the constant of a vanishing sigma. Shape ()."""
        l = self.prior_length_scale(length_scale)
        p = of_random_units(self.layer, self.p.expand(num_units(self.layer)))
        squares = unit_square_norms(self.layer)
        # The divergence of masks has the mean square of s = 1, which is 1 + p / (1 - p).
        rest = 0.5 * l**2 * (self.scale**2 - 1) * p / (1 - p) * squares
        return (bernoulli_dropout_kl(squares, p, l) + rest).sum() + self.bias_kl(length_scale)
