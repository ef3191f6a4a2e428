"""CartPoleSwingUp: swing a hanging pole up by pushing its cart, as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from bayesdrop.control.worlds.cart_pole_physics import (
    STEP_SECONDS,
    Integrator,
    cart_pole_distance,
    cart_pole_step,
)
from bayesdrop.control.worlds.cart_pole_picture import cart_pole_picture
from bayesdrop.errors import is_one_of, must, real_number, whole_number

__all__ = ["LARGEST_FORCE", "REWARD_WIDTH", "CartPoleSwingUp", "CartPoleSwingUpVector"]

LARGEST_FORCE = 10.0  #: in newtons, of either sign
REWARD_WIDTH = 0.25  #: metres at which the reward has fallen to exp(-1/2)
Array = np.ndarray[Any, np.dtype[np.float64]]


class _CartPoles:
    """Any number of carts that are stepped together, each with random numbers of its own."""

    def __init__(
        self,
        owner: str,
        *,
        pole_length: float,
        noise_std: float,
        start_std: float,
        horizon: int,
        integrator: Integrator,
    ) -> None:
        want = "a positive number of metres"
        self.pole_length = real_number(owner, "pole_length", pole_length, want, above=0)
        self.noise_std = real_number(owner, "noise_std", noise_std, "a number of at least 0", at_least=0)
        self.start_std = real_number(owner, "start_std", start_std, "a number of at least 0", at_least=0)
        self.horizon = whole_number(owner, "horizon", horizon, at_least=1)
        if not is_one_of(integrator, ("rk4", "euler")):
            raise ValueError(must(owner, "integrator", "'rk4' or 'euler'", integrator))
        self.owner = owner
        self.integrator: Integrator = integrator

    def start(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """A state near rest with a pole that nearly hangs, and its observation. Shapes (4,)."""
        state = self.start_std * generator.standard_normal(4)
        return state, state + self.noise_std * generator.standard_normal(4)

    def step(
        self, states: Array, actions: Array, generators: Sequence[np.random.Generator]
    ) -> tuple[Array, Array, Array]:
        """States (n, 4) after forces (n, 1), their observations, and the rewards (n,)."""
        forces = np.clip(actions[:, 0], -LARGEST_FORCE, LARGEST_FORCE)
        states = cart_pole_step(states, forces, pole_length=self.pole_length, integrator=self.integrator)
        seen = states + self.noise_std * np.stack([each.standard_normal(4) for each in generators])
        distance = cart_pole_distance(states, pole_length=self.pole_length)
        return states, seen, np.exp(-0.5 * (distance / REWARD_WIDTH) ** 2)

    def checked(self, actions: Any, shape: tuple[int, ...]) -> Array:
        """Forces as an array; raise unless it has the shape and is finite."""
        found = np.asarray(actions, dtype=np.float64)
        if found.shape != shape:
            raise ValueError(must(f"{self.owner}.step", "action", f"of shape {shape}", found.shape))
        if not np.isfinite(found).all():
            raise ValueError(must(f"{self.owner}.step", "action", "finite", actions))
        return found


class CartPoleSwingUp(gymnasium.Env[Array, Array]):
    """A pole hangs from a cart; swing it up by pushing the cart, and keep it upright.

    The state is [x, x', theta, theta'], theta = 0 hanging down; an action is a force from -10 to 10 newtons,
    held for 0.1 s. An observation is the state with Gaussian noise. The reward of a step is
    exp(-d^2 / (2 0.25^2)), where d is the distance of the pole's tip after the step from its place when
    upright at x = 0. No policy is known that reaches more than about 16.7 over 25 steps with a pole of 0.6 m.

    Args:
        pole_length: 0.6 m in most programs; 0.5 in PILCO's own.
        noise_std: standard deviation of the noise of an observation.
        start_std: standard deviation of every part of the first state, around hanging at rest.
        horizon: steps of an episode.
        integrator: "rk4", or "euler" for the single Euler step of many published programs.
        render_mode: "rgb_array", or None.

    Reference: Gal, Hron & Kendall (2017), section 4.5; Deisenroth & Rasmussen (2011).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / STEP_SECONDS)}  # noqa: RUF012

    def __init__(
        self,
        *,
        pole_length: float = 0.6,
        noise_std: float = 0.01,
        start_std: float = 0.1,
        horizon: int = 25,
        integrator: Integrator = "rk4",
        render_mode: Literal["rgb_array"] | None = None,
    ) -> None:
        self.carts = _CartPoles(
            "CartPoleSwingUp",
            pole_length=pole_length,
            noise_std=noise_std,
            start_std=start_std,
            horizon=horizon,
            integrator=integrator,
        )
        if not is_one_of(render_mode, ("rgb_array", None)):
            raise ValueError(must("CartPoleSwingUp", "render_mode", "'rgb_array' or None", render_mode))
        self.render_mode = render_mode
        self.observation_space, self.action_space = _spaces()
        self.state: Array = np.zeros(4)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode; `options={"state": ...}` starts it from a state of (4,) instead of a random one.

        Args:
            seed: of all random numbers from here on.
            options: may have a "state".
        """
        super().reset(seed=seed)
        self.state, seen = self.carts.start(self.np_random)
        if options and "state" in options:
            noise = seen - self.state
            self.state = np.asarray(options["state"], dtype=np.float64).copy()
            if self.state.shape != (4,) or not np.isfinite(self.state).all():
                want = "four finite numbers"
                raise ValueError(must("CartPoleSwingUp.reset", "options['state']", want, options["state"]))
            seen = self.state + noise
        self._steps = 0
        return seen, {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply a force, clipped to between -10 and 10 newtons, for 0.1 s."""
        force = self.carts.checked(action, (1,))
        states, seen, rewards = self.carts.step(self.state[None], force[None], [self.np_random])
        self.state = states[0]
        self._steps += 1
        return seen[0], float(rewards[0]), False, self._steps >= self.carts.horizon, {}

    def render(self) -> np.ndarray[Any, Any] | None:
        """A picture of the present state, (200, 320, 3) bytes; None without a `render_mode`."""
        if self.render_mode is None:
            return None
        return cart_pole_picture(self.state, pole_length=self.carts.pole_length)


