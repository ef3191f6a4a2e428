"""Targets with a nature: skewed ones, shares and whole numbers, as a Gaussian seen through a monotone map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import is_one_of, must, must_be_flag, must_be_tensor, real_number
from bayesdrop.likelihoods.base import NumberLikelihood
from bayesdrop.likelihoods.gaussian import check_targets, normal_quantile
from bayesdrop.likelihoods.mixture import normal_mixture_quantiles

__all__ = ["Warp", "WarpedGaussian"]

#: nodes of the quadrature for mean and variance
_NODES = 24
#: a share is taken to lie so far inside the ends of its range: an observed end has no logit
_INSIDE = 0.01
#: whole numbers that are summed up one by one, and the share left out on each side of them
_FEW, _TAIL = 40, 1e-9


@dataclass(frozen=True)
class Warp:
    """A monotone map g of a target, and what is known of the target's values.

        "none"    g(y) = y
        "asinh"   g(y) = asinh((y - centre) / scale): straight near the centre, a logarithm far from it
        "logit"   g(y) = log(y - low + e) - log(high - y + e),    e = (high - low) / 100

    Args:
        kind: "none", "asinh" or "logit".
        centre: of "asinh".
        scale: of "asinh", above 0.
        low: predictions are not below it.
        high: predictions are not above it.
        whole: whether the target is a whole number.

    >>> Warp("asinh", scale=2.0)(torch.tensor([0.0, 2.0]))
    tensor([0.0000, 0.8814])
    """

    kind: Literal["none", "asinh", "logit"] = "none"
    centre: float = 0.0
    scale: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def __post_init__(self) -> None:
        if not is_one_of(self.kind, ("none", "asinh", "logit")):
            raise ValueError(must("Warp", "kind", "'none', 'asinh' or 'logit'", self.kind))
        real_number("Warp", "centre", self.centre, "a number")
        real_number("Warp", "scale", self.scale, "above 0", above=0)
        must_be_flag("Warp", whole=self.whole)
        if not self.low < self.high:
            raise ValueError(must("Warp", "low", f"below high ({self.high:g})", self.low))
        if self.kind == "logit" and not math.isfinite(self.high - self.low):
            raise ValueError(must("Warp", "low", "finite with 'logit', as `high`", (self.low, self.high)))

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing."""
        return self == Warp()

    @property
    def _edge(self) -> float:
        return _INSIDE * (self.high - self.low)

    def __call__(self, y: Tensor) -> Tensor:
        """g(y). Shape as y."""
        if self.kind == "asinh":
            return ((y - self.centre) / self.scale).asinh()
        if self.kind == "logit":
            least = torch.finfo(y.dtype).tiny
            above, below = (y - self.low + self._edge), (self.high + self._edge - y)
            return above.clamp_min(least).log() - below.clamp_min(least).log()
        return y

    def inverse(self, z: Tensor) -> Tensor:
        """The y whose g is z. Shape as z."""
        if self.kind == "asinh":
            # Beyond this a double has no hyperbolic sine.
            return z.clamp(-700, 700).sinh() * self.scale + self.centre
        if self.kind == "logit":
            return self.low - self._edge + (self.high - self.low + 2 * self._edge) * z.sigmoid()
        return z

    def log_slope(self, y: Tensor) -> Tensor:
        """log g'(y), which a density of g(y) lacks to be one of y. Shape as y."""
        if self.kind == "asinh":
            return -0.5 * torch.log1p(((y - self.centre) / self.scale).square()) - math.log(self.scale)
        if self.kind == "logit":
            least = torch.finfo(y.dtype).tiny
            above, below = (y - self.low + self._edge), (self.high + self._edge - y)
            width = math.log(self.high - self.low + 2 * self._edge)
            return width - above.clamp_min(least).log() - below.clamp_min(least).log()
        return torch.zeros_like(y)

    def bounded(self, y: Tensor) -> Tensor:
        """Values that the target can have: within the bounds, and whole where it is. Shape as y."""
        # Adding zero makes 0 of -0.
        return (y.round() + 0.0 if self.whole else y).clamp(self.low, self.high)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; `from_dict` is the way back."""
        found = {"kind": self.kind, "centre": self.centre, "scale": self.scale, "whole": self.whole}
        ends = {name: value for name in ("low", "high") if math.isfinite(value := getattr(self, name))}
        return {**found, **ends}

    @staticmethod
    def from_dict(state: dict[str, Any]) -> Warp:
        """From what `as_dict` gave."""
        return Warp(**state)


class WarpedGaussian(NumberLikelihood):
    """g(y) ~ N(m(x), exp(s(x))) for a monotone map g; whole numbers have the probability of their cells.

    The last axis of an output holds D means, then D log-variances, both of g(y).

    *Numbers*: p(y) = N(g(y); m, exp(s)) g'(y), a density in y's own units, whatever g is.

    *Whole numbers*: p(k) = P(g(k - 1/2) < z <= g(k + 1/2)), and the cell of `low` takes all below it, that of
    `high` all above. Cells are one wide, so that this is the density, constant over a cell, of any y in it:
    log-likelihoods of whole numbers are compared with densities on the same measure.

    Mean and variance are those of values within the bounds, by quadrature; quantiles and samples are within
    them, too, and whole where the target is.

    Args:
        warp: g, bounds, and whether the target is a whole number.

    Shape: output (N, ..., 2 D), y (N, ..., D) -> (N,).
    """

    def __init__(self, warp: Warp) -> None:
        super().__init__()
        self.warp = warp
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        self._nodes = torch.from_numpy(nodes)
        self._weights = torch.from_numpy(weights / weights.sum())

    def extra_repr(self) -> str:
        """The map, for `print`."""
        return str(self.warp)

    def split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-variances of g(y)."""
        must_be_tensor("WarpedGaussian", "output", output, floating=True)
        if output.dim() < 2 or output.shape[-1] % 2:
            want = "(N, ..., 2 D): D means, then D log-variances"
            raise ValueError(must("WarpedGaussian", "output", want, tuple(output.shape)))
        mean, log_variance = output.chunk(2, dim=-1)
        return mean, log_variance

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y), summed over outputs. Shape (N,)."""
        mean, log_variance = self.split(output)
        check_targets("WarpedGaussian", mean, y)
        y = y.to(mean.dtype)
        if self.warp.whole:
            terms = self._log_cell(mean, (0.5 * log_variance).exp(), (y + 0.5).floor())
        else:
            away = (self.warp(y) - mean).square() * (-log_variance).exp()
            terms = self.warp.log_slope(y) - 0.5 * (away + log_variance + math.log(2 * math.pi))
        return terms.sum(tuple(range(1, terms.dim()))) if terms.dim() > 1 else terms

    def _log_cell(self, mean: Tensor, std: Tensor, y: Tensor) -> Tensor:
        """log P(g(y - 1/2) < z <= g(y + 1/2)), the cells at the bounds open."""
        warp = self.warp
        low, high = (warp(y - 0.5) - mean) / std, (warp(y + 0.5) - mean) / std
        low = torch.where(y <= warp.low, -math.inf, low)
        high = torch.where(y >= warp.high, math.inf, high)
        # From the smaller tail, so that small probabilities keep their digits.
        flip = low > 0
        low, high = torch.where(flip, -high, low), torch.where(flip, -low, high)
        upper = torch.special.log_ndtr(high)
        inside = upper + torch.log1p(-(torch.special.log_ndtr(low) - upper).exp().clamp_max(1))
        return torch.where((y < warp.low) | (y > warp.high), -math.inf, inside)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y, each (N, ..., D)."""
        mean, log_variance = self.split(output)
        nodes, weights = self._nodes.to(mean), self._weights.to(mean)
        values = mean.unsqueeze(-1) + (0.5 * log_variance).exp().unsqueeze(-1) * nodes
        values = self.warp.inverse(values).clamp(self.warp.low, self.warp.high)
        centre = (values * weights).sum(-1)
        variance = ((values - centre.unsqueeze(-1)).square() * weights).sum(-1)
        return self._cell_moments(output, centre, variance) if self.warp.whole else (centre, variance)

    def _cell_moments(self, output: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Those of whole numbers, summed up where these are few; where they are many, cells do not matter."""
        first, last = self.quantile(output, _TAIL), self.quantile(output, 1 - _TAIL)
        steps = torch.arange(_FEW, dtype=mean.dtype, device=mean.device)
        # E y = a + sum P(y > a + j), and E (y - a)^2 = sum (2 j + 1) P(y > a + j), for y from a on.
        place, log_variance = (part.unsqueeze(-1) for part in self.split(output))
        above = 1 - self._below(place, log_variance, first.unsqueeze(-1) + steps)
        total, squares = above.sum(-1), ((2 * steps + 1) * above).sum(-1)
        few = last - first < _FEW
        exact = (squares - total.square()).clamp_min(0)
        return torch.where(few, first + total, mean), torch.where(few, exact, variance)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One y for every output, within the bounds."""
        mean, log_variance = self.split(output)
        normal = torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return self.warp.bounded(self.warp.inverse(mean + (0.5 * log_variance).exp() * normal))

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """P(y <= value), element by element."""
        mean, log_variance = self.split(output)
        return self._below(mean, log_variance, value)

    def _below(self, mean: Tensor, log_variance: Tensor, value: Tensor) -> Tensor:
        warp = self.warp
        edge = value.floor() + 0.5 if warp.whole else value
        below = torch.special.ndtr((warp(edge) - mean) / (0.5 * log_variance).exp())
        below = torch.where(value >= warp.high, 1.0, below)
        return torch.where(value < warp.low, 0.0, below)

    def quantile(self, output: Tensor, q: float) -> Tensor:
        """The value that y stays below with chance q, element by element."""
        mean, log_variance = self.split(output)
        return self.settled(self.warp.inverse(mean + (0.5 * log_variance).exp() * normal_quantile(q)))

    def mixture_quantiles(self, outputs: Tensor, levels: Sequence[float]) -> Tensor:
        """See `NumberLikelihood`."""
        mean, log_variance = self.split(outputs.to(torch.float64))
        found = normal_mixture_quantiles(mean, (0.5 * log_variance).exp(), levels)
        # Of a map that rises: the quantile of what it makes is what it makes of the quantile.
        return self.settled(self.warp.inverse(found))

    def settled(self, value: Tensor) -> Tensor:
        """See `NumberLikelihood`."""
        return self.warp.bounded(value)
