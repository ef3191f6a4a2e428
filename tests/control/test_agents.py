"""Agents over any network: updates against sums over masks, held functions, worlds that fit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

import bayesdrop as bd
from bayesdrop.control import (
    Batch,
    DeepSea,
    DeepSeaVector,
    EpsilonGreedyAgent,
    EyeWorld,
    EyeWorldVector,
    GreedyAgent,
    QLearning,
    ThompsonAgent,
    train,
)
from bayesdrop.control.q_learner import QLearner
from bayesdrop.models import mlp


def batch_of(rows: int, *, seen: float, following: float, reward: float, over: float = 0.0) -> Batch:
    """The same transition many times."""
    return Batch(
        torch.full((1, rows, 1), seen),
        torch.zeros(1, rows, dtype=torch.int64),
        torch.full((1, rows), reward),
        torch.full((1, rows, 1), following),
        torch.full((1, rows), over),
        torch.full((1, rows), -1),
        torch.zeros(1, rows, dtype=torch.int64),
    )


@pytest.mark.parametrize("over", [0.0, 1.0])
def test_the_bootstrap_has_a_mask_of_its_own_and_the_gradient_that_of_its_pass(over: float) -> None:
    # Q(x) = w z x with z = 0 or 2. d/dw E (w z - r - gamma z' w)^2 / 2 with the target held fixed is
    # E z (w z - r - gamma z' w) = 2 w - r - gamma w; with one mask for both it would be 2 w - r - 2 gamma w.
    torch.manual_seed(0)
    rows, w, r, gamma = 200_000, 0.8, 0.3, 0.6
    layer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(w)
    learner = QLearner(bd.BernoulliDropout(layer, p=0.5), QLearning(gamma=gamma, lr=1.0))
    learner.update(batch_of(rows, seen=1.0, following=1.0, reward=r, over=over), num_data=1)
    gamma *= 1 - over
    values = np.array([[z * (w * z - r - gamma * w * other) for other in (0, 2)] for z in (0, 2)])
    expected, error = values.mean(), values.std() / rows**0.5
    assert expected == pytest.approx(2 * w - r - gamma * w)
    assert abs((w - layer.weight.item()) - expected) < 5 * error


def test_a_target_network_is_copied_every_so_many_updates_and_weights_decay() -> None:
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.fill_(0.5)
    learning = QLearning(gamma=0.5, lr=0.1, weight_decay=0.2, target_every=2)
    learner = QLearner(layer, learning)
    w, b, target = 1.0, 0.5, (1.0, 0.5)
    for update in range(1, 6):
        learner.update(batch_of(3, seen=2.0, following=1.0, reward=1.0), num_data=1)
        error = (2 * w + b) - (1 + 0.5 * (target[0] + target[1]))
        w, b = w - 0.1 * (2 * error + 0.2 * w), b - 0.1 * error
        if update % 2 == 0:
            target = (w, b)
        assert layer.weight.item() == pytest.approx(w, abs=1e-5)
        assert layer.bias.item() == pytest.approx(b, abs=1e-5)


@pytest.mark.parametrize("kind", [bd.ConcreteDropout, bd.LearnableDropout])
def test_learned_rates_have_the_divergence_over_the_transitions_so_far(kind: Any) -> None:
    layer = kind(nn.Linear(1, 2), 0.2, length_scale=0.5)
    kl = bd.total_kl(layer)
    (slope,) = torch.autograd.grad(kl, layer.logit_p)
    before = layer.logit_p.detach().clone()
    learner = QLearner(layer, QLearning(lr=0.01, rate_lr=0.3, gamma=0.0))
    # Of an input of zero the mask does not matter, so that the rate has the gradient of its prior alone.
    learner.update(batch_of(64, seen=0.0, following=0.0, reward=1.0), num_data=40)
    torch.testing.assert_close(layer.logit_p.detach(), before - 0.3 * slope / 40)


def q_network(inputs: int = 4, actions: int = 3, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return mlp(inputs, (16,), actions, p=0.5, input_p=0.0)


@pytest.mark.parametrize(("hold", "expected"), [(1, 12), (3, 4), ("episode", 3)])
def test_a_function_is_held_for_steps_or_an_episode(hold: Any, expected: int) -> None:
    agent = ThompsonAgent(q_network(), inputs=4, hold=hold, learning=None, seed=5)
    seen = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    draws = []
    for step in range(12):
        actions = agent.act(seen)
        draws.append([agent.drawn(0), agent.drawn(1)])
        for place in range(2):
            with torch.no_grad(), bd.FunctionDraw(agent.network, seed=5, index=agent.drawn(place)):
                assert agent.network(torch.from_numpy(seen[place : place + 1])).argmax() == actions[place]
        # Episodes of five steps.
        over = np.full(2, step % 5 == 4)
        agent.remember(
            seen, actions, np.zeros(2), seen, np.zeros(2, bool), over if hold == "episode" else None
        )
    first, second = zip(*draws, strict=True)
    assert len(set(first)) == len(set(second)) == expected
    assert not set(first) & set(second), "every world has functions of its own"
    if hold == 3:
        assert all(len(set(first[start : start + 3])) == 1 for start in range(0, 12, 3))


def test_a_replayed_transition_finds_the_function_that_acted() -> None:
    learning = QLearning(batch_size=32, replay_size=200, learn_after=10**6)
    agent = ThompsonAgent(q_network(100, 2), inputs=100, hold="episode", learning=learning, seed=2)
    train(agent, DeepSeaVector(3, depth=10, autoreset="same-step"), 40, seed=0)
    assert agent.replay is not None
    batch = agent.replay.sample()
    x, draws = batch.observations[0], batch.draws[0]
    values = agent.values_as_acted(x, draws)
    assert (values.argmax(1) == batch.actions[0]).all()
    # Other functions would have acted otherwise, and so would the mean weights.
    assert (agent.values_as_acted(x, draws + 1).argmax(1) != batch.actions[0]).any()
    with torch.no_grad():
        expected = agent.network.eval()(x)
    torch.testing.assert_close(agent.values_as_acted(x, torch.full_like(draws, -1)), expected)
    # The gradient is that of the held function, row by row.
    values.sum().backward()
    found = agent.network[-1].layer.weight.grad.clone()
    agent.network.zero_grad()
    for row, draw in zip(x, draws.tolist(), strict=True):
        with bd.FunctionDraw(agent.network, seed=2, index=draw):
            agent.network(row[None]).sum().backward()
    torch.testing.assert_close(found, agent.network[-1].layer.weight.grad)


def test_many_functions_in_one_pass_are_those_of_one_at_a_time() -> None:
    network = mlp(3, (8, 8), 4, p=0.3)
    agent = ThompsonAgent(network, inputs=3, seed=5, learning=None)
    x = torch.randn(6, 3)
    passes: list[int] = []
    network.register_forward_hook(lambda module, inputs, output: passes.append(len(output)))
    for draws in ([4, 9, 4, 2, 2, 9], [3, 0, 5, 1, 4, 2], [7, 7, 7, 7, 7, 1]):
        passes.clear()
        values = agent.values_as_acted(x, torch.tensor(draws))
        assert passes.count(6) == (0 if draws[0] == 7 else 1)
        for row, draw, found in zip(x, draws, values, strict=True):
            with bd.FunctionDraw(network, seed=5, index=draw):
                torch.testing.assert_close(found, network(row[None])[0])


def test_epsilon_is_the_share_of_random_actions() -> None:
    network = nn.Linear(4, 4)
    seen = np.zeros((50, 4), np.float32)
    with torch.no_grad():
        network.bias.copy_(torch.tensor([0.0, 0.0, 1.0, 0.0]))
    agent = EpsilonGreedyAgent(network, inputs=4, epsilon=lambda age: 0.4, learning=None)
    others = np.mean([(agent.act(seen) != 2).mean() for _ in range(200)])
    # A random action is another with chance 3/4.
    assert abs(others - 0.3) < 5 * (0.3 * 0.7 / 10_000) ** 0.5
    assert (GreedyAgent(network, inputs=4).act(seen) == 2).all()
    wild = EpsilonGreedyAgent(network, inputs=4, epsilon=lambda age: 1.5, learning=None)
    with pytest.raises(ValueError, match=r"`epsilon\(1\)` must be a chance"):
        wild.act(seen)


def test_an_agent_learns_a_small_sea() -> None:
    torch.manual_seed(0)
    learning = QLearning(gamma=0.9, lr=0.1, batch_size=32, learn_after=50)
    agent = ThompsonAgent(mlp(9, (32,), 2, p=0.2, input_p=0.0), inputs=9, hold="episode", learning=learning)
    train(agent, DeepSeaVector(2, depth=3, randomised=False, autoreset="same-step"), 250, seed=0)
    sea = DeepSea(depth=3, randomised=False)
    greedy = GreedyAgent(agent.network, inputs=9)
    seen, _ = sea.reset(seed=0)
    total = 0.0
    for _ in range(3):
        seen, reward, *_ = sea.step(greedy.act(seen[None])[0])
        total += reward
    assert total == pytest.approx(0.99)


class _Short(gymnasium.Env[Any, Any]):
    """Three steps; what is seen is the number of the step; the last is truncated."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    reward: float = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return np.array([0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return np.array([self.at], np.float32), self.reward, False, self.at == 3, {}


