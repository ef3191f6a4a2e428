"""Noise on the inputs whose rate is a parameter: the base of Concrete and learnable dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, real_numbers
from bayesdrop.functional.learned_kl import learned_dropout_kl
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.layers.weights import (
    num_random_units,
    num_units,
    of_random_units,
    random_weights,
    weight_by_unit,
)

__all__ = ["InitialRate", "LearnedRateLayer", "Per"]

#: a rate, a range (low, high) to draw it from, or a tensor with one for each unit
InitialRate = float | tuple[float, float] | Tensor
Per = Literal["layer", "unit"]
# Beyond this, 1 / (1 - p) in single precision has no correct digit.
_LARGEST_LOGIT = 30.0


class LearnedRateLayer(InputNoiseLayer):
    """Noise on the inputs at a rate p = sigmoid(logit_p) that is learned.

    Args:
        layer: the linear map, see `StochasticLayer`; whole channels or words are dropped.
        p_init: where the rate starts, in (0, 1): a number, a range (low, high) in which every rate is
            drawn uniformly in its logit, or a tensor with one for each unit.
        per: one rate for the "layer", or one for each input "unit" (feature, channel or word).
        elementwise: each position has its own noise, as in `nn.Dropout`.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.
    """

    logit_p: nn.Parameter

    def __init__(
        self,
        layer: nn.Module,
        p_init: InitialRate = 0.1,
        *,
        per: Per = "layer",
        elementwise: bool = False,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            None,
            elementwise=elementwise,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        owner = type(self).__name__
        if not is_one_of(per, ("layer", "unit")):
            raise ValueError(must(owner, "per", "'layer' or 'unit'", per))
        self.per: Per = per
        shape = (num_units(self.layer),) if per == "unit" else ()
        logit, self.p_init = _initial_logits(owner, p_init, shape)
        self.logit_p = nn.Parameter(logit.to(self.layer.weight))

    @property
    def p(self) -> Tensor:  # type: ignore[override]
        """The chance of dropping, with its gradient. Shape () or (K,)."""
        return torch.sigmoid(self.logit_p)

    def rate_parameters(self) -> Iterator[nn.Parameter]:
        """The logits of the rate."""
        yield self.logit_p

    def is_random(self) -> bool:
        """Whether any rate differs from zero."""
        return bool((self.logit_p > -float("inf")).any())

    def checked_logits(self) -> Tensor:
        """The logits; raise if one is NaN or so large that everything is dropped."""
        logits = self.logit_p
        # Checked on the CPU only: elsewhere the check would wait for the device.
        if logits.device.type == "cpu" and not torch.compiler.is_compiling():
            # The maximum of numbers with a NaN is NaN.
            largest = logits.detach().amax().item() if logits.dim() else logits.item()
            if not largest <= _LARGEST_LOGIT:
                want = f"finite and below {_LARGEST_LOGIT:g}, where everything is dropped"
                hint = "Lower the learning rate of the rates, or check the loss and num_data."
                raise ValueError(must(type(self).__name__, "logit_p", want, largest, hint))
        return logits

    def laid_out(self, per_unit: Tensor, x: Tensor) -> Tensor:
        """Values of the units, shaped to broadcast against `x`."""
        if per_unit.dim() == 0:
            return per_unit
        return per_unit.reshape([-1] + [1] * (x.dim() - 1 - self.unit_axis(x)))

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior), up to the constant of a vanishing sigma. Shape ()."""
        return self.weight_kl(length_scale) + self.bias_kl(length_scale)

    def weight_kl(self, length_scale: float | None = None, *, raw: bool = False) -> Tensor:
        """The weights' part of `kl`."""
        layer, logits = self.layer, self.checked_logits()
        by_unit = random_weights(layer) if self.per == "layer" else weight_by_unit(layer)
        l = self.prior_length_scale(length_scale)
        logits = logits if self.per == "layer" else of_random_units(layer, logits)
        return learned_dropout_kl(by_unit, logits, num_random_units(layer), l, raw=raw)


def _initial_logits(
    owner: str, p_init: InitialRate, shape: tuple[int, ...]
) -> tuple[Tensor, float | tuple[float, float]]:
    """Logits of the given shape, and `p_init` as plain numbers."""
    if isinstance(p_init, Tensor):
        rate = real_numbers(owner, "p_init", p_init, "in (0, 1)")
        if rate.dim() and rate.shape != shape:
            want = f"a number, a range or a tensor of shape {shape}"
            raise ValueError(must(owner, "p_init", want, tuple(rate.shape)))
        if not bool(((rate > 0) & (rate < 1)).all()):
            raise ValueError(must(owner, "p_init", "in (0, 1)", p_init))
        return torch.logit(rate).expand(shape).clone(), float(rate.mean())
    ends = tuple(p_init) if isinstance(p_init, tuple | list) else (p_init, p_init)
    numbers = len(ends) == 2 and all(isinstance(e, int | float) and 0 < e < 1 for e in ends)
    if not numbers or ends[0] > ends[1]:
        raise ValueError(must(owner, "p_init", "in (0, 1), or a range (low, high) of such rates", p_init))
    low, high = torch.logit(torch.tensor(ends, dtype=torch.float64))
    logits = low + (high - low) * torch.rand(shape, dtype=torch.float64) if high > low else low.expand(shape)
    return logits.clone(), (float(ends[0]), float(ends[1])) if high > low else float(ends[0])
