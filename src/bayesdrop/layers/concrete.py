"""Concrete dropout: a rate that is learned by gradient, through a relaxation of the mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, real_number
from bayesdrop.functional.relax import (
    apply_relaxed,
    apply_straight_through,
    hard_slope,
    relaxed_keep,
    relaxed_moments,
    relaxed_slope,
    with_slope,
)
from bayesdrop.layers.learned_rate import InitialRate, LearnedRateLayer, Per
from bayesdrop.layers.weights import is_batched
from bayesdrop.noise.bits import random_bits
from bayesdrop.noise.samplers import KeepNoise, Noise
from bayesdrop.trace import NOT_READY, HeldNoise, active_draw

__all__ = ["ConcreteDropout"]

Masks = Literal["relaxed", "hard", "straight-through"]


@dataclass(frozen=True, eq=False)
class _RelaxedNoise(Noise):
    """z / (1 - p) of the relaxed mask z: its mean is not quite one, see `relaxed_moments`."""

    logit_p: Tensor
    temperature: float

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator | None, /) -> Tensor:
        """See `relaxed_keep`."""
        logits = self.logit_p.detach() if generator is None else self.logit_p.detach().cpu()
        bits = random_bits(shape, logits.device, generator)
        return relaxed_keep(logits, bits, self.temperature).div_(torch.sigmoid(-logits))

    @property
    def mean(self) -> Tensor:
        """By quadrature."""
        return relaxed_moments(self.logit_p.detach(), self.temperature)[0]

    @property
    def variance(self) -> Tensor:
        """By quadrature."""
        return relaxed_moments(self.logit_p.detach(), self.temperature)[1]


class ConcreteDropout(LearnedRateLayer):
    """Linear map whose input units are dropped at a rate p that is learned.

        h = W (x * z / (1 - p)) + b,        z = sigmoid(-(logit p + logit u) / t),  u ~ U(0, 1)

    The divergence is that of `BernoulliDropout` at the same rate,
    sum_k [ l^2 |W_k|^2 / (2 (1 - p)) - H(p) ] + l^2 |b|^2 / 2. Its entropy term keeps p from falling to 0; it
    is divided by `num_data` and counts more when there are few data.

    Args:
        layer: the linear map, see `StochasticLayer`; whole channels or words are dropped, K of them.
        p_init: where the rate starts, in (0, 1): a number, a range (low, high) in which every rate is
            drawn uniformly in its logit, or a tensor with one for each unit.
        temperature: t, above 0. 0.1 is nearly hard; at 2/3 the mean of the noise is up to 6 % below one.
        masks: "hard": relaxed masks in training, Bernoulli masks in draws (`kl` is the divergence of these).
            "relaxed": relaxed masks in draws too, as in the paper. "straight-through": Bernoulli masks
            always, whose gradient in the rate is that of the relaxed mask. The rate also has that gradient in
            draws.
        per: one rate for the "layer", as in the paper, or one for each input "unit" (feature, channel, word).
        elementwise: each position has its own noise, as in `nn.Dropout`.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    A rate moves by its optimiser's step: Adam at 1e-3 changes a logit by at most 1e-3 a step. `fit` gives
    `rate_parameters()` ten times the learning rate of the weights.

    Shape: as the wrapped layer.
    Reference: Gal, Hron & Kendall (2017), Eqs 1 to 5.

    >>> layer = ConcreteDropout(nn.Linear(4, 3), p_init=0.2)
    >>> layer(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        layer: nn.Module,
        p_init: InitialRate = 0.1,
        *,
        temperature: float = 0.1,
        masks: Masks = "hard",
        per: Per = "layer",
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
        hint = "Use masks='hard' or 'straight-through' for masks without a temperature in draws."
        want = "a positive number, from 1e-6 to 1e6"
        temperature = real_number(
            "ConcreteDropout", "temperature", temperature, want, at_least=1e-6, at_most=1e6, hint=hint
        )
        if not is_one_of(masks, ("relaxed", "hard", "straight-through")):
            want = "'relaxed', 'hard' or 'straight-through'"
            raise ValueError(must("ConcreteDropout", "masks", want, masks))
        self.temperature = temperature
        self.masks: Masks = masks

    def extra_repr(self) -> str:
        """The rate and the kind of masks, for `print(model)`."""
        return f"{super().extra_repr()}, temperature={self.temperature:g}, masks={self.masks!r}"

    def noise(self, p: Tensor) -> Noise:
        """The noise of a draw."""
        if self.masks == "relaxed":
            return _RelaxedNoise(torch.logit(p.detach()), self.temperature)
        return KeepNoise(p.detach())

    def input_noise(self, x: Tensor) -> Tensor | None:
        """The noise that multiplies the input, with its gradient in the rate; None in evaluation."""
        draw = active_draw(self)
        logits = self.logit_p
        if draw is None or draw.sees_all or not (torch.is_grad_enabled() and logits.requires_grad):
            return super().input_noise(x)
        # Kept for these logits alone, as the graph leads to them: torch.func may replace them for a call.
        noise: Tensor | None = draw.ready(self, ("input", logits), x)
        if noise is NOT_READY:
            noise = super().input_noise(x)
            if noise is not None:
                with torch._C.DisableTorchFunction():
                    noise = self._with_slope(draw, x, noise)
            draw.remember(self, ("input", logits), x, noise)
        return noise

    def _with_slope(self, draw: HeldNoise, x: Tensor, noise: Tensor) -> Tensor:
        rows = x.shape[0] if is_batched(self.layer, x) else None
        logits = self.laid_out(self.logit_p, x)
        slope_of = relaxed_slope if self.masks == "relaxed" else hard_slope
        here, t = logits.detach().cpu(), self.temperature
        slope = draw.made_of_bits(
            self, "input", x, rows, lambda count: self.noise_shape(x, count), lambda b: slope_of(here, b, t)
        )
        return with_slope(noise, logits, slope)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See `InputNoiseLayer.forward`."""
        if not self.training or active_draw(self) is not None or isinstance(self.layer, nn.Embedding):
            return super().forward(x, output_size)
        return self.mapped(self._relaxed(x), output_size)

    def multiplier(self, x: Tensor) -> Tensor | None:
        """See `InputNoiseLayer.multiplier`."""
        if not self.training or active_draw(self) is not None:
            return super().multiplier(x)
        return self._relaxed(x.new_ones(self.noise_shape(x, x.shape[0])))

    def _relaxed(self, x: Tensor) -> Tensor:
        """The input times a fresh mask."""
        logits = self.laid_out(self.checked_logits(), x)
        bits = random_bits(self.noise_shape(x, x.shape[0]), x.device)
        relax = apply_straight_through if self.masks == "straight-through" else apply_relaxed
        return relax(x, logits, bits, self.temperature)