def test_what_follows_the_last_action_is_the_last_observation() -> None:
    for worlds in (_Short(), SyncVectorEnv([_Short] * 2, autoreset_mode=AutoresetMode.SAME_STEP)):
        learning = QLearning(batch_size=500, replay_size=100, learn_after=10**6)
        agent = ThompsonAgent(q_network(1), inputs=1, learning=learning)
        train(agent, worlds, 7, seed=0)
        assert agent.replay is not None
        batch = agent.replay.sample()
        pairs = zip(
            batch.observations.flatten().tolist(), batch.next_observations.flatten().tolist(), strict=True
        )
        assert set(pairs) == {(0, 1), (1, 2), (2, 3)}
        assert not batch.terminated.any(), "cut off is not ended"


def test_worlds_must_fit() -> None:
    agent = ThompsonAgent(q_network(27, 5), inputs=27)
    with pytest.raises(ValueError, match="train: `worlds` must be of observations of 27 numbers"):
        train(agent, EyeWorld(window=1), 10)
    with pytest.raises(ValueError, match="train: `worlds` must be of 3 actions"):
        train(ThompsonAgent(q_network(27, 3), inputs=27), EyeWorld(), 10)
    with pytest.raises(ValueError, match="of the autoreset mode SAME_STEP"):
        train(agent, EyeWorldVector(2), 10)
    with pytest.raises(TypeError, match=r"a gymnasium.Env or a gymnasium.vector.VectorEnv"):
        train(agent, "EyeWorld", 10)
    with pytest.raises(ValueError, match="train: `steps` must be a positive int; got 0"):
        train(agent, EyeWorld(), 0)
    short = _Short()
    short.reward = float("nan")
    with pytest.raises(ValueError, match=r"train: `rewards` must be finite|NaN"):
        train(ThompsonAgent(q_network(1), inputs=1), short, 10)


def test_networks_must_fit() -> None:
    with pytest.raises(ValueError, match="ThompsonAgent: `network` must be a network of 7 inputs"):
        ThompsonAgent(q_network(), inputs=7)
    with pytest.raises(ValueError, match=r"must be one that gives \(N, actions\) for \(N, inputs\)"):
        GreedyAgent(nn.Flatten(0), inputs=7)
    with pytest.raises(bd.NoRandomness, match="ThompsonAgent: nothing in `network` is random"):
        ThompsonAgent(nn.Linear(4, 2), inputs=4)
    bad = nn.Linear(4, 2)
    nn.init.constant_(bad.bias, float("inf"))
    with pytest.raises(ValueError, match="`network` must be one with finite values"):
        GreedyAgent(bad, inputs=4)
