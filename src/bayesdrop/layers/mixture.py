"""Mixture dropout: the Gaussian-mixture posterior that tends to dropout as its width vanishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import must_be_flag, whole_number
from bayesdrop.functional import gaussian_kl, low_rank_kl, mixture_dropout_kl
from bayesdrop.functional.kl import component_information, mixture_information
from bayesdrop.layers.base import WeightNoiseLayer, positive_scale
from bayesdrop.layers.weights import (
    bias_shape,
    fan_out,
    num_units,
    of_random_units,
    random_part,
    unit_square_norms,
    units_like_weight,
    weight_by_unit,
)
from bayesdrop.noise.samplers import KeepNoise, NormalNoise

__all__ = ["MixtureDropout"]

_MOST_COMPONENTS = 256
_LARGEST_RANK = 4096


class MixtureDropout(WeightNoiseLayer):
    """Linear map with a mixture of Gaussians over the weights that leave each input unit.

        q(W_k) = (1 - p) N(W_k / (1 - p), s^2 I) + p N(0, s^2 I),        q(b) = N(b, s^2 I)

    sampled as W_k z_k / (1 - p) + s e. As s falls to 0 this is `BernoulliDropout`; with s above 0 the
    layer's output has the extra variance s^2 (|x|^2 + 1). Three extensions:

    - `learn_sigma`: s is a parameter.
    - `components=C`: C - 1 means for a unit that is kept, of equal chance: W_k / (1 - p) + D_kc, where the
      learned `offsets` D_kc sum to zero over c, so that W stays the mean.
    - `rank=R`: the noise is s e + sum_r U_r e_r, with learned `factors` U_r of the weights' shape: the
      weights of all units have the covariance s^2 I + U U^T, together.

    The divergence of two components without factors is exact: see `bayesdrop.functional.mixture_dropout_kl`.
    Otherwise no closed form is known, and `kl` is an upper bound of it, so that the objective stays a lower
    bound of the evidence. Only one term is bounded, from below: the information of a sample about its
    component. For more than two components that is `bayesdrop.functional.kl.component_information`; with
    factors, the information in the weights of each unit alone. Both bounds are exact where components
    coincide and where they are far apart.

    Args:
        layer: the linear map, see `StochasticLayer`.
        p: chance of dropping, in [0, 1): one number, or one per input unit.
        sigma: s, the width of the components, above 0; where it starts if it is learned.
        learn_sigma: whether s is learned.
        components: C, at least 2: the one at zero and C - 1 others. Offsets start at random, at a tenth of
            the weights' size.
        rank: R, the number of factors; 0 for none. They start at random, of size s / sqrt(R).
        per_row: in training, a set of weights for every row instead of one for the batch.
        length_scale: prior length scale l: weights and bias have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l for the weights.

    Shape: as the wrapped layer.
    Reference: Gal & Ghahramani (2015), Eqs 9 to 13; the extensions are named at the end of its section 4.2.
    The paper's M is our W / (1 - p).
    """

    log_sigma: Tensor
    offsets: nn.Parameter | None
    factors: nn.Parameter | None

    def __init__(
        self,
        layer: nn.Module,
        p: float | Sequence[float] | Tensor = 0.1,
        *,
        sigma: float = 0.01,
        learn_sigma: bool = False,
        components: int = 2,
        rank: int = 0,
        per_row: bool = False,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
    ) -> None:
        super().__init__(
            layer, p, per_row=per_row, length_scale=length_scale, scale_by_fan_in=scale_by_fan_in
        )
        owner = "MixtureDropout"
        sigma = positive_scale(owner, "sigma", sigma)
        must_be_flag(owner, learn_sigma=learn_sigma)
        self.learn_sigma = learn_sigma
        self.components = whole_number(owner, "components", components, at_least=2, at_most=_MOST_COMPONENTS)
        self.rank = whole_number(owner, "rank", rank, at_least=0, at_most=_LARGEST_RANK)
        weight = self.layer.weight.detach()
        log_sigma = torch.tensor(sigma, dtype=torch.float64).log().to(weight)
        if learn_sigma:
            self.log_sigma = nn.Parameter(log_sigma)
        else:
            self.register_buffer("log_sigma", log_sigma)
        self.offsets = self.factors = None
        if components > 2:
            size = 0.1 * weight.square().mean().sqrt()
            self.offsets = nn.Parameter(size * torch.randn(components - 1, *weight.shape).to(weight))
        if rank:
            size = sigma / rank**0.5
            self.factors = nn.Parameter(size * torch.randn(rank, *weight.shape).to(weight))

    @property
    def sigma(self) -> Tensor:
        """The width of the components, shape ()."""
        return self.log_sigma.exp()

    def is_random(self) -> bool:
        """Always: sigma is above zero."""
        return True

    def extra_repr(self) -> str:
        """The rate, the width, and the number of components and factors, for `print(model)`."""
        shown = f"{super().extra_repr()}, sigma={self.sigma.item():.4g}"
        if self.components > 2:
            shown += f", components={self.components}"
        return f"{shown}, rank={self.rank}" if self.rank else shown

    def centred_offsets(self) -> Tensor | None:
        """Offsets of the kept components from their mean, (C - 1, *weight.shape); None if there is one."""
        return None if self.offsets is None else self.offsets - self.offsets.mean(0)

    def weight_for(self, x: Tensor) -> Tensor:
        """The weights of a component, chosen unit by unit, plus Gaussian noise."""
        weight, units, device = self.layer.weight, num_units(self.layer), self.log_sigma.device
        keep = self.noise_for(x, "unit", self.sets_like(x, units), KeepNoise(self.p), sets=True)
        if keep is None:
            return weight
        normal = self.noise_for(x, "weight", self.sets_like(x, *weight.shape), NormalNoise(device), sets=True)
        assert normal is not None
        drawn = weight * units_like_weight(self.layer, keep) + self.sigma * normal
        offsets = self.centred_offsets()
        if offsets is not None:
            which = self.noise_for(x, "component", self.sets_like(x, units), self._choice, sets=True)
            assert which is not None
            for index, offset in enumerate(offsets):
                chosen = ((which == index) & (keep != 0)).to(weight.dtype)
                drawn = drawn + offset * units_like_weight(self.layer, chosen)
        if self.factors is not None:
            tied = self.noise_for(x, "factor", self.sets_like(x, self.rank), NormalNoise(device), sets=True)
            assert tied is not None
            shared = tied @ self.factors.flatten(1)
            drawn = drawn + shared.reshape(*shared.shape[:-1], *weight.shape)
        return random_part(self.layer, drawn)

    def _choice(self, shape: tuple[int, ...], generator: np.random.Generator | None) -> Tensor:
        """The numbers of the kept components that are chosen, uniformly."""
        count = self.components - 1
        if generator is None:
            return torch.randint(count, shape, device=self.log_sigma.device)
        return torch.from_numpy(generator.integers(count, size=shape))

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
            NormalNoise(self.log_sigma.device),
        )
        return laid_out if normal is None else laid_out + self.sigma * normal

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior): exact for two components and rank 0, else an upper bound of it. Shape ()."""
        p = of_random_units(self.layer, self.p.expand(num_units(self.layer)))
        l = self.prior_length_scale(length_scale)
        if self.offsets is None and self.factors is None:
            squares = unit_square_norms(self.layer)
            weights = mixture_dropout_kl(squares, p, self.sigma, fan_out(self.layer), l).sum()
        else:
            weights = self._bounded_kl(p, l)
        if self.bias is None:
            return weights
        l = self.length_scale if length_scale is None else length_scale
        return weights + gaussian_kl(self.bias.square(), self.sigma.square(), l).sum()

    def _bounded_kl(self, p: Tensor, l: float) -> Tensor:
        """The bound for the weights, from the means of the components and their common covariance."""
        means = (weight_by_unit(self.layer) / (1 - p)).unsqueeze(0)
        offsets = self.centred_offsets()
        if offsets is not None:
            means = means + torch.stack([weight_by_unit(self.layer, offset) for offset in offsets])
        factors = None
        if self.factors is not None:
            factors = torch.stack([weight_by_unit(self.layer, factor) for factor in self.factors])
        spread = 0.5 * l**2 * ((1 - p) * means.square().sum(1).mean(0)).sum()
        noise = low_rank_kl(factors, self.sigma, means[0].numel(), l)
        means = torch.cat([torch.zeros_like(means[:1]), means])
        square = _square_distances(means, factors, self.sigma)
        if offsets is None:
            # The root has no derivative at zero, where the information is flat.
            distance = (square[:, 0, 1] + torch.finfo(square.dtype).tiny).sqrt()
            information = mixture_information(distance, p)
        else:
            kept = ((1 - p) / (self.components - 1)).unsqueeze(-1).expand(-1, self.components - 1)
            information = component_information(square, torch.cat([p.unsqueeze(-1), kept], -1))
        return spread + noise - information.sum()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        # Older files, from before sigma could be learned, hold sigma itself.
        if f"{prefix}sigma" in state_dict:
            state_dict[f"{prefix}log_sigma"] = state_dict.pop(f"{prefix}sigma").log()  # type: ignore[attr-defined, index]
        super()._load_from_state_dict(state_dict, prefix, *args)


def _square_distances(means: Tensor, factors: Tensor | None, sigma: Tensor) -> Tensor:
    """Square distances between the components of every unit, in units of their noise. Shape (K, C, C).

    Args:
        means: (C, J, K): J weights leave each of K units.
        factors: (R, J, K), or None.
        sigma: s. The weights of unit k have the covariance s^2 I + U_k U_k^T.
    """
    apart = (means.unsqueeze(1) - means.unsqueeze(0)).movedim(-1, 0)
    square = apart.square().sum(-1)
    if factors is not None:
        by_unit = factors.movedim(-1, 0)
        small = by_unit @ by_unit.transpose(1, 2) + sigma.square() * torch.eye(len(factors)).to(sigma)
        seen = torch.einsum("kabj,krj->kabr", apart, by_unit)
        solved = torch.linalg.solve(small.unsqueeze(1), seen.transpose(-1, -2)).transpose(-1, -2)
        square = (square - (seen * solved).sum(-1)).clamp_min(0)
    return square / sigma.square()