class CartPoleSwingUpVector(VectorEnv[Array, Array, Array]):
    """Many `CartPoleSwingUp` worlds, stepped at once; world i has the random numbers of seed + i.

    A world whose episode is over resets at the next step, whose action is not used (Gymnasium's "next step").

    Args:
        num_envs: how many worlds.
        pole_length: as in `CartPoleSwingUp`.
        noise_std: as in `CartPoleSwingUp`.
        start_std: as in `CartPoleSwingUp`.
        horizon: as in `CartPoleSwingUp`.
        integrator: as in `CartPoleSwingUp`.
        render_mode: as in `CartPoleSwingUp`.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": round(1 / STEP_SECONDS),
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        pole_length: float = 0.6,
        noise_std: float = 0.01,
        start_std: float = 0.1,
        horizon: int = 25,
        integrator: Integrator = "rk4",
        render_mode: Literal["rgb_array"] | None = None,
    ) -> None:
        self.num_envs = whole_number("CartPoleSwingUpVector", "num_envs", num_envs, at_least=1)
        self.carts = _CartPoles(
            "CartPoleSwingUpVector",
            pole_length=pole_length,
            noise_std=noise_std,
            start_std=start_std,
            horizon=horizon,
            integrator=integrator,
        )
        if not is_one_of(render_mode, ("rgb_array", None)):
            raise ValueError(must("CartPoleSwingUpVector", "render_mode", "'rgb_array' or None", render_mode))
        self.render_mode = render_mode
        self.single_observation_space, self.single_action_space = _spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.states: Array = np.zeros((num_envs, 4))
        self._generators = [seeding.np_random(None)[0] for _ in range(num_envs)]
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._over = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start all episodes.

        Args:
            seed: one number, for worlds with seeds seed, seed + 1, ..., or one for each of them.
            options: not used.
        """
        seeds = [seed] * self.num_envs if seed is None else seed
        if isinstance(seeds, int | np.integer):
            seeds = [int(seeds) + place for place in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            want = f"one number, or {self.num_envs} of them"
            raise ValueError(must("CartPoleSwingUpVector.reset", "seed", want, seed))
        for place, each in enumerate(seeds):
            if each is not None:
                self._generators[place] = seeding.np_random(each)[0]
        return self._started(np.ones(self.num_envs, dtype=bool), np.empty((self.num_envs, 4))), {}

    def step(
        self, actions: Array
    ) -> tuple[Array, Array, np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
        """Apply a force (n, 1) in every world for 0.1 s; worlds whose episode is over reset instead."""
        forces = self.carts.checked(actions, (self.num_envs, 1))
        runs = ~self._over
        seen, rewards = np.empty((self.num_envs, 4)), np.zeros(self.num_envs)
        if runs.any():
            own = [generator for generator, is_on in zip(self._generators, runs, strict=True) if is_on]
            self.states[runs], seen[runs], rewards[runs] = self.carts.step(
                self.states[runs], forces[runs], own
            )
            self._steps[runs] += 1
        seen = self._started(self._over.copy(), seen)
        self._over = self._steps >= self.carts.horizon
        return seen, rewards, np.zeros(self.num_envs, dtype=bool), self._over.copy(), {}

    def render(self) -> tuple[Any, ...] | None:
        """A picture of every world; None without a `render_mode`."""
        if self.render_mode is None:
            return None
        return tuple(cart_pole_picture(state, pole_length=self.carts.pole_length) for state in self.states)

    def _started(self, which: np.ndarray[Any, Any], seen: Array) -> Array:
        """Reset some worlds and write their observations into `seen`."""
        for place in np.flatnonzero(which):
            self.states[place], seen[place] = self.carts.start(self._generators[place])
        self._steps[which] = 0
        self._over[which] = False
        return seen


def _spaces() -> tuple[Any, Any]:
    seen = Box(-np.inf, np.inf, (4,), dtype=np.float64)
    return seen, Box(-LARGEST_FORCE, LARGEST_FORCE, (1,), dtype=np.float64)
