"""Searching for plans and policies."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdrop.control import (
    MPC,
    DynamicsModel,
    MLPPolicy,
    Planner,
    PolicySearch,
    PolicyStack,
    StateFeatures,
    Transitions,
    cautious,
    fit_dynamics,
    imitate,
    maximise,
)


@pytest.fixture(scope="module")
def point() -> DynamicsModel:
    """A model of a point on a line that an action moves: s' = s + a / 2."""
    torch.manual_seed(0)
    states, actions = 3 * torch.randn(300, 1), torch.randn(300, 1)
    model = DynamicsModel(1, 1, hidden=(20,), state_scale=3.0, output_scale=0.5)
    fit_dynamics(
        model, Transitions(states, actions, states + 0.5 * actions), steps=300, lr=5e-3, rate_lr=3e-2
    )
    return model


def near_two(state: Tensor) -> Tensor:
    return torch.exp(-0.5 * (state[..., 0] - 2).square())


def starts(number: int, generator: torch.Generator) -> Tensor:
    return 0.1 * torch.randn(number, 1, generator=generator)


def search_of(**options: Any) -> PolicySearch:
    settings: dict[str, Any] = {
        "horizon": 6,
        "reward": near_two,
        "starts": starts,
        "planner": Planner(horizon=6, limit=1.0, restarts=2, samples=40, elites=6, iterations=10, std=1.0),
    }
    return PolicySearch(**{**settings, **options})


def new_policy() -> MLPPolicy:
    return MLPPolicy(StateFeatures(1), hidden=10)


# At full force the point is at .5, 1, 1.5, 2, and stays.
BEST = sum(np.exp(-0.5 * d**2) for d in (1.5, 1.0, 0.5, 0.0, 0.0, 0.0))


def test_the_cross_entropy_method_finds_the_top_of_a_known_function() -> None:
    target = torch.tensor([[1.0, -2.0, 0.5], [-1.5, 0.0, 2.5]])

    def score(tried: Tensor) -> Tensor:
        return -(tried - target.unsqueeze(1)).square().sum(-1)

    found = maximise(
        score, torch.zeros(2, 3), 2.0, iterations=40, least_std=1e-3, generator=torch.Generator()
    )
    torch.testing.assert_close(found.arguments, target, atol=0.02, rtol=0)
    torch.testing.assert_close(found.values, score(found.arguments.unsqueeze(1))[:, 0])
    limited = maximise(score, torch.zeros(2, 3), 2.0, limit=1.0, generator=torch.Generator())
    torch.testing.assert_close(limited.arguments, target.clamp(-1, 1), atol=0.05, rtol=0)


def test_smooth_samples_vary_together_as_asked() -> None:
    seen: list[Tensor] = []

    def score(tried: Tensor) -> Tensor:
        seen.append(tried[0, 1:])  # the first is the best so far
        return torch.zeros(tried.shape[:2])

    samples = 20_000
    maximise(
        score,
        torch.zeros(1, 6, 1),
        3.0,
        samples=samples,
        iterations=1,
        smooth=1.5,
        generator=torch.Generator(),
    )
    found = torch.cov(seen[0][..., 0].T) / 9
    steps = torch.arange(6.0)
    expected = torch.exp(-0.5 * ((steps.unsqueeze(1) - steps) / 1.5).square())
    # The standard error of an entry is at most sqrt(2 / n); the jitter is 1e-4.
    torch.testing.assert_close(found, expected, atol=5 * (2 / samples) ** 0.5, rtol=0)


def test_smooth_plans_push_a_heavy_thing_further() -> None:
    """With the same samples: a mass that is pushed has to come as far as it can in ten steps."""

    def score(pushes: Tensor) -> Tensor:
        speed = pushes[..., 0].clamp(-1, 1).cumsum(-1)
        away = speed.cumsum(-1)[..., -1].abs()
        return torch.where(away > 20, away, 0.0)  # nothing is felt near the start

    def reached(smooth: float) -> float:
        return float(
            maximise(
                score, torch.zeros(20, 10, 1), 0.5, samples=20, elites=4, iterations=4, smooth=smooth,
                generator=torch.Generator().manual_seed(0),
            ).values.mean()
        )  # fmt: skip

    assert reached(3.0) > 2 * reached(0.0)


