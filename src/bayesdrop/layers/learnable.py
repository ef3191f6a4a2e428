"""Learnable Bernoulli dropout: true masks, whose rates are learned by unbiased gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must
from bayesdrop.functional.arm import PathGradient, apply_learned
from bayesdrop.functional.masked_linear import masked_linear
from bayesdrop.layers.learned_rate import InitialRate, LearnedRateLayer, Per
from bayesdrop.layers.mask_pass import active_pass
from bayesdrop.layers.weights import is_plain_linear, padding_of
from bayesdrop.noise.bits import from_bits, random_bits
from bayesdrop.noise.samplers import KeepNoise, Noise
from bayesdrop.trace import active_draw

__all__ = ["LearnableDropout"]

Scaling = Literal["inverted", "raw"]


@dataclass(frozen=True, eq=False)
class _RawKeepNoise(Noise):
    """0 with chance p, else 1: mean 1 - p, variance p (1 - p)."""

    p: Tensor

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """See `from_bits`."""
        return from_bits(random_bits(shape, self.p.device, generator), self.p, scaled=False)

    @property
    def mean(self) -> Tensor:
        """1 - p."""
        return 1 - self.p

    @property
    def variance(self) -> Tensor:
        """p (1 - p)."""
        return self.p * (1 - self.p)


class LearnableDropout(LearnedRateLayer):
    """Linear map whose input units are dropped by true Bernoulli masks at rates that are learned.

        h = W (x * z / (1 - p)) + b,        z_k = 0 with chance p_k = sigmoid(logit_p_k), else 1

    A mask has no gradient in its rate. `NegativeELBO` and `arm_loss` run the part of the model after the
    first learned mask twice and estimate the gradient without bias from the difference of each row's loss
    (ARM, DisARM and others), plus the gradient through the scale 1 / (1 - p). Any other backward pass to the
    rates is an error.

    The divergence is sum_k [ l^2 |W_k|^2 / (2 (1 - p_k)) - H(p_k) ] + l^2 |b|^2 / 2, W_k being the weights
    that *leave* unit k; with raw masks (1 - p_k) |M_k|^2 takes the place of |W_k|^2 / (1 - p_k).

    Args:
        layer: the linear map, see `StochasticLayer`; one mask for a channel or word.
        p_init: where the rates start, in (0, 1): a number, a range (low, high) in which every rate is
            drawn uniformly in its logit, or a tensor with one for each unit.
        per: one rate for each input "unit" (feature, channel or word), or one for the "layer". `share_rates`
            gives all layers one rate.
        scaling: "inverted" divides by 1 - p, so that the mean weights are the wrapped ones; "raw" does not,
            as in the paper's equations: the mean weights are then (1 - p) times the wrapped ones.
        elementwise: each position has its own noise, as in `nn.Dropout`.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    Shape: as the wrapped layer.
    Reference: Boluki et al. (2020), Eqs 2, 3, 7 and 8. Their sigmoid(alpha) is our 1 - p.
    """

    def __init__(
        self,
        layer: nn.Module,
        p_init: InitialRate = 0.1,
        *,
        per: Per = "unit",
        scaling: Scaling = "inverted",
        elementwise: bool = False,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            p_init,
            per=per,
            elementwise=elementwise,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        if not is_one_of(scaling, ("inverted", "raw")):
            raise ValueError(must("LearnableDropout", "scaling", "'inverted' or 'raw'", scaling))
        self.scaling: Scaling = scaling

    def noise(self, p: Tensor) -> Noise:
        """The noise of a draw."""
        return KeepNoise(p.detach()) if self.scaling == "inverted" else _RawKeepNoise(p.detach())

    @property
    def weight(self) -> Tensor:
        """The mean weights; with raw masks 1 - p times the wrapped ones."""
        return self.layer.weight if self.scaling == "inverted" else self.layer.weight * self.unit_weights()

    def unit_weights(self) -> Tensor:
        """1 - p of every unit (1 for padding), shaped to broadcast against the weights."""
        keep = 1 - self.like_weight(self.p)
        padding = padding_of(self.layer)
        return keep if padding is None else torch.where(padding, 1.0, keep)

    def input_noise(self, x: Tensor) -> Tensor | None:
        """The noise that multiplies the input; in evaluation None, or for raw masks their mean 1 - p."""
        noise = super().input_noise(x)
        return self.laid_out(1 - self.p, x) if noise is None and self.scaling == "raw" else noise

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See `InputNoiseLayer.forward`."""
        if not self.training or active_draw(self) is not None or isinstance(self.layer, nn.Embedding):
            return super().forward(x, output_size)
        # The functions called here are hidden from function modes, such as the replay of a pass.
        with torch._C.DisableTorchFunction():
            logits, mask, gradient = self._fresh_mask(x)
            if gradient != "missing" and x.dim() == 2 and is_plain_linear(self.layer):
                weight, bias = self.layer.weight, self.layer.bias
                return masked_linear(x, weight, bias, logits, mask, inverted=gradient == "scale")
            masked = apply_learned(x, logits, mask, gradient=gradient)
        return self.mapped(masked, output_size)

    def multiplier(self, x: Tensor) -> Tensor | None:
        """See `InputNoiseLayer.multiplier`."""
        if not self.training or active_draw(self) is not None:
            return super().multiplier(x)
        with torch._C.DisableTorchFunction():
            logits, mask, gradient = self._fresh_mask(x)
            return apply_learned(torch.ones_like(mask), logits, mask, gradient=gradient)

    def _fresh_mask(self, x: Tensor) -> tuple[Tensor, Tensor, PathGradient]:
        """Logits, a mask for an input like `x`, and which part of its gradient autograd has to find."""
        inverted = self.scaling == "inverted"
        shape = self.noise_shape(x, x.shape[0])
        logits = self.laid_out(self.checked_logits(), x)
        p = torch.sigmoid(logits.detach())
        current = active_pass()
        if current is None:
            return logits, from_bits(random_bits(shape, x.device), p, scaled=inverted).to(x.dtype), "missing"
        mask = current.mask(self.logit_p, p, shape, x, inverted=inverted)
        return logits, mask, "scale" if inverted else "none"

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), up to the constant of a vanishing sigma. Shape ()."""
        return self.weight_kl(length_scale, raw=self.scaling == "raw") + self.bias_kl(length_scale)
