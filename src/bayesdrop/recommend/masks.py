"""Dropout of choices: noise on the entries of a history, with fixed and with learned rates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.functional.arm import disarm_slope
from bayesdrop.recommend.histories import Bag

__all__ = ["ChoiceNoise", "ConcreteChoices", "FixedChoices", "GaussianChoices", "LearnableChoices", "NoNoise"]


@dataclass(frozen=True, eq=False)
class Mask:
    """The noise of one pass, and the numbers from which its mirrored noise is made."""

    factor: Tensor  #: (n,) multiplies the choices
    uniform: Tensor | None = None  #: (n,) the uniform numbers of hard masks with learned rates


class ChoiceNoise(nn.Module, ABC):
    """Noise that multiplies every choice of a history; its mean is one."""

    is_random = True

    @abstractmethod
    def sample(self, bag: Bag, generator: torch.Generator) -> Mask:
        """Fresh noise for every choice.

        Args:
            bag: the choices.
            generator: of random numbers.
        """

    def rates(self) -> Tensor | None:
        """The chance of dropping a choice, (I,) or (); None where nothing is dropped."""
        return None


class NoNoise(ChoiceNoise):
    """Nothing is dropped."""

    is_random = False

    def sample(self, bag: Bag, generator: torch.Generator) -> Mask:
        """Ones."""
        return Mask(torch.ones_like(bag.weights))


class FixedChoices(ChoiceNoise):
    """Choices are dropped with chance p; the others are divided by 1 - p."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.is_random = p > 0

    def sample(self, bag: Bag, generator: torch.Generator) -> Mask:
        """Zeros and 1 / (1 - p)."""
        uniform = torch.rand(len(bag.items), generator=generator)
        return Mask((uniform >= self.p).float().div_(1 - self.p))

    def rates(self) -> Tensor:
        """p."""
        return torch.tensor(self.p)


class _PerItem(ChoiceNoise):
    def __init__(self, num_items: int, p: float) -> None:
        super().__init__()
        self.logit_p = nn.Parameter(torch.full((num_items,), math.log(p / (1 - p))))

    def rates(self) -> Tensor:
        """(I,) p."""
        return torch.sigmoid(self.logit_p.detach())


class LearnableChoices(_PerItem):
    """A learned chance for every item; masks are hard, and the gradient is estimated by `disarm_`.

        factor = b / (1 - p),    b = 1[u >= p]

    The factor has a gradient through 1 / (1 - p); `disarm_` adds the gradient through b.
    """

    def sample(self, bag: Bag, generator: torch.Generator) -> Mask:
        """Hard masks."""
        uniform = torch.rand(len(bag.items), generator=generator)
        return Mask(self._factor(bag, uniform), uniform)

    def mirrored(self, bag: Bag, mask: Mask) -> Mask:
        """The masks of 1 - u, for the second of two passes."""
        assert mask.uniform is not None
        with torch.no_grad():
            return Mask(self._factor(bag, 1 - mask.uniform), 1 - mask.uniform)

    def _factor(self, bag: Bag, uniform: Tensor) -> Tensor:
        logits = self.logit_p[bag.items]
        kept = (uniform >= torch.sigmoid(logits.detach())).float()
        return kept / torch.sigmoid(-logits)

    @torch.no_grad()
    def disarm_(self, bag: Bag, mask: Mask, losses: Tensor, mirrored: Tensor) -> None:
        """Add the DisARM estimate of d mean(loss) / d logit p through the masks to the gradient.

            -1/2 (L_u - L'_u) (b - b') max(p, 1 - p)        for every choice of user u

        Args:
            bag: the choices.
            mask: of the first pass.
            losses: (B,) of the first pass.
            mirrored: (B,) of the pass with mirrored masks and the same other noise.
        """
        assert mask.uniform is not None
        p = torch.sigmoid(self.logit_p)[bag.items]
        first = (mask.uniform >= p).float()
        second = (1 - mask.uniform >= p).float()
        difference = ((losses - mirrored) / len(losses))[bag.rows % len(losses)]
        slope = disarm_slope(difference * (first - second), p)
        total = torch.zeros_like(self.logit_p).index_add_(0, bag.items, slope)
        self.logit_p.grad = total if self.logit_p.grad is None else self.logit_p.grad.add_(total)


class ConcreteChoices(_PerItem):
    """A learned chance for every item by relaxed masks, z / (1 - p), z = sigmoid((logit u - logit p) / t)."""

    def __init__(self, num_items: int, p: float, temperature: float) -> None:
        super().__init__(num_items, p)
        self.temperature = temperature

    def sample(self, bag: Bag, generator: torch.Generator) -> Mask:
        """Relaxed masks."""
        eps = torch.finfo(torch.float32).eps
        uniform = torch.rand(len(bag.items), generator=generator).clamp_(eps, 1 - eps)
        logits = self.logit_p[bag.items]
        kept = torch.sigmoid((torch.logit(uniform) - logits) / self.temperature)
        return Mask(kept / torch.sigmoid(-logits))


class GaussianChoices(_PerItem):
    """Choices times N(1, a), a learned for every item: a = p / (1 - p), the variance of dropout at p."""

    def sample(self, bag: Bag, generator: torch.Generator) -> Mask:
        """Normal numbers of mean one."""
        normal = torch.randn(len(bag.items), generator=generator)
        return Mask(1 + (0.5 * self.logit_p[bag.items]).exp() * normal)
