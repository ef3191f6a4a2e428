"""Contextual bandits: posteriors against quadrature, problems by definition, choices against draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdrop import FunctionDraw
from bayesdrop.control import (
    EpsilonGreedyBandit,
    NeuralLinear,
    NormalInverseGamma,
    TableBandit,
    ThompsonBandit,
    UniformBandit,
    WheelBandit,
    play,
)
from bayesdrop.models import mlp


def network(features: int = 2, arms: int = 5) -> nn.Sequential:
    torch.manual_seed(0)
    return mlp(features, (16,), arms, p=0.2, input_p=0.0)


# the posterior of NeuralLinear


def test_the_posterior_is_that_of_quadrature() -> None:
    z, r = torch.tensor([[0.5], [-1.0], [2.0]]), torch.tensor([0.3, -0.2, 1.9])
    prior = NormalInverseGamma(torch.tensor([0.4]).double(), torch.tensor([[0.7]]).double(), 2.0, 1.5)
    found = prior.posterior(z, r)
    # Another way: prior times likelihood on a grid of (w, log s^2), summed.
    w = np.linspace(-8, 8, 1601)[:, None]
    log_v = np.linspace(-6, 8, 1401)[None, :]
    v = np.exp(log_v)
    log_p = -(2.0 + 1) * log_v - 1.5 / v + log_v  # inverse gamma, and the step of log s^2
    log_p = log_p - 0.5 * log_v - 0.5 * 0.7 * (w - 0.4) ** 2 / v
    for zi, ri in zip(z[:, 0].tolist(), r.tolist(), strict=True):
        log_p = log_p - 0.5 * log_v - 0.5 * (ri - w * zi) ** 2 / v
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean_w, mean_v = (p * w).sum(), (p * v).sum()
    assert found.mean.item() == pytest.approx(mean_w, rel=1e-4)
    assert found.scale / (found.shape - 1) == pytest.approx(mean_v, rel=1e-3)
    variance = found.scale / (found.shape - 1) / found.precision.item()
    assert variance == pytest.approx((p * (w - mean_w) ** 2).sum(), rel=1e-3)


def test_rewards_at_once_are_rewards_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    z, r = torch.randn(9, 3, generator=generator), torch.randn(9, generator=generator)
    together = NormalInverseGamma.prior(3).posterior(z, r)
    apart = NormalInverseGamma.prior(3)
    for row in range(9):
        apart = apart.posterior(z[row : row + 1], r[row : row + 1])
    torch.testing.assert_close(together.mean, apart.mean)
    torch.testing.assert_close(together.precision, apart.precision)
    assert together.shape == apart.shape == 10.5
    assert together.scale == pytest.approx(apart.scale)


def test_samples_have_the_moments_of_the_posterior() -> None:
    generator = torch.Generator().manual_seed(0)
    z, r = torch.randn(9, 2, generator=generator), torch.randn(9, generator=generator)
    posterior = NormalInverseGamma.prior(2).posterior(z, r)
    before = torch.get_rng_state()
    drawn = posterior.sample(40_000, generator)
    assert torch.equal(before, torch.get_rng_state())
    covariance = posterior.scale / (posterior.shape - 1) * torch.linalg.inv(posterior.precision)
    error = (covariance.diagonal() / 40_000).sqrt()
    assert ((drawn.mean(0) - posterior.mean).abs() < 5 * error).all()
    torch.testing.assert_close(
        torch.cov(drawn.t()), covariance, rtol=0.06, atol=0.06 * float(covariance.max())
    )


# the problems


def test_the_wheel_is_as_defined() -> None:
    wheel = WheelBandit(0.5)
    x = torch.tensor([[0.1, 0.1], [0.6, 0.1], [0.6, -0.1], [-0.6, -0.1], [-0.6, 0.1]])
    expected = wheel.expected(x)
    assert expected[0].tolist() == pytest.approx([1.2, 1, 1, 1, 1])
    for arm in range(1, 5):
        wanted = [1.2, 1.0, 1.0, 1.0, 1.0]
        wanted[arm] = 50.0
        assert expected[arm].tolist() == pytest.approx(wanted)
    contexts, _ = wheel.contexts(20_000, torch.Generator().manual_seed(0))
    share = float((contexts.norm(dim=1) > 0.5).double().mean())
    assert abs(share - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 20_000)
    assert float(contexts.norm(dim=1).max()) <= 1


def test_a_table_gives_one_for_the_right_class() -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    problem = TableBandit(x, torch.tensor([0, 1, 2, 0, 1, 2]))
    contexts, expected = problem.contexts(12, torch.Generator().manual_seed(1))
    assert contexts.shape == (12, 3)
    assert expected.sum(1).tolist() == [1.0] * 12
    assert expected.sum(0).tolist() == [4.0] * 3  # every row twice
    torch.testing.assert_close(contexts[:6].mean(0), torch.zeros(3), atol=1e-5, rtol=0)


def test_the_regret_of_chance_is_its_expectation() -> None:
    pulls = play(UniformBandit(2, 5), WheelBandit(0.5), 4000)
    # On the rim 4 of 5 arms miss: 49 thrice, 48.8 for the safe one; inside 4 of 5 arms lose .2.
    expected = 0.75 * (3 * 49 + 48.8) / 5 + 0.25 * 4 * 0.2 / 5
    error = float(pulls.regret.double().std()) / 4000**0.5
    assert abs(float(pulls.regret.double().mean()) - expected) < 5 * error


# bandits


def test_thompson_takes_the_best_arm_of_a_function_of_its_own() -> None:
    net = network()
    bandit = ThompsonBandit(net, 2, 5, initial_pulls=0, seed=4)
    contexts = torch.randn(7, 2, generator=torch.Generator().manual_seed(0))
    arms = bandit.choose(contexts)
    wanted = []
    with torch.no_grad():
        for index, context in enumerate(contexts):
            with FunctionDraw(net, seed=4, index=index):
                wanted.append(int(net(context.unsqueeze(0)).argmax()))
    assert arms.tolist() == wanted


def test_every_arm_is_pulled_first() -> None:
    for kind in (ThompsonBandit, EpsilonGreedyBandit, NeuralLinear):
        bandit = kind(network(), 2, 5, initial_pulls=2, steps=1)
        pulls = play(bandit, WheelBandit(0.5), 20, round_size=10)
        assert pulls.arms[:10].tolist() == [0, 1, 2, 3, 4] * 2


def test_epsilon_is_the_share_of_chance() -> None:
    bandit = EpsilonGreedyBandit(network(), 2, 5, epsilon=0.5, initial_pulls=0)
    contexts = torch.zeros(4000, 2)
    arms = bandit.choose(contexts)
    best = int(arms.mode().values)
    share = float((arms == best).double().mean())
    assert abs(share - 0.6) < 5 * math.sqrt(0.24 / 4000)


def easy() -> TableBandit:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    x = 4 * torch.nn.functional.one_hot(y, 3).float() + torch.randn(300, 3, generator=generator)
    return TableBandit(x, y)


@pytest.mark.parametrize("kind", [ThompsonBandit, EpsilonGreedyBandit, NeuralLinear])
def test_bandits_learn_what_is_easy_and_repeat_themselves(kind: Any) -> None:
    found = [play(kind(network(3, 3), 3, 3, seed=1), easy(), 300) for _ in range(2)]
    assert torch.equal(found[0].arms, found[1].arms)
    chance = play(UniformBandit(3, 3), easy(), 300).regret[150:].mean()
    assert found[0].regret[150:].mean() < chance / 4


# bad input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WheelBandit(1.0), r"WheelBandit: `delta` must be a number in \(0, 1\)"),
        (
            lambda: ThompsonBandit(network(), 3, 5),
            r"`network` must be from \(N, 3\) to \(N, 5\); got 'an error'",
        ),
        (
            lambda: ThompsonBandit(network(), 2, 4),
            r"`network` must be from \(N, 2\) to \(N, 4\); got \(2, 5\)",
        ),
        (lambda: EpsilonGreedyBandit(network(), 2, 5, epsilon=1.5), "`epsilon` must be a number in"),
        (lambda: UniformBandit(2, 1), "`num_arms` must be"),
        (lambda: TableBandit(torch.zeros(3, 2), torch.zeros(3).long()), "classes 0, ..., K - 1"),
        (lambda: TableBandit(torch.zeros(3, 2), torch.zeros(2).long()), r"of shapes \(N, D\) and \(N,\)"),
        (lambda: play(UniformBandit(2, 5), WheelBandit(), 0), "`num_contexts` must be a positive int"),
        (lambda: play(UniformBandit(3, 5), WheelBandit(), 9), "one for 2 features and 5 arms"),
        (lambda: UniformBandit(2, 5).choose(torch.zeros(3)), r"`contexts` must be of shape \(N, 2\)"),
        (lambda: UniformBandit(2, 5).choose(torch.full((1, 2), math.nan)), "`contexts` must be finite"),
        (lambda: learned(torch.tensor([5]), torch.tensor([1.0])), "`arms` must be ints from 0 to 4"),
        (lambda: learned(torch.tensor([1]), torch.tensor([math.inf])), "`rewards` must be finite"),
        (lambda: learned(torch.tensor([1]), torch.tensor([1.0, 2.0])), r"`rewards` must be of shape \(1,\)"),
    ],
)
def test_bad_input_is_an_error(make: Any, words: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        make()


def learned(arms: Tensor, rewards: Tensor) -> None:
    UniformBandit(2, 5).learn(torch.zeros(1, 2), arms, rewards)


def test_neural_linear_needs_a_body_and_a_last_layer() -> None:
    with pytest.raises(TypeError, match=r"NeuralLinear: `network` must be an nn\.Sequential"):
        NeuralLinear(nn.Linear(2, 5), 2, 5)