def test_what_is_not_finite_is_never_best() -> None:
    def score(tried: Tensor) -> Tensor:
        value = tried[..., 0]
        return torch.where(value > 0.5, torch.nan, value)

    found = maximise(score, torch.zeros(1, 1), 1.0, iterations=30, generator=torch.Generator())
    assert 0.45 < float(found.values[0]) <= 0.5


def test_the_value_found_never_falls() -> None:
    values = [
        float(
            maximise(
                lambda x: torch.cos(3 * x[..., 0]) - 0.1 * x[..., 0].square(),
                torch.full((1, 1), 5.0),
                3.0,
                samples=8,
                elites=3,
                iterations=number,
                generator=torch.Generator().manual_seed(0),
            ).values
        )
        for number in range(1, 15)
    ]
    assert values == sorted(values)


def test_plans_and_policies_reach_what_is_best(point: DynamicsModel) -> None:
    search = search_of()
    generator = torch.Generator().manual_seed(0)
    begun = starts(3, generator)
    assert search.planner is not None
    plans = search.planner.plan(point, near_two, begun, generator=generator)
    assert len(plans) == 2
    for states, actions in plans:
        assert states.shape == (3, 6, 1)
        torch.testing.assert_close(states[:, 0], begun)
        assert actions.abs().max() <= 1
        # In the world itself, which the model has learned.
        path = begun.unsqueeze(1) + 0.5 * actions.cumsum(1)
        assert (near_two(path).sum(1) - BEST).abs().max() < 0.4
    torch.manual_seed(0)
    found = search.from_plans(point, new_policy, seed=1)
    assert found.names == ["plan", "plan"]
    assert found.returns == sorted(found.returns, reverse=True)
    assert abs(found.returns[0] - BEST) < 0.5


def test_gradients_improve_a_random_policy(point: DynamicsModel) -> None:
    torch.manual_seed(3)
    policy, search = new_policy(), search_of(steps=100, lr=2e-2)
    before = search.expected_return(point, policy)
    returns = search.improve(point, policy)
    assert returns.shape == (100, 1)
    assert search.expected_return(point, policy) > before + 1
    assert abs(search.expected_return(point, policy) - BEST) < 0.5


def test_a_search_that_goes_astray_gives_back_what_was_better(point: DynamicsModel) -> None:
    torch.manual_seed(0)
    policy = search_of().from_plans(point, new_policy).policy
    wild = search_of(steps=50, lr=10.0)
    before = wild.expected_return(point, policy, seed=8)
    wild.improve(point, policy, seed=3)
    assert wild.expected_return(point, policy, seed=8) > before - 0.1


def test_an_episode_that_overflows_is_not_better_than_a_negative_return(point: DynamicsModel) -> None:
    """A cost: the policy whose episodes are NaN must come last, though NaN is counted as a number."""

    def cost(state: Tensor) -> Tensor:
        return -1 - near_two(-state)

    good, broken = new_policy(), new_policy()
    with torch.no_grad():
        broken.body[2].bias.fill_(torch.nan)
    expected = search_of(reward=cost).expected_return(point, [good, broken])
    assert torch.isfinite(expected).all()
    assert expected[1] <= expected[0] < -6  # six steps of a cost above 1


def test_policies_side_by_side_learn_as_they_do_alone(point: DynamicsModel) -> None:
    torch.manual_seed(0)
    search = search_of(steps=12, redraw_every=5)
    alone = [new_policy() for _ in range(3)]
    together = [copy.deepcopy(policy) for policy in alone]
    returns = torch.cat([search.improve(point, policy, seed=4) for policy in alone], 1)
    torch.testing.assert_close(search.improve(point, together, seed=4), returns, rtol=1e-4, atol=1e-4)
    for one, other in zip(alone, together, strict=True):
        for name, value in one.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-3, atol=1e-4)
    judged = torch.cat([search.expected_return(point, policy) for policy in alone])
    torch.testing.assert_close(search.expected_return(point, together), judged, rtol=1e-3, atol=1e-3)


