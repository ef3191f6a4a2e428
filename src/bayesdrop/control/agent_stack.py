"""AgentStack: agents of many seeds side by side, whose small Q-networks run as one batched product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bayesdrop.control.coins import Coins
from bayesdrop.control.replay import Replay
from bayesdrop.control.settings import EpsilonGreedy, Explore, QLearning, Thompson
from bayesdrop.errors import Diverged, is_one_of, must, real_number, whole_number, whole_seed
from bayesdrop.stacked.heads import Head
from bayesdrop.stacked.job import export, trained_of
from bayesdrop.stacked.layers import NoisyInputs
from bayesdrop.stacked.parameters import ParameterLayout, Parameters
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.stack import Stack, noise_shapes
from bayesdrop.stacked.streams import NoiseStreams, generator

__all__ = ["AgentStack", "TemporalDifference"]

Actions = NDArray[np.int64]
Seen = NDArray[np.float32]
#: updates between two checks that all parameters are finite
_METHODS = ("bernoulli", "concrete", "learnable")
_CHECK_EVERY = 1000
_STEPS_AHEAD = 64


class TemporalDifference(Head):
    """(Q(s, a) - target)^2 / 2 of the action that was taken: y is (M, B, 2), the action and its target."""

    def loss(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        """The loss of every row, (M, B)."""
        return 0.5 * self._error(output, y).square().squeeze(-1)

    def slope(self, output: Tensor, y: Tensor, level: Tensor | None) -> Tensor:
        """The derivative of `loss` in the values; 0 for the actions that were not taken."""
        return torch.zeros_like(output).scatter_(-1, y[..., :1].long(), self._error(output, y))

    @staticmethod
    def _error(output: Tensor, y: Tensor) -> Tensor:
        return output.gather(-1, y[..., :1].long()) - y[..., 1:]


class AgentStack:
    """M agents that explore in the same way, each with its own seed, world, memory and Q-network.

    The networks are perceptrons of ReLU units with dropout before the layers that `p` and `input_p` name;
    forward and backward passes are those of `bayesdrop.stacked`. An agent does not depend on the other agents
    of its stack. `network(m)` is the network of agent m as a module of our layers. For other networks, or one
    agent in many worlds, see `ThompsonAgent`.

    With `members` above one, every agent has that many networks, each with its own initial weights. One of
    them acts, held for as long as a draw would be: bootstrapped DQN. A member learns from a transition with
    chance `bootstrap`.

    Args:
        explore: `Thompson`, `EpsilonGreedy` or `Greedy`.
        learning: how the Q-networks are trained.
        inputs: D, numbers of an observation.
        num_actions: number of actions.
        seeds: one for each agent.
        hidden: widths of the hidden layers.
        p: chance of dropping hidden units: one number, or one for each hidden layer; learned rates start
            there.
        input_p: chance of dropping inputs.
        method: "bernoulli", fixed rates; "concrete" or "learnable" rates that are learned.
        length_scale: prior length scale l of learned rates' regulariser.
        members: networks of an agent.
        bootstrap: chance that a member learns from a transition.
        first_scale: factor of the initial weights of the first layer, which are N(0, 1 / inputs): use
            sqrt(inputs) for observations of which one number is 1 and the others 0.

    Reference: Gal & Ghahramani (2016), section 5.4; Osband, Blundell, Pritzel & Van Roy (2016).
    """

    def __init__(
        self,
        explore: Explore,
        learning: QLearning,
        *,
        inputs: int,
        num_actions: int,
        seeds: Sequence[int],
        hidden: tuple[int, ...] = (50, 50),
        p: float | tuple[float, ...] = 0.1,
        input_p: float = 0.0,
        method: Literal["bernoulli", "concrete", "learnable"] = "bernoulli",
        length_scale: float = 1e-2,
        members: int = 1,
        bootstrap: float = 1.0,
        first_scale: float = 1.0,
    ) -> None:
        owner = "AgentStack"
        self.inputs = whole_number(owner, "inputs", inputs, at_least=1)
        self.num_actions = whole_number(owner, "num_actions", num_actions, at_least=1)
        self.members = whole_number(owner, "members", members, at_least=1)
        if not len(seeds):
            raise ValueError(must(owner, "seeds", "at least one", seeds))
        self.seeds = [whole_seed(owner, seed) for seed in seeds]
        if not is_one_of(method, _METHODS):
            raise ValueError(must(owner, "method", f"one of {', '.join(map(repr, _METHODS))}", method))
        self.explore, self.learning = explore, learning
        self.settings = Settings(
            hidden=hidden, method=method, noise="fixed", p=p, input_p=input_p, length_scale=length_scale,
            batch_size=learning.batch_size,
        )  # fmt: skip
        self.bootstrap = real_number(owner, "bootstrap", bootstrap, "a chance, in (0, 1]", above=0, at_most=1)
        drops = max(self.settings.rates) > 0
        if isinstance(explore, Thompson) and not drops and members == 1:
            hint = "Without noise or members there is only one function to draw."
            raise ValueError(must(owner, "p", "above 0 for Thompson sampling", p, hint))
        networks = [seed * self.members + member for seed in self.seeds for member in range(self.members)]
        layout = ParameterLayout(self.settings, self.inputs, self.num_actions, self.num_actions)
        self.parameters = Parameters(layout, len(networks), torch.float32)
        _start(self.parameters, networks, self.settings.rates)
        scale = real_number(owner, "first_scale", first_scale, "a positive number", above=0)
        self.parameters["weight0"].mul_(scale)
        settings = [self.settings] * len(networks)
        self.stack = Stack(settings, self.parameters, torch.ones(len(networks)), None, TemporalDifference())
        self.target = self.stack
        if learning.target_every is not None:
            copy = Parameters(layout, len(networks), torch.float32)
            copy.vector.copy_(self.parameters.vector)
            self.target = Stack(settings, copy, torch.ones(len(networks)), None)
        shapes = noise_shapes(self.settings, layout.widths)
        # Two masks an update: that of the bootstrap, and that of the gradient.
        self._noise = NoiseStreams([2 * seed for seed in networks], [*shapes, *shapes], normal=False)
        self._noise_step = _STEPS_AHEAD
        agents = len(self.seeds)
        size = learning.batch_size * self.members
        self.replay = Replay(learning.replay_size, self.inputs, seeds=self.seeds, batch_size=size)
        self._kept: NDArray[np.bool_] | None = None
        if bootstrap < 1:
            self._kept = np.ones((agents, learning.replay_size, self.members), np.bool_)
        self._acting = _ActingPass(self.parameters, self.settings, networks)
        self._coins = Coins(self.seeds, 2 + self.members)
        self._member = np.zeros(agents, np.int64)
        self._draw = np.full(agents, -1, np.int64)
        self._due = np.ones(agents, np.bool_)
        self._left = np.zeros(agents, np.int64)
        self.age = 0
        self.updates = 0

    def __len__(self) -> int:
        """M."""
        return len(self.seeds)

    def act(self, observations: Seen) -> Actions:
        """(M,) the action of every agent for its observation, (M, D). The agents' age grows by one step."""
        coins = self._coins.next()
        explore = self.explore
        drawing = isinstance(explore, Thompson)
        if isinstance(explore, Thompson):
            self._draw_functions(explore, coins[:, 2:])
        self.age += 1
        random = (coins[:, 1] * self.num_actions).astype(np.int64)
        if self.age <= explore.random_for:
            return random
        values = self._acting.values(observations, held=drawing).reshape(len(self), self.members, -1)
        best: Actions = values[np.arange(len(self)), self._member].argmax(1)
        if isinstance(explore, EpsilonGreedy):
            return np.where(coins[:, 0] < explore.epsilon(self.age), random, best)
        return best

    def _draw_functions(self, explore: Thompson, coins: NDArray[np.float64]) -> None:
        """New draws for the agents whose draw is over."""
        due = self._due if explore.hold == "episode" else self._due | (self._left == 0)
        self._acting.redraw(due)
        self._member = np.where(due, (coins[:, 0] * self.members).astype(np.int64), self._member)
        self._draw = np.where(due, self.age, self._draw)
        if explore.hold != "episode":
            self._left = np.where(due, explore.hold, self._left) - 1
        self._due = np.zeros(len(self), np.bool_)

    def act_greedily(self, observations: Seen) -> Actions:
        """(M, E) the best actions for observations (M, E, D), by the mean weights, averaged over members."""
        x = torch.from_numpy(observations).repeat_interleave(self.members, 0)
        values = self._acting.mean_values(x)
        chosen: Actions = values.view(len(self), self.members, x.shape[1], -1).mean(1).argmax(-1).numpy()
        return chosen

    def remember(
        self,
        observations: Seen,
        actions: Actions,
        rewards: NDArray[np.float64],
        next_observations: Seen,
        terminated: NDArray[np.bool_],
        over: NDArray[np.bool_] | None = None,
    ) -> None:
        """Store one transition of every agent.

        Args:
            observations: (M, D).
            actions: (M,).
            rewards: (M,).
            next_observations: (M, D).
            terminated: (M,) whether no state follows.
            over: (M,) whether the episode is over, terminated or truncated: draws held for an "episode" end.
        """
        drawn = self._draw if isinstance(self.explore, Thompson) else None
        places = self.replay.add(observations, actions, rewards, next_observations, terminated, drawn)
        if self._kept is not None:
            self._kept[np.arange(len(self)), places] = self._coins.last[:, 2:] < self.bootstrap
        self._due = self._due | (terminated if over is None else over)

    def learn(self) -> bool:
        """One update of every agent, if its memory has enough transitions; returns whether there was one."""
        learning = self.learning
        if len(self.replay) <= learning.learn_after:
            return False
        if self._noise_step == _STEPS_AHEAD:
            self._noise.make(_STEPS_AHEAD)
            self._noise_step = 0
        noise = self._noise.of_step(self._noise_step)
        self._noise_step += 1
        half = len(noise) // 2
        batch, size = self.replay.sample(), learning.batch_size
        networks = len(self) * self.members
        self.target.update_rates()
        self.target.set_noise(noise[:half])
        following = self.target.forward(batch.next_observations.view(networks, size, -1)).amax(-1)
        rewards, over = batch.rewards.view(networks, size), batch.terminated.view(networks, size)
        wanted = rewards + learning.gamma * (1 - over) * following
        y = torch.stack([batch.actions.view(networks, size).to(wanted.dtype), wanted], -1)
        weight = None
        if self._kept is not None:
            kept = self._kept[np.arange(len(self))[:, None], batch.places.numpy()]
            own = kept.reshape(len(self), self.members, size, self.members)
            chosen = own[:, np.arange(self.members), :, np.arange(self.members)]
            weight = torch.from_numpy(chosen.swapaxes(0, 1).reshape(networks, size).astype(np.float32))
        self.stack.data_gradient(batch.observations.view(networks, size, -1), y, weight, noise[half:])
        self._step()
        return True

    def _step(self) -> None:
        """Plain SGD with the regulariser of `QLearning`."""
        learning, blocks = self.learning, self.parameters.tensors
        if self.settings.learns_rates:
            self.stack.set_num_data(torch.full((len(self) * self.members,), float(self.age)))
            self.stack.add_prior()
            for name, block in blocks.items():
                if name.startswith("logit"):
                    block.sub_(self.stack.grads[name], alpha=learning.learning_rate_of_rates - learning.lr)
        elif learning.weight_decay:
            for name, block in blocks.items():
                if name.startswith("weight"):
                    block.mul_(1 - learning.lr * learning.weight_decay)
        self.parameters.vector.sub_(self.stack.grads.vector, alpha=learning.lr)
        self.updates += 1
        if learning.target_every is not None and self.updates % learning.target_every == 0:
            self.target.parameters.vector.copy_(self.parameters.vector)
        if self.updates % _CHECK_EVERY == 0 and not bool(torch.isfinite(self.parameters.vector).all()):
            raise Diverged(
                f"AgentStack: parameters are NaN or infinite after {self.updates} updates. Lower `lr`.",
                step=self.updates,
                epoch=1,
            )

    def network(self, agent: int, member: int = 0) -> nn.Sequential:
        """The Q-network of an agent as `nn.Sequential` of our layers, in eval mode."""
        place = agent * self.members + member
        trained = trained_of(
            self.settings,
            self.parameters.layout.widths,
            self.parameters.of_network(place),
            seed=self.seeds[agent],
            name="",
            num_data=max(self.age, 1),
        )
        return export(trained)

    def rates(self) -> list[Tensor]:
        """The rates of the inputs of every layer, (networks,) each."""
        found = []
        for layer, fixed in enumerate(self.settings.rates):
            logit = self.parameters.get(f"logit{layer}")
            networks = len(self) * self.members
            found.append(torch.full((networks,), fixed) if logit is None else torch.sigmoid(logit[:, 0, 0]))
        return found


