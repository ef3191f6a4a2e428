"""Agents side by side: each as if alone, its update that of the plain learner, functions and members held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop.control import (
    AgentStack,
    DeepSeaVector,
    EpsilonGreedy,
    EyeWorldVector,
    LinearDecay,
    QLearning,
    Thompson,
    train,
)
from bayesdrop.control.q_learner import QLearner
from bayesdrop.control.replay import Batch
from bayesdrop.layers import ConcreteDropout

LEARNING = QLearning(batch_size=16, replay_size=100, learn_after=20, lr=0.01, weight_decay=0.1)


def trained(seeds: list[int], method: Any = "bernoulli", steps: int = 60, **options: Any) -> AgentStack:
    explore = options.pop("explore", Thompson(hold=2, random_for=10))
    agents = AgentStack(
        explore, LEARNING, inputs=27, num_actions=5, seeds=seeds, hidden=(12, 8), method=method, **options
    )
    train(agents, EyeWorldVector(len(seeds), autoreset="same-step"), steps, seed=seeds[0])
    return agents


@pytest.mark.parametrize("method", ["bernoulli", "concrete", "learnable"])
def test_an_agent_is_the_same_alone(method: str) -> None:
    together, alone = trained([3, 4], method), trained([4], method)
    assert together.updates == alone.updates == 40
    for mine, other in zip(together.network(1).parameters(), alone.network(0).parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)
    if method != "bernoulli":
        start = torch.tensor(0.1)
        assert not torch.isclose(together.rates()[1], start, atol=1e-6).any()


@pytest.mark.parametrize("target_every", [None, 3])
def test_an_update_without_noise_is_that_of_the_plain_learner(target_every: int | None) -> None:
    learning = QLearning(batch_size=8, learn_after=30, lr=0.05, weight_decay=0.3, target_every=target_every)
    agents = AgentStack(
        EpsilonGreedy(LinearDecay(0, 100)), learning, inputs=27, num_actions=5, seeds=[0, 1], p=0.0
    )
    plain = [QLearner(agents.network(place), learning) for place in range(2)]
    worlds = EyeWorldVector(2, autoreset="same-step")
    batches: list[Batch] = []
    sample = agents.replay.sample

    def kept() -> Batch:
        batches.append(sample())
        return batches[-1]

    agents.replay.sample = kept  # type: ignore[method-assign]
    train(agents, worlds, 40, seed=0)
    assert len(batches) == agents.updates == 10
    for batch in batches:
        for place, learner in enumerate(plain):
            learner.update(Batch(*(part[place : place + 1] for part in batch)), num_data=1)
    for place, learner in enumerate(plain):
        ours = agents.network(place).parameters()
        for mine, other in zip(ours, learner.network.parameters(), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_exported_networks_say_what_the_stack_says() -> None:
    agents = trained([0, 1], "concrete")
    seen = np.random.default_rng(0).uniform(size=(2, 6, 27)).astype(np.float32)
    actions = agents.act_greedily(seen)
    for place in range(2):
        network = agents.network(place)
        with torch.no_grad():
            assert (network(torch.from_numpy(seen[place])).argmax(1).numpy() == actions[place]).all()
        layers = [layer for layer in network if isinstance(layer, ConcreteDropout)]
        found = [layer.p.item() for layer in layers]
        assert found == pytest.approx([float(rate[place]) for rate in agents.rates()[1:]])


@pytest.mark.parametrize(("hold", "changes"), [(1, 11), (4, 2), ("episode", 3)])
def test_functions_are_held(hold: Any, changes: int) -> None:
    agents = AgentStack(
        Thompson(hold=hold), LEARNING, inputs=9, num_actions=2, seeds=[0, 1], hidden=(30,), p=0.5
    )
    seen = np.random.default_rng(1).normal(size=(2, 9)).astype(np.float32)
    values = []
    for step in range(12):
        agents.act(seen)
        values.append(agents._acting.values(seen, held=True).copy())
        over = np.full(2, step in (2, 5, 8))
        agents.remember(
            seen, np.zeros(2, np.int64), np.zeros(2), seen, np.zeros(2, bool), over=over & (hold == "episode")
        )
    differ = [
        [bool((a[m] != b[m]).any()) for m in range(2)] for a, b in zip(values[1:], values[:-1], strict=True)
    ]
    assert np.sum(differ, 0).tolist() == [changes, changes]


def test_one_member_acts_for_an_episode_and_members_learn_from_their_own_transitions() -> None:
    agents = AgentStack(
        Thompson(hold="episode"), LEARNING, inputs=16, num_actions=2, seeds=[0, 1], hidden=(8,), p=0.0,
        members=4, bootstrap=0.5,
    )  # fmt: skip
    members = []
    train(
        agents, DeepSeaVector(2, depth=4, autoreset="same-step"), 200, seed=0,
        each=lambda *_: members.append(agents._member.copy()),
    )  # fmt: skip
    episodes = np.array(members).reshape(50, 4, 2)
    assert (episodes == episodes[:, :1]).all()
    assert set(episodes[:, 0, 0].tolist()) == {0, 1, 2, 3}
    assert (episodes[:, 0, 0] != episodes[:, 0, 1]).any()
    assert agents._kept is not None
    share = agents._kept.mean()
    assert abs(share - 0.5) < 5 * (0.25 / agents._kept.size) ** 0.5
    # Only the members of whom transitions are kept change.
    agents._kept[:] = False
    agents._kept[1, :, 2] = True
    before = agents.parameters["bias0"].clone()
    agents.learn()
    changed = (agents.parameters["bias0"] != before).flatten(1).any(1)
    assert changed.tolist() == [False] * 6 + [True, False]


def test_bad_agents_are_refused() -> None:
    good: dict[str, Any] = {"inputs": 4, "num_actions": 2, "seeds": [0]}
    with pytest.raises(ValueError, match="AgentStack: `p` must be above 0 for Thompson sampling"):
        AgentStack(Thompson(), LEARNING, p=0.0, **good)
    with pytest.raises(ValueError, match="AgentStack: `seeds` must be at least one"):
        AgentStack(Thompson(), LEARNING, **{**good, "seeds": []})
    with pytest.raises(ValueError, match="AgentStack: `bootstrap` must be a chance"):
        AgentStack(Thompson(), LEARNING, bootstrap=0.0, **good)
    with pytest.raises(ValueError, match="train: `worlds` must be 1, one for each agent; got 3"):
        train(
            AgentStack(Thompson(), LEARNING, inputs=27, num_actions=5, seeds=[0]),
            EyeWorldVector(3, autoreset="same-step"),
            5,
        )
