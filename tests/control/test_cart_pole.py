"""The cart-pole: its physics against another solver and the law of energy, and Gymnasium's contract."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from scipy.integrate import solve_ivp

from bayesdrop.control import CartPoleSwingUp, CartPoleSwingUpVector, cart_pole_reward
from bayesdrop.control.worlds.cart_pole_physics import (
    CART_MASS,
    GRAVITY,
    POLE_MASS,
    cart_pole_derivative,
    cart_pole_step,
)

RANDOM = np.random.default_rng(0)
STATES = RANDOM.normal(size=(20, 4)) * [1, 3, 3, 6]
FORCES = RANDOM.uniform(-10, 10, 20)


def energy(state: np.ndarray[Any, Any], length: float) -> Any:
    """Kinetic and potential energy of a cart and a uniform rod that hangs from it."""
    _, velocity, angle, spin = np.moveaxis(state, -1, 0)
    across = velocity + 0.5 * length * np.cos(angle) * spin
    up = 0.5 * length * np.sin(angle) * spin
    turning = POLE_MASS * length**2 / 12 * spin**2
    moving = CART_MASS * velocity**2 + POLE_MASS * (across**2 + up**2) + turning
    return 0.5 * moving - POLE_MASS * GRAVITY * 0.5 * length * np.cos(angle)


@pytest.mark.parametrize("length", [0.5, 0.6])
def test_power_is_that_of_the_force_less_the_friction(length: float) -> None:
    slope = cart_pole_derivative(STATES, FORCES, pole_length=length)
    h = 1e-5
    change = (energy(STATES + h * slope, length) - energy(STATES - h * slope, length)) / (2 * h)
    power = (FORCES - 0.1 * STATES[:, 1]) * STATES[:, 1]
    np.testing.assert_allclose(change, power, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [0.5, 0.6])
def test_energy_is_kept_without_force_and_friction(length: float) -> None:
    state = STATES
    for _ in range(25):
        state = cart_pole_step(state, np.zeros(20), pole_length=length, friction=0.0)
    np.testing.assert_allclose(energy(state, length), energy(STATES, length), rtol=2e-3)


def test_momentum_is_kept_without_force_and_friction() -> None:
    slope = cart_pole_derivative(STATES, np.zeros(20), pole_length=0.6, friction=0.0)

    def momentum(state: np.ndarray[Any, Any]) -> Any:
        _, velocity, angle, spin = np.moveaxis(state, -1, 0)
        return (CART_MASS + POLE_MASS) * velocity + POLE_MASS * 0.3 * np.cos(angle) * spin

    h = 1e-5
    np.testing.assert_allclose(momentum(STATES + h * slope) - momentum(STATES - h * slope), 0, atol=1e-8)


@pytest.mark.parametrize("length", [0.5, 0.6])
def test_a_step_is_what_an_adaptive_solver_finds(length: float) -> None:
    found = cart_pole_step(STATES, FORCES, pole_length=length)
    for start, force, end in zip(STATES, FORCES, found, strict=True):
        solved = solve_ivp(
            lambda _, s, u=force: cart_pole_derivative(s, u, pole_length=length),
            (0, 0.1), start, rtol=1e-10, atol=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(end, solved.y[:, -1], atol=2e-4)


def test_an_euler_step_is_one_slope() -> None:
    found = cart_pole_step(STATES, FORCES, pole_length=0.6, integrator="euler")
    slope = cart_pole_derivative(STATES, FORCES, pole_length=0.6)
    np.testing.assert_allclose(found, STATES + 0.1 * slope)


def test_the_reward_is_one_upright_and_the_same_in_torch() -> None:
    assert float(cart_pole_reward(torch.tensor([0.0, 1.0, np.pi, 2.0]))) == pytest.approx(1)
    # Hanging, the tip is two lengths away.
    hanging = float(cart_pole_reward(torch.zeros(4), pole_length=0.5))
    assert hanging == pytest.approx(np.exp(-0.5 * (1.0 / 0.25) ** 2))
    world = CartPoleSwingUp()
    world.reset(seed=0, options={"state": [0.1, 0.0, 3.0, 0.5]})
    _, reward, _, _, _ = world.step(np.array([1.0]))
    assert reward == pytest.approx(float(cart_pole_reward(torch.tensor(world.state))), abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"pole_length": 0.5}, {"integrator": "euler", "horizon": 3}])
def test_gymnasium_accepts_it(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        # Speeds have no bound, and forces are in newtons.
        warnings.filterwarnings("ignore", message=".*infinity.*")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        made = gymnasium.make("bayesdrop/CartPoleSwingUp-v0", render_mode="rgb_array", **options)
        check_env(made.unwrapped)


def test_what_is_seen_is_the_state_with_noise_and_an_episode_has_its_length() -> None:
    world = CartPoleSwingUp(noise_std=0.5, horizon=300)
    seen, _ = world.reset(seed=1)
    errors, over = [seen - world.state], False
    while not over:
        seen, _, ended, over, _ = world.step(np.zeros(1))
        errors.append(seen - world.state)
        assert not ended
    assert len(errors) == 301
    assert np.std(errors) == pytest.approx(0.5, abs=5 * 0.5 / (2 * 1204) ** 0.5)


def test_the_start_has_its_spread() -> None:
    worlds = CartPoleSwingUpVector(2000, start_std=0.1)
    worlds.reset(seed=0)
    error = 5 * 0.1 / (2 * 8000) ** 0.5
    assert worlds.states.std() == pytest.approx(0.1, abs=error)


def test_many_at_once_are_single_ones() -> None:
    many = gymnasium.make_vec(
        "bayesdrop/CartPoleSwingUp-v0", num_envs=3, vectorization_mode="vector_entry_point", horizon=4
    )
    single = gymnasium.vector.SyncVectorEnv([lambda: CartPoleSwingUp(horizon=4)] * 3)
    assert isinstance(many.unwrapped, CartPoleSwingUpVector)
    random = np.random.default_rng(0)
    for seed in (5, [7, 3, None]):
        np.testing.assert_array_equal(many.reset(seed=seed)[0], single.reset(seed=seed)[0])
        # Past the end, so that every world begins again twice.
        for _ in range(11):
            actions = random.uniform(-12, 12, (3, 1))
            for ours, theirs in zip(many.step(actions)[:4], single.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_a_picture_moves_with_the_state() -> None:
    world = CartPoleSwingUp(render_mode="rgb_array")
    world.reset(seed=0, options={"state": np.zeros(4)})
    down = world.render()
    world.reset(seed=0, options={"state": [0, 0, np.pi, 0]})
    up = world.render()
    assert down is not None
    assert up is not None
    assert down.shape == (200, 320, 3)
    assert down.dtype == np.uint8
    orange = [(picture[..., 0].astype(int) - picture[..., 2] > 100) for picture in (down, up)]
    rows = [np.nonzero(part)[0].mean() for part in orange]
    assert rows[0] > 130
    assert rows[1] < 90
    assert CartPoleSwingUp().render() is None
    pictures = CartPoleSwingUpVector(2, render_mode="rgb_array").render()
    assert pictures is not None
    assert len(pictures) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pole_length": 0}, "pole_length"),
        ({"noise_std": -1}, "noise_std"),
        ({"start_std": float("nan")}, "start_std"),
        ({"horizon": 0}, "`horizon` must be a positive int; got 0"),
        ({"integrator": "leapfrog"}, "'rk4' or 'euler'"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    for kind in (CartPoleSwingUp, CartPoleSwingUpVector):
        with pytest.raises(ValueError, match=message):
            kind(**options)


def test_bad_actions_are_refused() -> None:
    world, worlds = CartPoleSwingUp(), CartPoleSwingUpVector(2)
    world.reset(seed=0)
    worlds.reset(seed=0)
    with pytest.raises(ValueError, match=r"CartPoleSwingUp.step: `action` must be of shape \(1,\)"):
        world.step(np.zeros(2))
    with pytest.raises(ValueError, match="must be finite"):
        world.step(np.array([np.nan]))
    with pytest.raises(ValueError, match=r"of shape \(2, 1\)"):
        worlds.step(np.zeros(2))
    with pytest.raises(ValueError, match="`seed` must be one number, or 2 of them"):
        worlds.reset(seed=[1])
    with pytest.raises(ValueError, match="four finite numbers"):
        world.reset(options={"state": [1, 2]})
