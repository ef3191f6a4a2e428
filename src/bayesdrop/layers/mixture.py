"""Mixture dropout: the two-component Gaussian posterior that tends to dropout as its width vanishes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesdrop.functional import gaussian_kl, mixture_dropout_kl
from bayesdrop.functional.noise import KeepNoise, NormalNoise
from bayesdrop.layers.base import WeightNoiseLayer, positive_scale
from bayesdrop.layers.weights import (
    bias_shape,
    fan_out,
    is_batched,
    num_units,
    of_random_units,
    random_part,
    unit_square_norms,
    units_like_weight,
)

__all__ = ["MixtureDropout"]


class MixtureDropout(WeightNoiseLayer):
    """Linear map with a mixture of two Gaussians over the weights that leave each input unit.

        q(W_k) = (1 - p) N(W_k / (1 - p), s^2 I) + p N(0, s^2 I),        q(b) = N(b, s^2 I)

    sampled as W_k z_k / (1 - p) + s e. As s falls to 0 this is `BernoulliDropout`; with s above 0 the
    layer's output has the extra variance s^2 (|x|^2 + 1). The divergence is exact: see
    `bayesdrop.functional.mixture_dropout_kl`.

    Args:
        layer: the linear map, see `StochasticLayer`.
        p: chance of dropping, in [0, 1): one number, or one per input unit.
        sigma: s, the width of the components, above 0.
        per_row: in training, a set of weights for every row instead of one for the batch.
        length_scale: prior length scale l: weights and bias have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l for the weights.

    Shape: as the wrapped layer.
    Reference: Gal & Ghahramani (2015), Eqs 9 to 13. Their M is our W / (1 - p).
    """

    sigma: Tensor

    def __init__(
        self,
        layer: nn.Module,
        p: float | Sequence[float] | Tensor = 0.1,
        *,
        sigma: float = 0.01,
        per_row: bool = False,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
    ) -> None:
        super().__init__(
            layer, p, per_row=per_row, length_scale=length_scale, scale_by_fan_in=scale_by_fan_in
        )
        sigma = positive_scale("MixtureDropout", "sigma", sigma)
        self.register_buffer("sigma", torch.tensor(sigma, dtype=torch.float64).to(self.layer.weight))

    def is_random(self) -> bool:
        """Always: sigma is above zero."""
        return True

    def extra_repr(self) -> str:
        """The rate and the width, for `print(model)`."""
        return f"{super().extra_repr()}, sigma={self.sigma.item():.4g}"

    def weight_for(self, x: Tensor) -> Tensor:
        """The weights of a component, chosen unit by unit, plus Gaussian noise."""
        weight, units = self.layer.weight, num_units(self.layer)

        def rows_first(rows: int, *shape: int) -> tuple[int, ...]:
            sets = self.rows_of(rows)
            return (sets, *shape) if sets > 1 and is_batched(self.layer, x) else shape

        keep = self.noise_for(x, "unit", lambda rows: rows_first(rows, units), KeepNoise(self.p), sets=True)
        if keep is None:
            return weight
        normal = self.noise_for(
            x,
            "weight",
            lambda rows: rows_first(rows, *weight.shape),
            NormalNoise(self.sigma.device),
            sets=True,
        )
        assert normal is not None
        return random_part(self.layer, weight * units_like_weight(self.layer, keep) + self.sigma * normal)

    def bias_for(self, x: Tensor) -> Tensor | None:
        """The bias plus Gaussian noise."""
        bias = self.bias
        if bias is None:
            return None
        laid_out = bias.reshape(bias_shape(self.layer, x, 1))
        normal = self.noise_for(
            x,
            "bias",
            lambda rows: bias_shape(self.layer, x, self.rows_of(rows)),
            NormalNoise(self.sigma.device),
        )
        return laid_out if normal is None else laid_out + self.sigma * normal

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), exact. Shape ()."""
        weights = mixture_dropout_kl(
            unit_square_norms(self.layer),
            of_random_units(self.layer, self.p.expand(num_units(self.layer))),
            self.sigma,
            fan_out(self.layer),
            self.prior_length_scale(length_scale),
        ).sum()
        if self.bias is None:
            return weights
        l = self.length_scale if length_scale is None else length_scale
        return weights + gaussian_kl(self.bias.square(), self.sigma.square(), l).sum()
