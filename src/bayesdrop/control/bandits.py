"""Contextual bandits: see a context, choose an arm, get its reward, and learn from that alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_finite, must_be_module, must_be_tensor, real_number, whole_number
from bayesdrop.fit import fit
from bayesdrop.layers import total_kl
from bayesdrop.trace import FunctionDraw, evaluating

__all__ = ["Bandit", "EpsilonGreedyBandit", "ThompsonBandit", "UniformBandit"]


class Bandit(ABC):
    """Chooses arms for contexts that come in rounds: it chooses for a whole round, then learns from it.

    Args:
        num_features: D, numbers of a context.
        num_arms: K.
        seed: of its choices and its training.
    """

    def __init__(self, num_features: int, num_arms: int, *, seed: int = 0) -> None:
        owner = type(self).__name__
        self.num_features = whole_number(owner, "num_features", num_features, at_least=1)
        self.num_arms = whole_number(owner, "num_arms", num_arms, at_least=2)
        self.seed = whole_number(owner, "seed", seed, at_least=0)
        self.num_seen = 0
        self._generator = torch.Generator().manual_seed(self.seed)

    def choose(self, contexts: Tensor) -> Tensor:
        """An arm for every context. Shapes (N, D) -> (N,)."""
        self._check(contexts)
        with torch.no_grad():
            return self._choose(contexts)

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Learn from the rewards of a round.

        Args:
            contexts: (N, D).
            arms: (N,) the chosen arms.
            rewards: (N,) the rewards of these arms.
        """
        owner = type(self).__name__
        self._check(contexts)
        for name, value in (("arms", arms), ("rewards", rewards)):
            must_be_tensor(owner, name, value)
            if value.shape != contexts.shape[:1]:
                raise ValueError(must(owner, name, f"of shape ({len(contexts)},)", tuple(value.shape)))
        if arms.is_floating_point() or not bool(((arms >= 0) & (arms < self.num_arms)).all()):
            raise ValueError(must(owner, "arms", f"ints from 0 to {self.num_arms - 1}", arms))
        must_be_finite(owner, "rewards", rewards)
        self.num_seen += len(contexts)
        self._learn(contexts, arms.to(torch.int64), rewards.to(contexts.dtype))

    def _check(self, contexts: Tensor) -> None:
        owner = type(self).__name__
        must_be_tensor(owner, "contexts", contexts, floating=True)
        if contexts.dim() != 2 or contexts.shape[1] != self.num_features or len(contexts) == 0:
            want = f"of shape (N, {self.num_features})"
            raise ValueError(must(owner, "contexts", want, tuple(contexts.shape)))
        must_be_finite(owner, "contexts", contexts)

    @abstractmethod
    def _choose(self, contexts: Tensor) -> Tensor: ...

    @abstractmethod
    def _learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None: ...


class UniformBandit(Bandit):
    """Chooses every arm with the same chance: the baseline of regrets."""

    def _choose(self, contexts: Tensor) -> Tensor:
        return torch.randint(self.num_arms, (len(contexts),), generator=self._generator)

    def _learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        pass


