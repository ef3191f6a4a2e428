"""Agents over any Q-network: Thompson sampling by dropout, epsilon-greedy, and greedy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bayesdrop.control.coins import Coins
from bayesdrop.control.q_learner import QLearner, check_network
from bayesdrop.control.replay import Replay
from bayesdrop.control.settings import EpsilonGreedy, Hold, QLearning, Thompson
from bayesdrop.errors import NoRandomness, must, whole_seed
from bayesdrop.trace import FunctionDraw, StochasticModule, evaluating

__all__ = ["EpsilonGreedyAgent", "GreedyAgent", "QAgent", "ThompsonAgent"]

Actions = NDArray[np.int64]
Seen = NDArray[np.float32]


class QAgent(ABC):
    """One Q-network that acts in any number of worlds at once, and learns from all of them.

    A step of `train` makes one update, however many worlds there are.

    Args:
        network: any module from (N, inputs) to (N, actions); dropout in it makes it random.
        inputs: numbers of an observation.
        learning: how the network is trained; None for no training.
        seed: of actions, replay and draws. Noise of training follows `torch.manual_seed`.
        random_for: steps of random actions at the start.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        inputs: int,
        learning: QLearning | None,
        seed: int = 0,
        random_for: int = 0,
    ) -> None:
        owner = type(self).__name__
        self.network, self.inputs = network, inputs
        self.num_actions = check_network(owner, network, inputs)
        self.seed = whole_seed(owner, seed)
        self.learning, self.random_for = learning, random_for
        self.age = 0
        self.learner = None if learning is None else QLearner(network, learning)
        self.replay = None
        if learning is not None:
            size = learning.batch_size
            self.replay = Replay(learning.replay_size, inputs, seeds=[self.seed], batch_size=size)
        self._coins: Coins | None = None
        self._num_worlds = 0
        self._met = 0

    def act(self, observations: Seen) -> Actions:
        """(W,) the action for every world's observation, (W, inputs). The agent's age grows by one step."""
        worlds = len(observations)
        if self._coins is None or worlds != self._num_worlds:
            self._begin(worlds)
        assert self._coins is not None
        coins = self._coins.next().reshape(worlds, 2)
        self.age += 1
        random = (coins[:, 1] * self.num_actions).astype(np.int64)
        best = self.choose(torch.from_numpy(np.asarray(observations, np.float32)))
        if self.age <= self.random_for:
            return random
        return np.where(coins[:, 0] < self.random_share(), random, best)

    def _begin(self, worlds: int) -> None:
        """Prepare for a number of worlds; called when it changes."""
        self._num_worlds = worlds
        self._coins = Coins([self.seed], 2 * worlds)

    @abstractmethod
    def choose(self, observations: Tensor) -> Actions:
        """(W,) the actions that the agent takes to be the best."""

    def random_share(self) -> float:
        """The chance of a random action."""
        return 0.0

    def drawn(self, place: int) -> int:
        """Index of the draw that acts in a world; -1 for the mean weights."""
        return -1

    def remember(
        self,
        observations: Seen,
        actions: Actions,
        rewards: NDArray[np.float64],
        next_observations: Seen,
        terminated: NDArray[np.bool_],
        over: NDArray[np.bool_] | None = None,
    ) -> None:
        """Store one transition of every world, with the index of the draw that was held."""
        for place in range(len(actions) if self.replay is not None else 0):
            one = slice(place, place + 1)
            assert self.replay is not None
            self.replay.add(
                observations[one],
                actions[one],
                rewards[one],
                next_observations[one],
                terminated[one],
                np.array([self.drawn(place)]),
            )
        self._met += len(actions)

    def learn(self) -> bool:
        """One update, if the memory has enough transitions; returns whether there was one."""
        if self.learner is None or self.replay is None or self.learning is None:
            return False
        if len(self.replay) <= self.learning.learn_after:
            return False
        self.learner.update(self.replay.sample(), num_data=self._met)
        return True


