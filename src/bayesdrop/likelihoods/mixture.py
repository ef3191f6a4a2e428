"""Quantiles of a mixture of T distributions, which has no formula: a search, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["crossing", "normal_mixture_quantiles"]

#: steps towards a quantile, at most; a dozen are usual, half a dozen for normal components
_MOST_STEPS = 90
#: a step that is so small, in the smallest standard deviation of the components, is the last
_SMALL_STEP = 1e-8


def crossing(rising: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Close ends around the points where functions that rise from `lower` to `upper` reach zero.

    Chandrupatla's method, element by element: inverse quadratic interpolation where three values fit one, and
    halves elsewhere. Where a function jumps over zero, the ends lie on both sides of the jump.

    Reference: Chandrupatla (1997), Advances in Engineering Software 28.
    """
    a, b = lower, upper
    at_a, at_b = rising(a), rising(b)
    share = torch.full_like(a, 0.5)
    active = torch.ones_like(a, dtype=torch.bool)
    small = 4e-16 * torch.maximum(a.abs(), b.abs()) + 1e-15 * (b - a).abs() + torch.finfo(a.dtype).tiny
    for _ in range(_MOST_STEPS):
        x = a + share * (b - a)
        at_x = rising(x)
        same = (at_x < 0) == (at_a < 0)
        c, at_c = torch.where(same, a, b), torch.where(same, at_a, at_b)
        # What is found stays where it is, so that no element depends on how long the others take.
        b, at_b = torch.where(active & ~same, a, b), torch.where(active & ~same, at_a, at_b)
        a, at_a = torch.where(active, x, a), torch.where(active, at_x, at_a)
        b, at_b = torch.where(at_a == 0, a, b), torch.where(at_a == 0, at_a, at_b)
        active = active & ((b - a).abs() > 2 * small)
        if not bool(active.any()):
            break
        place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        fits = (height.square() < place) & ((1 - height).square() < 1 - place)
        guess = at_a / (at_b - at_a) * at_c / (at_b - at_c)
        guess = guess + (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        # At least a little inside: a step that hits the end would never move the other.
        least = (small / (b - a).abs()).clamp_max(0.5)
        guess = torch.minimum(torch.maximum(guess, least), 1 - least)
        share = torch.where(fits & guess.isfinite(), guess, 0.5)
    return torch.minimum(a, b), torch.maximum(a, b)


def normal_mixture_quantiles(mean: Tensor, std: Tensor, levels: Sequence[float]) -> Tensor:
    r"""The v with :math:`\frac{1}{T} \sum_t \Phi((v - m_t) / s_t) = q`, in double precision.

    A mixture of normal distributions that is not far from one has a nearly straight
    :math:`\Phi^{-1}(F(v))`: secants of it, from the quantile of the normal distribution with the mixture's
    moments on, are there in four or five steps. They stay between two ends that the quantile cannot leave,
    and halve the distance of these where they do not get on.

    Args:
        mean: m, (T, ...).
        std: s, of a shape that broadcasts to that of `mean`.
        levels: each q, in (0, 1).

    Returns: of shape (len(levels), ...).
    """
    mean, std = mean.to(torch.float64).contiguous(), std.to(torch.float64)
    steepness = (math.sqrt(0.5) / std).expand_as(mean).contiguous()
    centre = mean.mean(0)
    finest = std.expand_as(mean).amin(0)
    spread = (std.square().expand_as(mean).mean(0) + (mean - centre).square_().mean(0)).sqrt()

    def search(q: float) -> Tensor:
        # From the smaller tail, whose probabilities keep their digits.
        side = 1.0 if q <= 0.5 else -1.0
        level = float(torch.special.ndtri(torch.tensor(min(q, 1 - q), dtype=torch.float64)))

        def above(value: Tensor) -> Tensor:
            """By how much the N(0, 1) quantile of level F(value) is above that of level q."""
            # erfc keeps the digits of a tail, which ndtr does not.
            share = torch.sub(mean, value).mul_(steepness).mul_(side).erfc_().mean(0) * 0.5
            # F may be 0 or 1 far from a narrow component.
            distance: Tensor = torch.special.ndtri(share).clamp(-40, 40) - level
            return distance * side

        # The mixture's quantile lies between the smallest and the largest of its components' quantiles.
        ends = torch.add(mean, std, alpha=side * level)
        return _secants(above, ends.amin(0), ends.amax(0), centre + side * level * spread, spread, finest)

    return torch.stack([search(q) for q in levels])


def _secants(
    rising: Callable[[Tensor], Tensor],
    low: Tensor,
    high: Tensor,
    start: Tensor,
    spread: Tensor,
    finest: Tensor,
) -> Tensor:
    """Where nearly straight functions reach zero between `low` and `high`.

    Args:
        rising: the functions, element by element.
        low: below the zero.
        high: above it.
        start: of the search.
        spread: one over their slopes, about.
        finest: the shortest length on which they bend: a far smaller step is the last.
    """
    near = _SMALL_STEP * finest + 4e-16 * torch.maximum(low.abs(), high.abs())
    value = torch.minimum(torch.maximum(start, low), high)
    last, at_last, slope = value, torch.zeros_like(value), 1 / spread
    found = torch.zeros_like(value, dtype=torch.bool)
    step_before = two_before = torch.full_like(value, math.inf)
    for turn in range(_MOST_STEPS):
        at_value = rising(value)
        low = torch.where(at_value < 0, torch.maximum(low, value), low)
        high = torch.where(at_value > 0, torch.minimum(high, value), high)
        if turn:
            slope = (at_value - at_last) / (value - last)
        following = value - at_value / slope
        step = (following - value).abs()
        # Secants that leave the ends, or whose steps do not halve within two, are no guide here.
        astray = ~((following >= low) & (following <= high) & (step <= 0.5 * two_before))
        following = torch.where(astray, low + 0.5 * (high - low), following)
        # What is found stays where it is, so that no element depends on how long the others take.
        following = torch.where(found | (at_value == 0), value, following)
        step = (following - value).abs()
        # Not a number counts as found: it stays so.
        found = found | ((step <= near) & ~astray) | ~(high - low > 1e-6 * near) | (at_value == 0)
        last, at_last, value = value, at_value, following
        two_before, step_before = step_before, step
        if bool(found.all()):
            break
    return value
