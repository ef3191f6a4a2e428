"""How agents learn their Q-networks, and how they explore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from bayesdrop.errors import must, real_number, whole_number

__all__ = ["EpsilonGreedy", "Explore", "Greedy", "Hold", "QLearning", "Thompson"]

#: for how many steps one draw acts, or "episode"
Hold = int | Literal["episode"]


@dataclass(frozen=True)
class QLearning:
    """Q-learning from replayed transitions, with the settings of the nine-eye world as defaults.

        loss = mean of (Q(s, a) - r - gamma max_a' Q'(s', a'))^2 / 2   [+ regulariser]

    Q' is the network itself under other noise, or a copy of it where `target_every` is given; no gradient
    goes through it. The regulariser of a network with fixed rates is weight_decay |W|^2 / 2 without
    the biases. A network with learned rates has KL(q || prior) / N instead, N being the number of
    transitions the agent has met so far: the squared error above is then that of a Gaussian with noise 1.

    Args:
        gamma: discount.
        lr: learning rate of plain SGD, without momentum.
        rate_lr: learning rate of drop rates; 10 lr if None.
        batch_size: transitions of an update, drawn with replacement.
        replay_size: transitions that are remembered.
        learn_after: updates begin when the memory has more transitions than this.
        weight_decay: of the weights, not of the biases.
        target_every: updates between copies of the network into the target network; none if None.
    """

    gamma: float = 0.7
    lr: float = 1e-3
    rate_lr: float | None = None
    batch_size: int = 64
    replay_size: int = 30_000
    learn_after: int = 1_000
    weight_decay: float = 0.0
    target_every: int | None = None

    def __post_init__(self) -> None:
        owner = "QLearning"
        real_number(owner, "gamma", self.gamma, "in [0, 1]", at_least=0, at_most=1)
        real_number(owner, "lr", self.lr, "a positive number", above=0)
        if self.rate_lr is not None:
            real_number(owner, "rate_lr", self.rate_lr, "a positive number or None", above=0)
        for name in ("batch_size", "replay_size"):
            whole_number(owner, name, getattr(self, name), at_least=1)
        whole_number(owner, "learn_after", self.learn_after, at_least=0)
        real_number(owner, "weight_decay", self.weight_decay, "a number of at least 0", at_least=0)
        if self.target_every is not None:
            whole_number(owner, "target_every", self.target_every, at_least=1)

    @property
    def learning_rate_of_rates(self) -> float:
        """The learning rate of drop rates."""
        return 10 * self.lr if self.rate_lr is None else self.rate_lr


@dataclass(frozen=True)
class Thompson:
    """Take the best action under one draw, held for `hold` steps or an episode.

    Args:
        hold: steps, or "episode".
        random_for: steps of random actions at the start.
    """

    hold: Hold = 1
    random_for: int = 0

    def __post_init__(self) -> None:
        if self.hold != "episode":
            hint = "Or 'episode'."
            whole_number("Thompson", "hold", self.hold, at_least=1, hint=hint)
        whole_number("Thompson", "random_for", self.random_for, at_least=0)


@dataclass(frozen=True)
class EpsilonGreedy:
    """Act at random with chance epsilon(age), and else take the best action of the mean weights.

    Args:
        epsilon: from the age in steps to a chance, such as `LinearDecay(3_000, 200_000)`.
        random_for: steps of random actions at the start.
    """

    epsilon: Callable[[int], float]
    random_for: int = 0

    def __post_init__(self) -> None:
        epsilon: Any = self.epsilon
        if not callable(epsilon):
            hint = "Give lambda age: 0.1 for a constant."
            raise TypeError(must("EpsilonGreedy", "epsilon", "a function of the age", epsilon, hint))
        whole_number("EpsilonGreedy", "random_for", self.random_for, at_least=0)


@dataclass(frozen=True)
class Greedy:
    """Always take the best action of the mean weights."""

    random_for: int = 0


Explore = Thompson | EpsilonGreedy | Greedy
