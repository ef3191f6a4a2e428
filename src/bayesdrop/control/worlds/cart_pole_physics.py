"""A pole that hangs from a cart: its equations of motion, their integration, and the reward."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "CART_MASS",
    "FRICTION",
    "GRAVITY",
    "POLE_MASS",
    "STEP_SECONDS",
    "Integrator",
    "cart_pole_derivative",
    "cart_pole_distance",
    "cart_pole_reward",
    "cart_pole_step",
]

CART_MASS = 0.5  #: M, kg
POLE_MASS = 0.5  #: m, kg
FRICTION = 0.1  #: b, N s / m
GRAVITY = 9.82  #: g, m / s^2
STEP_SECONDS = 0.1  #: time for which one action is held
SUBSTEPS = 5  #: of Runge and Kutta in one step

Integrator = Literal["rk4", "euler"]
Array = np.ndarray[Any, np.dtype[np.float64]]


def cart_pole_derivative(
    state: Array, force: Array, *, pole_length: float, friction: float = FRICTION
) -> Array:
    """d/dt of the state [x, x', theta, theta'], theta = 0 being the pole hanging down.

        x''     = [2 m l theta'^2 sin + 3 m g sin cos + 4 (u - b x')] / [4 (M + m) - 3 m cos^2]
        theta'' = [-3 m l theta'^2 sin cos - 6 (M + m) g sin - 6 (u - b x') cos]
                  / [4 l (M + m) - 3 m l cos^2]

    sin and cos are those of theta; the pole is a uniform rod of length l and mass m.

    Args:
        state: (..., 4).
        force: u on the cart in newtons, (...).
        pole_length: l in metres.
        friction: b between cart and ground.

    Shape: (..., 4).
    Reference: Deisenroth & Rasmussen (2011), the cart-pole of PILCO.
    """
    velocity, angle, spin = state[..., 1], state[..., 2], state[..., 3]
    sine, cosine = np.sin(angle), np.cos(angle)
    mass, push = CART_MASS + POLE_MASS, force - friction * velocity
    swing = POLE_MASS * pole_length * spin**2 * sine
    inertia = 4 * mass - 3 * POLE_MASS * cosine**2
    acceleration = (2 * swing + 3 * POLE_MASS * GRAVITY * sine * cosine + 4 * push) / inertia
    turning = (-3 * swing * cosine - 6 * mass * GRAVITY * sine - 6 * push * cosine) / (pole_length * inertia)
    return np.stack([velocity, acceleration, spin, turning], axis=-1)


def cart_pole_step(
    state: Array,
    force: Array,
    *,
    pole_length: float,
    friction: float = FRICTION,
    integrator: Integrator = "rk4",
    seconds: float = STEP_SECONDS,
    substeps: int = SUBSTEPS,
) -> Array:
    """The state after a force was held for some time.

    Args:
        state: (..., 4).
        force: (...).
        pole_length: in metres.
        friction: between cart and ground.
        integrator: "rk4" takes `substeps` steps of Runge and Kutta; "euler" takes one Euler step, as most
            published programs do, which is another world: energy is not conserved.
        seconds: how long the force is held.
        substeps: of "rk4".

    Shape: (..., 4).
    """

    def slope(at: Array) -> Array:
        return cart_pole_derivative(at, force, pole_length=pole_length, friction=friction)

    if integrator == "euler":
        return state + seconds * slope(state)
    h = seconds / substeps
    for _ in range(substeps):
        first = slope(state)
        second = slope(state + 0.5 * h * first)
        third = slope(state + 0.5 * h * second)
        fourth = slope(state + h * third)
        state = state + h / 6 * (first + 2 * second + 2 * third + fourth)
    return state


def cart_pole_distance(state: Array, *, pole_length: float) -> Array:
    """Metres from the tip of the pole to where it is when upright at x = 0. Shape (..., 4) -> (...)."""
    across = state[..., 0] + pole_length * np.sin(state[..., 2])
    below = pole_length * (1 + np.cos(state[..., 2]))
    distance: Array = np.hypot(across, below)
    return distance


def cart_pole_reward(state: Tensor, *, pole_length: float = 0.6, width: float = 0.25) -> Tensor:
    """The reward of states, exp(-d^2 / (2 width^2)), d being `cart_pole_distance`; it has gradients.

    Args:
        state: (..., 4).
        pole_length: in metres.
        width: 0.25 in the papers; a larger one has a gradient further from the goal.

    Shape: (..., 4) -> (...). From 0 to 1.
    """
    across = state[..., 0] + pole_length * torch.sin(state[..., 2])
    below = pole_length * (1 + torch.cos(state[..., 2]))
    return torch.exp((across.square() + below.square()) * (-0.5 / width**2))
