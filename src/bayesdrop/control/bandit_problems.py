"""Problems for contextual bandits: the wheel, and any table of classes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.control.bandits import Bandit
from bayesdrop.errors import must, must_be_finite, must_be_tensor, real_number, whole_number

__all__ = ["BanditProblem", "Pulls", "TableBandit", "WheelBandit", "play"]


class BanditProblem(ABC):
    """Contexts, and the expected reward of every arm in each."""

    num_features: int
    num_arms: int
    noise_std: float = 0.0  #: standard deviation of the noise of a reward

    @abstractmethod
    def contexts(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Contexts (N, D), and expected rewards of all arms (N, K)."""


class WheelBandit(BanditProblem):
    """The wheel: one safe arm, and four arms that each pay well in one quadrant of a thin rim.

    A context is uniform in the unit disc. Arm 0 gives 1.2 and the others 1.0, except that where |x| > delta
    the arm of the quadrant of x gives 50: arm 1 for x1, x2 > 0, then arms 2, 3, 4 clockwise. The noise of a
    reward has a standard deviation of 0.01. The rim is a share of 1 - delta^2 of the disc.

    Args:
        delta: inner radius of the rim, in (0, 1).

    Reference: Riquelme, Tucker & Snoek (2018), section 5.4 and appendix; the names of arms are ours.
    """

    num_features, num_arms, noise_std = 2, 5, 0.01

    def __init__(self, delta: float = 0.5) -> None:
        self.delta = real_number("WheelBandit", "delta", delta, "a number in (0, 1)", above=0, below=1)

    def contexts(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """See the class."""
        radius = torch.rand(count, generator=generator).sqrt()
        angle = 2 * math.pi * torch.rand(count, generator=generator)
        x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
        return x, self.expected(x)

    def expected(self, x: Tensor) -> Tensor:
        """Mean rewards of the arms. Shapes (N, 2) -> (N, 5)."""
        rewards = torch.ones(len(x), 5)
        rewards[:, 0] = 1.2
        right, top = x[:, 0] > 0, x[:, 1] > 0
        arm = torch.where(right, torch.where(top, 1, 2), torch.where(top, 4, 3))
        rim = (x.norm(dim=1) > self.delta).nonzero().squeeze(1)
        rewards[rim, arm[rim]] = 50.0
        return rewards


class TableBandit(BanditProblem):
    """A table of classes: the right class gives 1, any other 0. Columns are standardised.

    Args:
        x: (N, D); contexts are its rows in a random order, a new one for each pass over the table.
        y: classes 0, ..., K - 1, (N,).
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        must_be_tensor("TableBandit", "x", x, floating=True)
        must_be_tensor("TableBandit", "y", y)
        must_be_finite("TableBandit", "x", x)
        if x.dim() != 2 or y.shape != x.shape[:1] or len(x) < 2:
            got = (tuple(x.shape), tuple(y.shape))
            raise ValueError(must("TableBandit", "x and y", "of shapes (N, D) and (N,)", got))
        if y.is_floating_point() or int(y.min()) < 0 or int(y.max()) < 1:
            raise ValueError(must("TableBandit", "y", "classes 0, ..., K - 1 with K of at least 2", y))
        self._x = (x - x.mean(0)) / x.std(0).clamp_min(1e-6)
        self._y = y.long()
        self.num_features, self.num_arms = x.shape[1], int(y.max()) + 1

    def contexts(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """See the class."""
        passes = -(-count // len(self._x))
        order = torch.cat([torch.randperm(len(self._x), generator=generator) for _ in range(passes)])[:count]
        return self._x[order], torch.nn.functional.one_hot(self._y[order], self.num_arms).float()


@dataclass(frozen=True, eq=False)
class Pulls:
    """The choices of a bandit, and their rewards.

    Attributes:
        arms: (N,) the chosen arms.
        rewards: (N,) the rewards of these arms.
        regret: (N,) expected reward of the best arm minus that of the chosen one.
    """

    arms: Tensor
    rewards: Tensor
    regret: Tensor


def play(
    bandit: Bandit, problem: BanditProblem, num_contexts: int, *, round_size: int = 20, seed: int = 0
) -> Pulls:
    """Let a bandit choose arms, in rounds after each of which it learns.

    With the same seed, all bandits see the same contexts, and an arm has the same noise.

    Args:
        bandit: made for the problem's features and arms.
        problem: gives contexts and expected rewards.
        num_contexts: N.
        round_size: contexts of a round.
        seed: of contexts and noise.
    """
    count = whole_number("play", "num_contexts", num_contexts, at_least=1)
    size = whole_number("play", "round_size", round_size, at_least=1)
    wanted = (problem.num_features, problem.num_arms)
    if (bandit.num_features, bandit.num_arms) != wanted:
        want = f"one for {wanted[0]} features and {wanted[1]} arms"
        raise ValueError(must("play", "bandit", want, (bandit.num_features, bandit.num_arms)))
    generator = torch.Generator().manual_seed(whole_number("play", "seed", seed, at_least=0))
    contexts, expected = problem.contexts(count, generator)
    noise = problem.noise_std * torch.randn(expected.shape, generator=generator)
    arms, rewards = [], []
    for start in range(0, count, size):
        now = slice(start, start + size)
        chosen = bandit.choose(contexts[now])
        given = (expected[now] + noise[now]).gather(1, chosen.unsqueeze(1)).squeeze(1)
        bandit.learn(contexts[now], chosen, given)
        arms.append(chosen)
        rewards.append(given)
    all_arms = torch.cat(arms)
    got = expected.gather(1, all_arms.unsqueeze(1)).squeeze(1)
    return Pulls(all_arms, torch.cat(rewards), expected.amax(1) - got)