class ThompsonAgent(QAgent):
    """Takes the best action under one draw of its Q-network: Thompson sampling by dropout.

    Every world has a draw of its own, held for `hold` steps or until its episode is over. The draw is
    `FunctionDraw(network, seed=seed, index=draw)`; its index is stored with every transition, so that
    `values_as_acted` gives the values by which the action was chosen, with their gradient. Methods that
    learn on-policy need that (consistent dropout).

    Args:
        network: as `QAgent`; something in it must be random.
        inputs: numbers of an observation.
        hold: steps for which a draw is held, or "episode".
        learning: how the network is trained; not at all if None.
        seed: as `QAgent`.
        random_for: steps of random actions at the start.

    Reference: Gal & Ghahramani (2016), section 5.4.

    >>> from bayesdrop.models import mlp
    >>> agent = ThompsonAgent(mlp(27, (50, 50), 5, p=0.1, input_p=0.0), inputs=27, hold="episode")
    >>> agent.act(np.ones((3, 27), np.float32)).shape
    (3,)
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        inputs: int,
        hold: Hold = 1,
        learning: QLearning | None = QLearning(),  # noqa: B008  (frozen)
        seed: int = 0,
        random_for: int = 0,
    ) -> None:
        explore = Thompson(hold=hold, random_for=random_for)
        super().__init__(network, inputs=inputs, learning=learning, seed=seed, random_for=explore.random_for)
        layers = [part for part in network.modules() if isinstance(part, StochasticModule)]
        plain = [part for part in network.modules() if isinstance(part, nn.modules.dropout._DropoutNd)]
        if not any(layer.is_random() for layer in layers) and not any(part.p > 0 for part in plain):
            raise NoRandomness(
                "ThompsonAgent: nothing in `network` is random, so that there is only one function to draw. "
                "Wrap its weight layers, as BernoulliDropout(nn.Linear(50, 5), p=0.1)."
            )
        self.hold = explore.hold
        self._draws: NDArray[np.int64] = np.zeros(0, np.int64)
        self._left: NDArray[np.int64] = np.zeros(0, np.int64)
        self._next_draw = 0

    def _begin(self, worlds: int) -> None:
        super()._begin(worlds)
        self._draws, self._left = np.full(worlds, -1), np.zeros(worlds, np.int64)

    def choose(self, observations: Tensor) -> Actions:
        """The best actions under each world's draw."""
        for place in np.flatnonzero(self._left <= 0):
            self._draws[place] = self._next_draw
            self._next_draw += 1
            self._left[place] = np.iinfo(np.int64).max if self.hold == "episode" else self.hold
        self._left -= 1
        with torch.no_grad():
            values = self.values_as_acted(observations, torch.from_numpy(self._draws))
        return values.argmax(1).numpy()

    def values_as_acted(self, observations: Tensor, draws: Tensor) -> Tensor:
        """Values of all actions, row i under the draw of index draws[i]; -1 stands for the mean weights.

        Args:
            observations: (N, inputs).
            draws: (N,) indices, as `Replay` stores them.

        Returns: (N, actions), with gradients in the network's weights.
        """
        indices, counts = np.unique(draws.numpy(), return_counts=True)
        if len(indices) > 1 and indices[0] >= 0 and (counts == counts[0]).all():
            # Every draw has the same number of rows: one pass runs all draws.
            by_function = draws.argsort(stable=True)
            with FunctionDraw(self.network, seed=self.seed, index=indices.tolist()):
                return cast(Tensor, self.network(observations[by_function]))[by_function.argsort()]
        parts, order = [], []
        for index in indices.tolist():
            rows = torch.nonzero(draws == index).squeeze(1)
            if index < 0:
                with evaluating(self.network):
                    parts.append(self.network(observations[rows]))
            else:
                with FunctionDraw(self.network, seed=self.seed, index=index):
                    parts.append(self.network(observations[rows]))
            order.append(rows)
        return torch.cat(parts)[torch.cat(order).argsort()]

    def drawn(self, place: int) -> int:
        """Index of the draw that acts in a world."""
        return int(self._draws[place])

    def remember(
        self,
        observations: Seen,
        actions: Actions,
        rewards: NDArray[np.float64],
        next_observations: Seen,
        terminated: NDArray[np.bool_],
        over: NDArray[np.bool_] | None = None,
    ) -> None:
        """As `QAgent`; a draw that is held for an episode ends with it."""
        super().remember(observations, actions, rewards, next_observations, terminated)
        self._left[terminated if over is None else over] = 0


class GreedyAgent(QAgent):
    """Takes the best action under the mean weights and learns nothing: for evaluation.

    Args:
        network: as `QAgent`, for example the network of another agent.
        inputs: numbers of an observation.
    """

    def __init__(self, network: nn.Module, *, inputs: int) -> None:
        super().__init__(network, inputs=inputs, learning=None)

    def choose(self, observations: Tensor) -> Actions:
        """The best actions under the mean weights."""
        return _best_of_mean(self.network, observations)


class EpsilonGreedyAgent(QAgent):
    """Acts at random with a chance that falls with age, and else takes the best action of the mean weights.

    Args:
        network: as `QAgent`.
        inputs: numbers of an observation.
        epsilon: from the age in steps to the chance of a random action; the papers use
            `LinearDecay(3_000, 200_000)`.
        learning: how the network is trained; not at all if None.
        seed: as `QAgent`.
        random_for: steps of random actions at the start.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        inputs: int,
        epsilon: Callable[[int], float],
        learning: QLearning | None = QLearning(),  # noqa: B008  (frozen)
        seed: int = 0,
        random_for: int = 0,
    ) -> None:
        explore = EpsilonGreedy(epsilon, random_for)
        super().__init__(network, inputs=inputs, learning=learning, seed=seed, random_for=explore.random_for)
        self.epsilon = epsilon

    def random_share(self) -> float:
        """Epsilon at the agent's age."""
        share = float(self.epsilon(self.age))
        if not 0 <= share <= 1:
            raise ValueError(must("EpsilonGreedyAgent", f"epsilon({self.age})", "a chance, in [0, 1]", share))
        return share

    def choose(self, observations: Tensor) -> Actions:
        """The best actions under the mean weights."""
        return _best_of_mean(self.network, observations)


def _best_of_mean(network: nn.Module, observations: Tensor) -> Actions:
    with torch.no_grad(), evaluating(network):
        best: Actions = network(observations).argmax(1).numpy()
    return best