def test_a_stack_acts_as_its_policies() -> None:
    torch.manual_seed(0)
    policies = [new_policy() for _ in range(3)]
    state = torch.randn(2 * 3 * 4, 1)
    actions = PolicyStack("test", policies).rows_each(4)(state).reshape(2, 3, 4, 1)
    for place, policy in enumerate(policies):
        own = state.reshape(2, 3, 4, 1)[:, place]
        torch.testing.assert_close(actions[:, place], policy(own.reshape(-1, 1)).reshape(2, 4, 1))


def test_a_stack_of_known_policies_acts_as_one_by_vmap() -> None:
    class Unknown(MLPPolicy):
        pass

    torch.manual_seed(0)
    known = [MLPPolicy(StateFeatures(4, angles=(3, 1)), 2, limit=2.0).double() for _ in range(3)]
    unknown = []
    for policy in known:
        unknown.append(Unknown(StateFeatures(4, angles=(3, 1)), 2, limit=2.0).double())
        unknown[-1].load_state_dict(policy.state_dict())
    state = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    stacks = [PolicyStack("test", policies) for policies in (known, unknown)]
    gradients = []
    for stack in stacks:
        actions = stack(state)
        gradients.append(torch.autograd.grad(actions.square().sum(), [state, *stack.parameters]))
    torch.testing.assert_close(stacks[0](state), stacks[1](state))
    torch.testing.assert_close(gradients[0], gradients[1])


def test_policies_of_other_settings_do_not_act_as_the_first() -> None:
    policies = [MLPPolicy(StateFeatures(1), limit=limit) for limit in (1.0, 2.0)]
    with pytest.raises(ValueError, match="limit"):
        PolicyStack("test", policies)
    scales = [MLPPolicy(StateFeatures(1, scale=scale)) for scale in (1.0, 2.0)]
    state = torch.ones(2, 1)
    alone = torch.cat([policy(state[:1]) for policy in scales])
    torch.testing.assert_close(PolicyStack("test", scales)(state), alone)


def test_gradients_are_clipped_policy_by_policy() -> None:
    policies = [new_policy(), new_policy(), new_policy()]
    stack = PolicyStack("test", policies)
    for each in stack.parameters:
        each.grad = torch.ones_like(each)
        each.grad[1] *= 1e-4
        each.grad[2] = torch.nan
    stack.clip_gradients(1.0)
    norms = torch.stack([each.grad.flatten(1).square().sum(1) for each in stack.parameters]).sum(0).sqrt()
    size = sum(each[0].numel() for each in stack.parameters)
    torch.testing.assert_close(norms, torch.tensor([1.0, 1e-4 * size**0.5, 0.0]), rtol=1e-4, atol=0)


def test_the_incumbent_stays_unless_another_is_expected_to_do_better(point: DynamicsModel) -> None:
    torch.manual_seed(0)
    search = search_of(steps=60, lr=2e-2)
    good = search.from_plans(point, new_policy).policy
    kept = copy.deepcopy(good.state_dict())
    # New plans are of no use to a policy that cannot learn from them.
    poor = search_of(imitation_steps=1, steps=1, lr=1e-9)
    found = poor.from_plans(point, new_policy, incumbents=[good], keep=4)
    assert sorted(found.names) == ["improved", "incumbent", "plan", "plan"]
    assert found.names[0] in ("incumbent", "improved")
    for name, value in good.state_dict().items():
        torch.testing.assert_close(value, kept[name], rtol=0, atol=0)
    without = search.from_plans(point, new_policy, incumbents=[good], plan_below=1.0)
    assert sorted(without.names) == ["improved", "incumbent"]
    torch.manual_seed(5)
    assert search.from_plans(point, new_policy, incumbents=[new_policy()]).names[0] != "incumbent"


def test_imitation_is_regression() -> None:
    torch.manual_seed(0)
    states = torch.randn(4, 10, 1)
    actions = torch.tanh(2 * states - 1)
    policy = new_policy()
    imitate(policy, states, actions, steps=300)
    assert (policy(states) - actions).square().mean() < 1e-3


