"""Dynamics models, imagined episodes and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, ConcreteDropout, FunctionDraw, rates
from bayesdrop.control import (
    DynamicsModel,
    HeldFunctions,
    MLPPolicy,
    RBFPolicy,
    Simulator,
    StateFeatures,
    Transitions,
    cart_pole_reward,
    fit_dynamics,
    moment_matched,
    rollout,
)
from bayesdrop.layers import BernoulliNoise


def model_of(dropout: str = "concrete", **options: Any) -> DynamicsModel:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"angles": (2,), "hidden": (12, 9), "p": 0.3, "output_scale": (0.2, 1, 0.5, 3)}
    return DynamicsModel(4, 1, dropout=dropout, **{**settings, **options})  # type: ignore[arg-type]


def policy_of(kind: type[MLPPolicy] | type[RBFPolicy] = MLPPolicy) -> Any:
    torch.manual_seed(1)
    return kind(StateFeatures(4, angles=(2,)), limit=2.0)


def test_features_are_the_state_with_sines_and_cosines() -> None:
    features = StateFeatures(4, angles=(2,), scale=(1, 3, 6, 0.7, 0.7))
    state = torch.tensor([[0.5, 3.0, 0.3, 12.0]])
    expected = [0.5, 1.0, 2.0, np.sin(0.3) / 0.7, np.cos(0.3) / 0.7]
    np.testing.assert_allclose(features(state)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("dropout", ["concrete", "fixed"])
@pytest.mark.parametrize("input_p", [None, 0.0])
def test_held_functions_are_function_draws(dropout: str, input_p: float | None) -> None:
    model = model_of(dropout, input_p=input_p)
    state, action = torch.randn(6, 4), torch.randn(6, 1)
    found = HeldFunctions(model, seed=5, index=(2, 0, 9))(state, action)
    rows = torch.cat((state, action), 1)
    for place, index in enumerate((2, 0, 9)):
        own = slice(2 * place, 2 * place + 2)
        with torch.no_grad(), FunctionDraw(model, seed=5, index=index):
            torch.testing.assert_close(found[own], model(rows[own]))
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(HeldFunctions(model)(state, action), model(rows))


def test_held_functions_hold_noise_that_stands_alone() -> None:
    model = model_of("fixed")
    model.body.insert(2, BernoulliNoise(12, 0.5))
    state, action = torch.randn(4, 4), torch.randn(4, 1)
    found = HeldFunctions(model.train(), seed=5, index=(3, 8))(state, action)
    rows = torch.cat((state, action), 1)
    for place, index in enumerate((3, 8)):
        own = slice(2 * place, 2 * place + 2)
        with torch.no_grad(), FunctionDraw(model, seed=5, index=index):
            torch.testing.assert_close(found[own], model(rows[own]))


@pytest.mark.parametrize("kind", [MLPPolicy, RBFPolicy])
def test_particles_are_single_draws_held_over_the_whole_horizon(kind: Any) -> None:
    model, policy = model_of(), policy_of(kind)
    start = 0.3 * torch.randn(5, 4)
    found = rollout(model, policy, start, particles=5, horizon=7, seed=3, noise=False)
    assert found.states.shape == (8, 5, 4)
    assert found.actions.shape == (7, 5, 1)
    for particle in range(5):
        state = start[particle : particle + 1]
        with torch.no_grad(), FunctionDraw(model, seed=3, index=particle):
            for time in range(7):
                action = policy(state)
                torch.testing.assert_close(action, found.actions[time, particle : particle + 1])
                mean = model(torch.cat((state, action), 1))[:, :4]
                state = state + model.output_scale * mean
                torch.testing.assert_close(state, found.states[time + 1, particle : particle + 1])
    # Functions differ: else the test would hold for one mask for all.
    spread = rollout(model, policy, torch.zeros(4), particles=5, horizon=2, noise=False).states[-1].std(0)
    assert (spread > 1e-3).all()


def test_random_numbers_are_common_to_all_policies_and_noise_is_the_models() -> None:
    model = model_of(p=1e-6)
    policy = policy_of()
    start = torch.zeros(4000, 4)
    options: dict[str, Any] = {"particles": 4, "horizon": 1}
    twice = [rollout(model, policy, start, seed=1, **options).states for _ in range(2)]
    torch.testing.assert_close(*twice, rtol=0, atol=0)
    assert not torch.equal(twice[0], rollout(model, policy, start, seed=2, **options).states)
    model.eval()
    output = model(torch.cat((torch.zeros(1, 4), policy(torch.zeros(1, 4))), 1))[0]
    std = model.output_scale * (0.5 * output[4:]).exp()
    after = twice[0][-1]
    assert ((after.mean(0) - model.output_scale * output[:4]).abs() < 5 * std / 4000**0.5).all()
    assert ((after.std(0) / std - 1).abs() < 5 / (2 * 4000) ** 0.5).all()


@pytest.mark.parametrize("matching", [None, "diagonal", "full"])
@pytest.mark.parametrize("kind", [MLPPolicy, RBFPolicy])
def test_the_gradient_of_the_return_is_that_of_finite_differences(kind: Any, matching: Any) -> None:
    model, policy = model_of().double(), policy_of(kind).double()
    simulator = Simulator(model, particles=6, horizon=5, seed=1, moment_matching=matching)
    start = 0.5 * torch.randn(6, 4, dtype=torch.float64)

    def value() -> Tensor:
        return simulator.run(policy, start).returns(lambda s: cart_pole_reward(s, width=0.8)).mean()

    value().backward()
    h = 1e-6
    for parameter in policy.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for place in (0, len(flat) // 2, len(flat) - 1):
            with torch.no_grad():
                kept = flat[place].item()
                flat[place] = kept + h
                above = value()
                flat[place] = kept - h
                below = value()
                flat[place] = kept
            torch.testing.assert_close(gradient[place], (above - below) / (2 * h), rtol=1e-4, atol=1e-8)
    assert all(each.grad is None for each in model.parameters())


def test_matched_moments_are_those_of_the_particles() -> None:
    random = np.random.default_rng(0)
    mixing = random.normal(size=(3, 3))
    particles = torch.tensor(random.exponential(size=(50, 3)) @ mixing + 4)
    normal = torch.tensor(random.normal(size=(200_000, 3)))
    # Resampled from the same Gaussian as many times as one likes, moments are the particles' own.
    groups = [
        moment_matched(particles, part, kind) for kind in ("diagonal", "full") for part in normal.split(50)
    ]
    diagonal, full = torch.cat(groups[:4000]), torch.cat(groups[4000:])
    covariance = torch.cov(particles.T)
    for found, expected in ((diagonal, torch.diag(covariance.diagonal())), (full, covariance)):
        std = covariance.diagonal().sqrt()
        assert ((found.mean(0) - particles.mean(0)).abs() < 5 * std / 200_000**0.5).all()
        error = torch.outer(std, std) * (2 / 200_000) ** 0.5
        assert ((torch.cov(found.T) - expected).abs() < 5 * error).all()


def test_a_model_learns_the_world_and_its_rates_fall_with_data() -> None:
    torch.manual_seed(0)
    states, actions = torch.randn(600, 2), torch.randn(600, 1)
    after = states + torch.stack((0.3 * states[:, 1], torch.sin(states[:, 0]) + actions[:, 0]), 1)
    whole = Transitions(states, actions, after)
    found = {}
    for number in (60, 600):
        model = DynamicsModel(2, 1, hidden=(30, 30))
        fit_dynamics(model, whole[:number], steps=250, lr=5e-3, rate_lr=3e-2, seed=0)
        found[number] = [float(rate) for rate in rates(model).values()]
    assert np.mean(found[600]) < 0.5 * np.mean(found[60])
    model.eval()
    inputs, targets = model.data(whole)
    with torch.no_grad():
        error = (model(inputs)[:, :2] - targets).square().mean().sqrt()
    assert error < 0.2 * targets.std()


def test_what_dropout_a_model_has() -> None:
    concrete, fixed, bare = model_of(), model_of("fixed"), model_of("fixed", input_p=0.0)
    assert [type(layer) for layer in concrete.body if hasattr(layer, "kl")] == [ConcreteDropout] * 3
    assert [type(layer) for layer in fixed.body if hasattr(layer, "kl")] == [BernoulliDropout] * 3
    fixed.set_p(0.02, input_p=0.0)
    assert [float(p) for p in rates(fixed).values()] == pytest.approx([0, 0.02, 0.02])
    bare.set_p(0.05)
    assert [float(p) for p in rates(bare).values()] == pytest.approx([0.05, 0.05])
    with pytest.raises(ValueError, match="`dropout` must be 'fixed'"):
        concrete.set_p(0.1)
    with pytest.raises(ValueError, match="`p` must be in"):
        fixed.set_p(1.0)


def test_mirrored_transitions_are_what_a_symmetric_world_does() -> None:
    from bayesdrop.control.worlds.cart_pole_physics import cart_pole_step

    random = np.random.default_rng(0)
    states, forces = random.normal(size=(9, 4)), random.normal(size=9)
    after = cart_pole_step(states, forces, pole_length=0.6)
    seen = Transitions(*(torch.tensor(part) for part in (states, forces[:, None], after)))
    mirror = seen.mirrored()
    again = cart_pole_step(mirror.states.numpy(), mirror.actions[:, 0].numpy(), pole_length=0.6)
    np.testing.assert_allclose(mirror.next_states, again, atol=1e-12)


class Still(nn.Module):
    def forward(self, state: Tensor) -> Tensor:
        return state[:, :2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m, p: rollout(m, p, torch.zeros(4), particles=0, horizon=2),
            "`particles` must be a positive",
        ),
        (lambda m, p: rollout(m, p, torch.zeros(4), particles=2, horizon=0), "`horizon` must be a positive"),
        (lambda m, p: rollout(m, p, torch.zeros(3), particles=2, horizon=2), r"of shape \(4,\)"),
        (lambda m, p: rollout(m, p, torch.zeros(3, 4), particles=2, horizon=2), "K = 2"),
        (lambda m, p: rollout(m, p, torch.full((4,), torch.nan), particles=2, horizon=2), "must be finite"),
        (lambda m, p: rollout(m, Still(), torch.zeros(4), particles=2, horizon=2), r"`policy` must be"),
        (
            lambda m, p: rollout(m, p, torch.zeros(4), particles=1, horizon=2, moment_matching="full"),
            "at least 2",
        ),
        (lambda m, p: HeldFunctions(m, index=(0, 1))(torch.zeros(3, 4), torch.zeros(3, 1)), "divide"),
        (lambda m, p: m(torch.zeros(2, 4)), r"of shape \(N, 5\)"),
        (lambda m, p: m.data(Transitions(*(torch.zeros(2, 3),) * 3)), "4 state parts and 1 actions"),
        (lambda m, p: Transitions(torch.zeros(2, 3), torch.zeros(1, 1), torch.zeros(2, 3)), "2 rows"),
        (
            lambda m, p: Transitions(torch.zeros(2, 3), torch.zeros(2, 1), torch.full((2, 3), torch.inf)),
            "`next_states` must be finite",
        ),
        (lambda m, p: fit_dynamics(m, Transitions(*(torch.zeros(2, 4),) * 3), steps=0), "`steps`"),
        (lambda m, p: StateFeatures(4, angles=(4,)), "`angles`"),
        (lambda m, p: StateFeatures(4, scale=(1, 0, 1, 1)), "`scale`"),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call(model_of(), policy_of())