class _ActingPass:
    """A forward pass of one row for each network, with held masks or mean weights."""

    def __init__(self, parameters: Parameters, settings: Settings, networks: Sequence[int]) -> None:
        self._parameters, self._settings = parameters, settings
        self._layers = [
            NoisyInputs(parameters.of_layer(place), {}, rows=1, kind="hard" if rate else "none")
            for place, rate in enumerate(settings.rates)
        ]
        widths = parameters.layout.widths
        shapes = [(1, widths[place]) if rate else None for place, rate in enumerate(settings.rates)]
        self._noise = NoiseStreams([2 * seed + 1 for seed in networks], shapes, normal=False)
        self._step = _STEPS_AHEAD
        self._words: list[Tensor | None] = [None] * len(shapes)
        for place, layer in enumerate(self._layers):
            layer.set_rate(torch.full((len(networks), 1, 1), settings.rates[place]))

    def redraw(self, due: NDArray[np.bool_]) -> None:
        """New noise for the agents that are due; the others keep theirs."""
        if self._step == _STEPS_AHEAD:
            self._noise.make(_STEPS_AHEAD)
            self._step = 0
        fresh = self._noise.of_step(self._step)
        self._step += 1
        everyone = bool(due.all())
        if not everyone:
            rows = torch.from_numpy(due).repeat_interleave(len(self._parameters["bias0"]) // len(due))
        for place, new in enumerate(fresh):
            old = self._words[place]
            if everyone or old is None or new is None:
                self._words[place] = new
            else:
                self._words[place] = torch.where(rows.view(-1, 1, 1), new, old)

    def values(self, observations: Seen, *, held: bool) -> NDArray[np.float32]:
        """(networks, actions) values of each agent's observation, under its held masks if `held`."""
        x = torch.from_numpy(observations).unsqueeze(1)
        x = x.repeat_interleave(len(self._parameters["bias0"]) // len(x), 0)
        if not held:
            return self.mean_values(x).squeeze(1).numpy()
        for place, layer in enumerate(self._layers):
            words = self._words[place]
            if words is None:
                continue
            layer.update_rate()
            layer.set_noise(words)
        for place, layer in enumerate(self._layers):
            x = layer.forward(x.clamp_min_(0) if place else x)
        return x.squeeze(1).numpy()

    def mean_values(self, x: Tensor) -> Tensor:
        """(networks, E, actions) under the mean weights, for (networks, E, D)."""
        for place in range(len(self._layers)):
            x = x.clamp_min_(0) if place else x
            x = torch.baddbmm(self._parameters[f"bias{place}"], x, self._parameters[f"weight{place}"])
        return x


def _start(parameters: Parameters, seeds: Sequence[int], rates: Sequence[float]) -> None:
    """Set initial values: weights N(0, 1 / K_in), biases 0.1 (0 for the outputs), and the rates."""
    last = len(parameters.layout.widths) - 2
    for network, seed in enumerate(seeds):
        source = generator(seed, "init")
        for place in range(last + 1):
            weight = parameters[f"weight{place}"][network]
            values = source.standard_normal(tuple(weight.shape)) / math.sqrt(weight.shape[0])
            weight.copy_(torch.from_numpy(values))
            parameters[f"bias{place}"][network] = 0.1 if place < last else 0.0
            logit = parameters.get(f"logit{place}")
            if logit is not None:
                logit[network] = math.log(rates[place] / (1 - rates[place]))