@pytest.mark.parametrize("particles", [0, 3])
def test_mpc_goes_where_the_reward_is(point: DynamicsModel, particles: int) -> None:
    control = MPC(
        point, near_two, horizon=4, limit=1.0, particles=particles, first_iterations=10, std=1.0, restarts=2
    )
    state, total = torch.zeros(1), 0.0
    for time in range(6):
        action = control.act(state, steps_left=6 - time)
        assert action.shape == (1,)
        assert action.abs() <= 1
        state = state + 0.5 * action
        total += float(near_two(state))
    assert abs(total - BEST) < 0.4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: search_of(horizon=0), "`horizon` must be a positive int"),
        (lambda m: search_of(particles=0), "`particles` must be a positive int"),
        (lambda m: search_of(lr=float("nan")), "`lr`"),
        (lambda m: search_of(reward=None), "`reward` must be a function"),
        (lambda m: search_of().improve(m, nn.Tanh()), "a policy with parameters to learn"),
        (lambda m: search_of().improve(m, []), "at least one policy"),
        (lambda m: search_of().improve(m, [new_policy(), nn.Linear(1, 1)]), "of one kind and size"),
        (lambda m: search_of(moment_matching="full").improve(m, [new_policy()] * 2), "one policy where"),
        (lambda m: search_of().improve(nn.Linear(1, 1), new_policy()), "a DynamicsModel"),
        (lambda m: search_of(planner=None).from_plans(m, new_policy), "a Planner"),
        (lambda m: MPC(m, near_two, horizon=0, limit=1.0), "`horizon` must be a positive int"),
        (lambda m: MPC(nn.Linear(1, 1), near_two, horizon=2, limit=1.0), "a DynamicsModel"),
        (lambda m: MPC(m, near_two, horizon=2, limit=1.0).act(torch.tensor([torch.nan])), "finite"),
        (lambda m: MPC(m, near_two, horizon=2, limit=1.0).act(torch.zeros(2)), r"of shape \(1,\)"),
        (lambda m: maximise(near_two, torch.zeros(2), 1.0), "R problems"),
        (lambda m: maximise(near_two, torch.zeros(2, 1), 0.0), "`std`"),
        (lambda m: maximise(near_two, torch.zeros(2, 1), 1.0, samples=5, elites=6), "`elites`"),
        (lambda m: Planner(horizon=0, limit=1.0), "`horizon`"),
    ],
)
def test_bad_input_is_refused(point: DynamicsModel, make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(point)


def test_caution_is_the_mean_less_the_spread_over_functions() -> None:
    returns = torch.randn(6, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(cautious(returns, 0.0), returns.mean(0))
    spread = ((returns - returns.mean(0)).square().sum(0) / 5).sqrt()
    torch.testing.assert_close(cautious(returns, 1.5), returns.mean(0) - 1.5 * spread)


def test_a_cautious_planner_does_not_gamble_on_what_it_does_not_know() -> None:
    """s' - s = 2 a z / (1 - p) for a > 0, with a mask z that keeps half the time: as much spread as mean."""
    model = DynamicsModel(1, 1, hidden=(1,), dropout="fixed", p=0.5, input_p=0.0, activation=nn.ReLU)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        weights = [parameter for parameter in model.parameters() if parameter.dim() == 2]
        weights[0][0, 1] = 1.0
        weights[1][0, 0] = 2.0
    found = {}
    for caution in (0.0, 3.0):
        control = MPC(
            model, lambda s: s[..., 0], horizon=1, limit=1.0, particles=20, std=1.0, caution=caution
        )
        found[caution] = float(control.act(torch.zeros(1)))
    assert found[0.0] > 0.95
    assert found[3.0] < 0.05


def test_caution_needs_several_functions() -> None:
    model = DynamicsModel(1, 1, hidden=(4,))
    with pytest.raises(ValueError, match="`particles` must be at least 2 with caution"):
        MPC(model, lambda s: s[..., 0], horizon=1, limit=1.0, particles=1, caution=1.0)
    with pytest.raises(ValueError, match="`caution` must be a number of at least 0"):
        MPC(model, lambda s: s[..., 0], horizon=1, limit=1.0, caution=-1.0)
