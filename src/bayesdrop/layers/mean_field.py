"""Mean-field Gaussian weights: every weight has its own mean and standard deviation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from bayesdrop.errors import real_number
from bayesdrop.functional.kl import mean_field_kl
from bayesdrop.layers.base import WeightNoiseLayer
from bayesdrop.layers.weights import (
    apply_weights,
    bias_shape,
    fan_in,
    random_part,
    weight_by_unit,
)
from bayesdrop.noise.samplers import NormalNoise
from bayesdrop.trace import active_draw

__all__ = ["MeanFieldGaussian"]

_SMALLEST = 1e-16


class MeanFieldGaussian(WeightNoiseLayer):
    """Linear map whose weights and biases are independent Gaussians with learned means and widths.

        W_jk ~ N(w_jk, s_jk^2),     b_j ~ N(m_j, t_j^2)
        in training, by row:        h_j ~ N(w_j x + m_j, s_j^2 x^2 + t_j^2)

    Training samples the outputs (the local reparametrisation): every row has its own noise at the cost of a
    second product, and gradients vary much less than with one set of weights for a batch. In a draw the
    noise of the weights is held, so that a draw is a function. Each output has the same moments either way;
    the outputs of a row at several positions (pixels, time steps) share their weights in a draw and with
    `per_row=True`, and are independent in training otherwise. An `nn.Embedding` has one set of weights for a
    training batch, so that a word is the same wherever it occurs.

    The divergence is exact: sum_jk [ l^2 (w^2 + s^2) - log(l^2 s^2) - 1 ] / 2, and the same for the bias.

    Args:
        layer: the linear map, see `StochasticLayer`; its weights and bias are the means.
        p_init: where the widths start, in (0, 1): all are sqrt(p / (1 - p)) times the root mean square of the
            weights (of `nn.Linear`'s first weights if all are zero), the width that `DropConnect` has at p.
        per_row: in training, a set of weights for every row instead of noise on the outputs.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l for the weights.
        prior_on_bias: whether the bias is random and has the prior N(0, I / l^2); else it is a point.

    Shape: as the wrapped layer.
    Reference: Graves (2011); Blundell et al. (2015), section 3; Kingma, Salimans & Welling (2015), section
    2.3, for the noise on outputs. It is the VI of Gal & Ghahramani (2016), Table 1.

    >>> layer = MeanFieldGaussian(nn.Linear(4, 3), p_init=0.2)
    >>> round(layer.p.item(), 4)
    0.2
    """

    def __init__(
        self,
        layer: nn.Module,
        p_init: float = 0.01,
        *,
        per_row: bool = False,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            None,
            per_row=per_row,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        self.p_init = real_number("MeanFieldGaussian", "p_init", p_init, "in (0, 1)", above=0, below=1)
        weight, bias = self.layer.weight, self.bias
        with torch.no_grad():
            square = weight.to(torch.float64).square().mean()
            square = torch.where(square > 0, square, 1 / (3 * fan_in(self.layer)))
            start = 0.5 * (square.log() + torch.logit(square.new_tensor(self.p_init)))
            self.log_std = nn.Parameter(torch.empty_like(weight).copy_(start))
            self.bias_log_std: nn.Parameter | None = None
            if bias is not None and prior_on_bias:
                self.bias_log_std = nn.Parameter(torch.empty_like(bias).copy_(start))

    @property
    def p(self) -> Tensor:  # type: ignore[override]
        """|s|^2 / (|s|^2 + |w|^2): the rate at which `DropConnect` has as much variance. Shape ()."""
        variance = (2 * self.log_std).exp().sum()
        return variance / (variance + self.layer.weight.square().sum())

    def rate_parameters(self) -> Iterator[nn.Parameter]:
        """The logs of the widths."""
        yield self.log_std
        if self.bias_log_std is not None:
            yield self.bias_log_std

    def is_random(self) -> bool:
        """Always: widths are above zero."""
        return True

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See `WeightNoiseLayer.forward`."""
        by_output = not self.per_row and not isinstance(self.layer, nn.Embedding)
        if self.training and by_output and active_draw(self) is None:
            return self._sampled_outputs(x, output_size)
        return super().forward(x, output_size)

    def _sampled_outputs(self, x: Tensor, output_size: Sequence[int] | None) -> Tensor:
        mean = self.mapped(x, output_size)
        variance = apply_weights(self.layer, x.square(), (2 * self.log_std).exp(), output_size)
        if self.bias_log_std is not None:
            variance = variance + (2 * self.bias_log_std).exp().reshape(bias_shape(self.layer, x, 1))
        # The square root has no gradient at zero, where an input is all zeros.
        sampled: Tensor = mean + (variance + _SMALLEST).sqrt() * torch.randn_like(mean)
        return sampled

    def weight_for(self, x: Tensor) -> Tensor:
        """The means plus noise."""
        weight = self.layer.weight
        like = self.sets_like(x, *weight.shape)
        normal = self.noise_for(x, "weight", like, NormalNoise(x.device), sets=True)
        return weight if normal is None else random_part(self.layer, weight + self.log_std.exp() * normal)

    def bias_for(self, x: Tensor) -> Tensor | None:
        """The bias plus its noise, shaped to broadcast against the output."""
        bias, log_std = self.bias, self.bias_log_std
        if bias is None:
            return None
        laid_out = bias.reshape(bias_shape(self.layer, x, 1))
        if log_std is None:
            return laid_out
        normal = self.noise_for(
            x, "bias", lambda rows: bias_shape(self.layer, x, self.rows_of(rows)), NormalNoise(x.device)
        )
        return laid_out if normal is None else laid_out + log_std.exp().reshape(laid_out.shape) * normal

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), exact. Shape ()."""
        l = self.prior_length_scale(length_scale)
        means, widths = weight_by_unit(self.layer), weight_by_unit(self.layer, self.log_std)
        weights = mean_field_kl(means, widths, l).sum()
        if self.bias_log_std is None or self.bias is None:
            return weights
        l = self.length_scale if length_scale is None else length_scale
        return weights + mean_field_kl(self.bias, self.bias_log_std, l).sum()
