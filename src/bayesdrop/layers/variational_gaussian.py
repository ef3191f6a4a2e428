"""Variational Gaussian dropout: Gaussian noise whose variance is learned under a log-uniform prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_flag, real_number
from bayesdrop.functional.log_uniform import log_uniform_kl
from bayesdrop.layers.base import WeightNoiseLayer
from bayesdrop.layers.weights import (
    apply_weights,
    bias_shape,
    is_batched,
    num_units,
    unit_axis,
    units_like_weight,
)
from bayesdrop.noise.samplers import NormalNoise
from bayesdrop.trace import active_draw

__all__ = ["VariationalGaussianDropout"]

_CEILING = 10.0
_SMALLEST = 1e-16


class VariationalGaussianDropout(WeightNoiseLayer):
    """Linear map with Gaussian noise N(1, a) on its weights or inputs, a = p / (1 - p) learned.

        noise="weights":  W_jk ~ N(w_jk, a w_jk^2);     training samples the outputs, N(W x + b, (a w^2) x^2)
        noise="inputs":   h = W (x * e) + b,            e_k ~ N(1, a)

    The first is the local reparametrisation: every output of every row has its own noise, at the cost of a
    second product. In a draw the noise of the weights is held, so that a draw is a function; the moments of
    each output are the same. The second is cheaper; it is the Gaussian dropout with learned variance that the
    paper on learnable Bernoulli dropout compares with.

    The prior is log-uniform and improper, so that there is no length scale, and the divergence (see
    `bayesdrop.functional.log_uniform.log_uniform_kl`) falls without limit as a grows. The result is penalised
    likelihood rather than a posterior (Boluki et al., 2020, section 1; Hron, Matthews & Ghahramani, 2018):
    prefer `ConcreteDropout` or `LearnableDropout` where uncertainty is the aim.

    Args:
        layer: the linear map, see `StochasticLayer`.
        p_init: where p = a / (1 + a) starts, in (0, 1).
        noise: on the "weights" or on the "inputs".
        per: one variance for the "layer", each input "unit", or (noise on the weights) each "weight".
        capped: a is at most 1 (p at most 1/2), as in Kingma et al.; otherwise log a is at most 10, where the
            noise is e^5 times the weight.

    Shape: as the wrapped layer.
    Reference: Kingma, Salimans & Welling (2015); Molchanov, Ashukha & Vetrov (2017).
    """

    def __init__(
        self,
        layer: nn.Module,
        p_init: float = 0.1,
        *,
        noise: Literal["weights", "inputs"] = "weights",
        per: Literal["layer", "unit", "weight"] = "layer",
        capped: bool = False,
    ) -> None:
        super().__init__(layer, None)
        owner = "VariationalGaussianDropout"
        if isinstance(layer, nn.Embedding):
            want = "a map of numbers: the outputs that it samples would differ where a word occurs twice"
            raise TypeError(must(owner, "layer", want, layer, "Use GaussianDropout or MixtureDropout."))
        if not is_one_of(noise, ("weights", "inputs")):
            raise ValueError(must(owner, "noise", "'weights' or 'inputs'", noise))
        choices = ("layer", "unit", "weight") if noise == "weights" else ("layer", "unit")
        if not is_one_of(per, choices):
            raise ValueError(must(owner, "per", f"one of {choices} for noise on the {noise}", per))
        must_be_flag(owner, capped=capped)
        p_init = real_number(owner, "p_init", p_init, "in (0, 1)", above=0, below=1)
        if capped and p_init > 0.5:
            raise ValueError(must(owner, "p_init", "at most 0.5 with capped=True", p_init))
        self.noise = noise
        self.per = per
        self.capped = capped
        self.p_init = p_init
        weight = self.layer.weight
        shapes: dict[str, tuple[int, ...]] = {
            "layer": (),
            "unit": (num_units(self.layer),),
            "weight": tuple(weight.shape),
        }
        start = torch.logit(torch.tensor(self.p_init, dtype=torch.float64)).item()
        self.log_alpha = nn.Parameter(
            torch.full(shapes[per], start, dtype=weight.dtype, device=weight.device)
        )

    @property
    def bounded_log_alpha(self) -> Tensor:
        """log a, cut off at 0 if capped, else at 10."""
        return self.log_alpha.clamp_max(0.0 if self.capped else _CEILING)

    @property
    def p(self) -> Tensor:  # type: ignore[override]
        """a / (1 + a), the rate of dropout with this variance; the mean where each weight has one."""
        p = torch.sigmoid(self.bounded_log_alpha)
        return p.mean() if self.per == "weight" else p

    def rate_parameters(self) -> Iterator[nn.Parameter]:
        """log a."""
        yield self.log_alpha

    def is_random(self) -> bool:
        """Always: a is above zero."""
        return True

    def _std_like_weight(self) -> Tensor:
        """sqrt(a), shaped to broadcast against the weight."""
        std = (0.5 * self.bounded_log_alpha).exp()
        return units_like_weight(self.layer, std) if self.per == "unit" else std

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See `WeightNoiseLayer.forward`."""
        if self.noise == "inputs":
            return self.mapped(self._noisy_input(x), output_size)
        if self.training and active_draw(self) is None:
            return self._sampled_outputs(x, output_size)
        return super().forward(x, output_size)

    def _noisy_input(self, x: Tensor) -> Tensor:
        axis = unit_axis(self.layer, x)

        def shape(rows: int) -> tuple[int, ...]:
            size = [1] * x.dim()
            size[axis] = x.shape[axis]
            if is_batched(self.layer, x):
                size[0] = rows
            return tuple(size)

        normal = self.noise_for(x, "input", shape, NormalNoise(x.device))
        if normal is None:
            return x
        std = (0.5 * self.bounded_log_alpha).exp()
        if std.dim():
            std = std.reshape([-1] + [1] * (x.dim() - 1 - axis))
        return x * (1 + std * normal)

    def _sampled_outputs(self, x: Tensor, output_size: Sequence[int] | None) -> Tensor:
        mean = self.mapped(x, output_size)
        variance = apply_weights(
            self.layer, x.square(), (self._std_like_weight() * self.layer.weight).square(), output_size
        )
        # The square root has no gradient at zero, where an input is all zeros.
        sampled: Tensor = mean + variance.clamp_min(_SMALLEST).sqrt() * torch.randn_like(mean)
        return sampled

    def weight_for(self, x: Tensor) -> Tensor:
        """The weights with their noise, in a draw."""
        weight = self.layer.weight
        like = self.sets_like(x, *weight.shape)
        normal = self.noise_for(x, "weight", like, NormalNoise(x.device), sets=True)
        return weight if normal is None else weight * (1 + self._std_like_weight() * normal)

    def bias_for(self, x: Tensor) -> Tensor | None:
        """The bias, which has no noise."""
        bias = self.bias
        return None if bias is None else bias.reshape(bias_shape(self.layer, x, 1))

    def kl(self, length_scale: float | None = None) -> Tensor:
        """Divergence from the log-uniform prior, up to a constant. Shape (). There is no length scale."""
        each = log_uniform_kl(self.bounded_log_alpha)
        # Weights that share a variance each have that divergence; noise on an input is one number a unit.
        count = num_units(self.layer) if self.noise == "inputs" else self.layer.weight.numel()
        return each.sum() * (count / each.numel())