class NetworkBandit(Bandit):
    """A bandit with a network from a context to the expected rewards of all arms.

    After every round, the network is trained on minibatches of the n pulls so far to minimise

        (f(x)_arm - reward / reward_scale)^2 / (2 noise_std^2) + KL / n

    Before the network chooses, every arm is pulled `initial_pulls` times.

    Args:
        network: (N, D) -> (N, K).
        num_features: D.
        num_arms: K.
        noise_std: of a reward, divided by `reward_scale`.
        reward_scale: a typical size of rewards.
        initial_pulls: how often each arm is pulled first, the arms in turn.
        steps: of Adam after every round.
        batch_size: of a step.
        lr: its learning rate; learned drop rates have ten times that.
        seed: of choices, draws and training.
    """

    def __init__(
        self,
        network: nn.Module,
        num_features: int,
        num_arms: int,
        *,
        noise_std: float = 0.1,
        reward_scale: float = 1.0,
        initial_pulls: int = 3,
        steps: int = 40,
        batch_size: int = 128,
        lr: float = 3e-3,
        seed: int = 0,
    ) -> None:
        super().__init__(num_features, num_arms, seed=seed)
        owner = type(self).__name__
        must_be_module(owner, "network", network)
        self.network = network
        self.noise_std = real_number(owner, "noise_std", noise_std, "a positive number", above=0)
        self.reward_scale = real_number(owner, "reward_scale", reward_scale, "a positive number", above=0)
        self.lr = real_number(owner, "lr", lr, "a positive number", above=0)
        self.initial_pulls = whole_number(owner, "initial_pulls", initial_pulls, at_least=0)
        self.steps = whole_number(owner, "steps", steps, at_least=1)
        self.batch_size = whole_number(owner, "batch_size", batch_size, at_least=1)
        out: Any = None
        with torch.no_grad(), evaluating(network), suppress(RuntimeError):
            out = network(torch.zeros(2, num_features))
        if not isinstance(out, Tensor) or out.shape != (2, num_arms):
            got = tuple(out.shape) if isinstance(out, Tensor) else "an error" if out is None else type(out)
            raise ValueError(must(owner, "network", f"from (N, {num_features}) to (N, {num_arms})", got))
        self._contexts = torch.empty(0, num_features)
        self._pulls = torch.empty(0, 2)
        self._optimizer: torch.optim.Optimizer | None = None
        self._rounds = 0

    def _choose(self, contexts: Tensor) -> Tensor:
        turn = torch.arange(self.num_seen, self.num_seen + len(contexts))
        chosen = self._best(contexts.to(self._contexts.dtype), turn)
        return torch.where(turn < self.initial_pulls * self.num_arms, turn % self.num_arms, chosen)

    @abstractmethod
    def _best(self, contexts: Tensor, turn: Tensor) -> Tensor:
        """(N,) the arms for contexts (N, D), whose numbers in the order of all contexts are `turn`, (N,)."""

    def _learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        pulls = torch.stack([arms.to(torch.float32), rewards.float() / self.reward_scale], 1)
        self._contexts = torch.cat([self._contexts, contexts.float()])
        self._pulls = torch.cat([self._pulls, pulls])
        self._rounds += 1
        self._train()

    def _train(self) -> None:
        """`steps` steps on pulls drawn with replacement, by an optimiser that goes on from round to round."""
        rows = torch.randint(self.num_seen, (self.steps * self.batch_size,), generator=self._generator)
        fit(
            self.network,
            (self._contexts[rows], self._pulls[rows]),
            self._loss,
            epochs=1,
            batch_size=self.batch_size,
            lr=self.lr,
            optimizer=self._same_optimizer,
            seed=self.seed + self._rounds,
            progress=False,
        )

    def _same_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        if self._optimizer is None:
            self._optimizer = torch.optim.Adam(groups)
        return self._optimizer

    def _loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        predicted = model(x).gather(1, y[:, :1].long()).squeeze(1)
        error = (predicted - y[:, 1]).square().mean() / (2 * self.noise_std**2)
        loss: Tensor = error + total_kl(model) / self.num_seen
        return loss


class ThompsonBandit(NetworkBandit):
    """Thompson sampling by dropout: every context has a draw of its own, whose best arm is chosen.

    The draws of a round go through the network at once. Arguments are those of `NetworkBandit`; the
    network needs stochastic layers or dropout.

    Reference: Gal & Ghahramani (2016), section 5.4; Riquelme, Tucker & Snoek (2018).
    """

    def _best(self, contexts: Tensor, turn: Tensor) -> Tensor:
        with FunctionDraw(self.network, seed=self.seed, index=turn.tolist()):
            rewards: Tensor = self.network(contexts)
        return rewards.argmax(1)


class EpsilonGreedyBandit(NetworkBandit):
    """Chooses the arm with the largest mean reward, or with chance epsilon a random arm.

    Args:
        network: as in `NetworkBandit`.
        num_features: D.
        num_arms: K.
        epsilon: chance of a random arm, in [0, 1].
        options: as of `NetworkBandit`.
    """

    def __init__(
        self, network: nn.Module, num_features: int, num_arms: int, *, epsilon: float = 0.05, **options: Any
    ) -> None:
        super().__init__(network, num_features, num_arms, **options)
        self.epsilon = real_number(
            type(self).__name__, "epsilon", epsilon, "a number in [0, 1]", at_least=0, at_most=1
        )

    def _best(self, contexts: Tensor, turn: Tensor) -> Tensor:
        with evaluating(self.network):
            best = self.network(contexts).argmax(1)
        count = len(contexts)
        arms = torch.randint(self.num_arms, (count,), generator=self._generator)
        explore = torch.rand(count, generator=self._generator) < self.epsilon
        return torch.where(explore, arms, best)
