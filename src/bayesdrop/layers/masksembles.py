"""Masksembles: a few fixed masks that overlap, between dropout and an ensemble."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayesdrop.errors import real_number, whole_number
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.layers.weights import num_units, of_random_units, unit_square_norms
from bayesdrop.noise.samplers import FixedMasks

__all__ = ["Masksembles", "kept_share", "overlap_scale"]

_MOST_MASKS = 256


class Masksembles(InputNoiseLayer):
    """Linear map whose input goes through one of M fixed masks: M networks that share their weights.

        h = W (x * a_t) + b,        a_tk = z_tk M / d_k,   d_k = sum_t z_tk

    z_t is one of M masks that are drawn once, when the layer is made, and stored with it. Each keeps the same
    number of units m, each unit is kept by at least one, and two masks have m / scale units in common on
    average: `scale` 1 is one network, and a large one M networks that share nothing in this layer. A unit
    that d of the M masks keep is multiplied by M / d, so that the mean of the masks is one for every unit,
    and `eval()` is the network of mean weights.

    In training the batch is cut into M groups of rows, one after another, and group t goes through mask t.
    Draw t is mask t mod M, whatever the seed. All such layers of a network use the same t, so that mask t is
    one network; give batches of at least M rows. There are M functions in all: `predict(..., num_draws=M)`
    sees each of them, and more draws repeat them.

    The divergence is that of M points of equal chance, sum_k l^2 |W_k|^2 M / (2 d_k) - H + l^2 |b|^2 / 2, up
    to the constant of a vanishing sigma. H is the entropy of the choice among the masks, log M where all
    differ. It is a constant, as masks are not learned, and `total_kl` counts it for every layer although one
    choice of t makes the masks of all. What is left for training is weight decay.

    Args:
        layer: the linear map, see `StochasticLayer`; whole channels or words are masked.
        p: share of units that each mask drops, below 1 - 1 / M; rounded to whole units. It sets `scale`.
            None for that of `scale`.
        num_masks: M.
        scale: how little masks overlap, above 1; `p` is not used where it is given. None for that of `p`, and
            2 where neither is given.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        prior_on_bias: whether the bias has that prior too.

    Shape: as the wrapped layer.
    Reference: Durasov et al. (2021). They draw masks of m among m * scale units, again until the number of
    units that are used is the layer's; do not divide by M / d; and repeat the batch for every mask.

    >>> _ = torch.manual_seed(0)
    >>> layer = Masksembles(nn.Linear(8, 3), num_masks=4)
    >>> layer
    Masksembles(
      p=0.5, num_masks=4, scale=2
      (layer): Linear(in_features=8, out_features=3, bias=True)
    )
    >>> layer.keep.sum(1)
    tensor([4, 4, 4, 4])
    """

    keep: Tensor

    def __init__(
        self,
        layer: nn.Module,
        p: float | None = None,
        *,
        num_masks: int = 4,
        scale: float | None = None,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            None,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        owner = "Masksembles"
        self.num_masks = whole_number(owner, "num_masks", num_masks, at_least=2, at_most=_MOST_MASKS)
        if scale is None and p is not None:
            scale = overlap_scale(1 - _checked_share(p, self.num_masks), self.num_masks)
        want = "a number above 1, or None"
        self.scale = real_number(owner, "scale", 2.0 if scale is None else scale, want, above=1, at_most=1e6)
        units = num_units(self.layer)
        own = -(-units // self.num_masks)
        self._kept = max(own, min(units, round(kept_share(self.scale, self.num_masks) * units)))
        device = self.layer.weight.device
        self.register_buffer("keep", _drawn_masks(self.num_masks, units, self._kept).to(device))

    @property
    def p(self) -> Tensor:  # type: ignore[override]
        """Share of units that each mask drops, shape ()."""
        return self.layer.weight.new_tensor(1 - self._kept / num_units(self.layer))

    @property
    def masks(self) -> Tensor:
        """(M, K) what multiplies the units: 0, or M / d for a unit that d masks keep."""
        kept = self.keep.to(self.layer.weight.dtype)
        return kept * (self.num_masks / kept.sum(0).clamp_min(1))

    def extra_repr(self) -> str:
        """The share that is dropped, the number of masks and their overlap, for `print(model)`."""
        return f"{super().extra_repr()}, num_masks={self.num_masks}, scale={self.scale:.4g}"

    def noise(self, p: Tensor) -> FixedMasks:
        """The masks, whatever the rate."""
        return FixedMasks(self.masks)

    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior) of M points, up to the constant of a vanishing sigma. Shape ()."""
        l = self.prior_length_scale(length_scale)
        strength = of_random_units(self.layer, self.masks.square().mean(0))
        weights = 0.5 * l**2 * (unit_square_norms(self.layer) * strength).sum()
        kept = of_random_units(self.layer, self.keep).to(weights.dtype)
        # In a small layer two masks may be the same: they have all their units in common.
        common = kept @ kept.T
        alike = ((common == common.diag()) & (common == common.diag().unsqueeze(1))).sum(1)
        entropy = -(alike.to(weights.dtype) / self.num_masks).log().mean()
        return weights - entropy + self.bias_kl(length_scale)


def _checked_share(p: float, num_masks: int) -> float:
    most = 1 - 1 / num_masks
    want = f"above 0 and below {most:g}, as every unit is in one of {num_masks} masks"
    return real_number("Masksembles", "p", p, want, above=0, below=most)


def overlap_scale(kept: float, num_masks: int) -> float:
    """m / (units that two masks have in common), for masks that keep this share of the units.

    Args:
        kept: m / K, above 1 / M and below 1.
        num_masks: M.
    """
    other = (kept - 1 / num_masks) / (1 - 1 / num_masks)
    return kept / (2 / num_masks * other + (1 - 2 / num_masks) * other**2)


def kept_share(scale: float, num_masks: int) -> float:
    """The share of units that masks of this overlap keep: the inverse of `overlap_scale`.

    Each of M masks owns K / M units, and keeps any other unit with chance r: it keeps the share
    q = 1 / M + (1 - 1 / M) r, and shares (2 / M) r + (1 - 2 / M) r^2 = q / scale with another mask.
    """
    own = 1 / num_masks
    square, linear, constant = 1 - 2 * own, 2 * own - (1 - own) / scale, -own / scale
    if square == 0:
        chance = -constant / linear
    else:
        chance = (-linear + math.sqrt(linear**2 - 4 * square * constant)) / (2 * square)
    return own + (1 - own) * chance


def _drawn_masks(num_masks: int, units: int, kept: int) -> Tensor:
    """(M, K) masks that each keep `kept` units, random apart from that every unit is in one mask at least."""
    owner = (torch.randperm(units) % num_masks).unsqueeze(0)
    scores = torch.rand(num_masks, units)
    scores = scores.scatter_add(0, owner, torch.ones(1, units))
    chosen = scores.topk(kept, dim=1).indices
    return torch.zeros(num_masks, units, dtype=torch.bool).scatter(1, chosen, True)
