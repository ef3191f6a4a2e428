"""Imagined episodes: a policy acts in a dynamics model, and every particle has its own draw of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.control.dynamics import DynamicsModel
from bayesdrop.control.functions import HeldFunctions
from bayesdrop.errors import (
    is_one_of,
    must,
    must_be_finite,
    must_be_flag,
    must_be_tensor,
    whole_number,
    whole_seed,
)

__all__ = ["MomentMatching", "Reward", "Rollout", "Simulator", "cautious", "moment_matched", "rollout"]

Policy = Callable[[Tensor], Tensor]
Reward = Callable[[Tensor], Tensor]
MomentMatching = Literal["diagonal", "full"] | None


@dataclass(frozen=True)
class Rollout:
    """Imagined episodes of P particles over H steps.

    Attributes:
        states: (H + 1, P, S), from the start on.
        actions: (H, P, A).
    """

    states: Tensor
    actions: Tensor

    def returns(self, reward: Reward) -> Tensor:
        """The sum of the rewards of all states after the start. Shape (P,)."""
        return reward(self.states[1:]).sum(0)


def cautious(returns: Tensor, caution: float) -> Tensor:
    """The mean of returns over draws, less `caution` times their standard deviation.

        mean_k R_k - kappa sqrt( sum_k (R_k - mean)^2 / (K - 1) )

    Args:
        returns: (K, ...) in K draws of a model.
        caution: kappa; 0 for the mean alone.

    Shape: (...).

    >>> cautious(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), 0.5)
    tensor([1.2929, 5.0000])
    """
    mean = returns.mean(0)
    return mean - caution * returns.std(0) if caution else mean


def moment_matched(particles: Tensor, normal: Tensor, kind: MomentMatching = "diagonal") -> Tensor:
    """New particles, sampled from the Gaussian with the mean and covariance of the old ones.

    Args:
        particles: (P, S), at least two.
        normal: (P, S) of standard normal numbers; the result has gradients in the particles through mean and
            covariance.
        kind: "diagonal" uses the variances alone, as published programs do; "full" the covariance.

    Shape: (P, S).
    Reference: Gal, McAllister & Rasmussen (2016), algorithm 1.
    """
    mean = particles.mean(0)
    centred = particles - mean
    if kind == "diagonal":
        variance = centred.square().sum(0) / (len(particles) - 1)
        return mean + normal * torch.sqrt(variance + 1e-12)
    covariance = centred.T @ centred / (len(particles) - 1)
    jitter = 1e-6 * covariance.diagonal().mean() + 1e-12
    factor = torch.linalg.cholesky(covariance + jitter * torch.eye(len(covariance)).to(covariance))
    resampled: Tensor = mean + normal @ factor.T
    return resampled


class Simulator:
    """A dynamics model with its randomness held: the same policy has the same episodes every time.

    Particle k moves by draw k of the model over the whole horizon, with noise that is sampled once (common
    random numbers): returns of two policies differ by the policies alone, and the return is a smooth
    function of a policy's parameters.

    Args:
        model: a trained model.
        particles: K, number of draws. Of a start of K n rows, every draw gets n.
        horizon: H, steps.
        seed: of draws and noise.
        noise: whether the model's noise is added to the mean change.
        moment_matching: after every step, sample the particles from a Gaussian: see `moment_matched`.
        mean: use the mean network for all rows instead of draws.
    """

    def __init__(
        self,
        model: DynamicsModel,
        *,
        particles: int,
        horizon: int,
        seed: int = 0,
        noise: bool = True,
        moment_matching: MomentMatching = None,
        mean: bool = False,
    ) -> None:
        owner = "rollout"
        if not isinstance(model, DynamicsModel):
            raise TypeError(must(owner, "model", "a DynamicsModel", model))
        self.particles = whole_number(owner, "particles", particles, at_least=1)
        self.horizon = whole_number(owner, "horizon", horizon, at_least=1)
        self.seed = whole_seed(owner, seed)
        must_be_flag(owner, noise=noise, mean=mean)
        if not is_one_of(moment_matching, ("diagonal", "full", None)):
            raise ValueError(must(owner, "moment_matching", "'diagonal', 'full' or None", moment_matching))
        if moment_matching is not None and self.particles < 2:
            raise ValueError(must(owner, "particles", "at least 2 to match moments", particles))
        self.model = model
        self.noise = noise
        self.moment_matching: MomentMatching = moment_matching
        self.functions = HeldFunctions(
            model, seed=seed, index=None if mean else range(self.particles), means_only=not noise
        )
        self._normals: dict[tuple[int, str], Tensor] = {}

    def run(self, policy: Policy, start: Tensor) -> Rollout:
        """Episodes of a policy, with gradients in its parameters and in the start.

        Args:
            policy: from states (P, S) to actions (P, A).
            start: (S,), or (K n, S): K groups of n rows, one for each draw.
        """
        state = self._checked_start(start)
        rows = len(state)
        steps = self._normal(rows, "steps", state) if self.noise else None
        matching = self._normal(rows, "matching", state) if self.moment_matching is not None else None
        states, actions = [state], []
        for time in range(self.horizon):
            action = policy(state)
            if time == 0 and action.shape != (rows, self.model.action_size):
                want = f"a function to actions of shape {(rows, self.model.action_size)}"
                raise ValueError(must("rollout", "policy", want, tuple(action.shape)))
            output = self.functions(state, action)
            state = self.model.next_state(state, output, None if steps is None else steps[time])
            if matching is not None:
                state = moment_matched(state, matching[time], self.moment_matching)
            states.append(state)
            actions.append(action)
        return Rollout(torch.stack(states), torch.stack(actions))

    def play(self, start: Tensor, actions: Tensor, reward: Reward) -> Tensor:
        """Returns of plans (R, H, A), without gradients, from starts (S,) or (R, S). Shape (R,).

        With K draws, R is K n: group k is played in draw k.
        """
        rows, horizon = actions.shape[:2]
        with torch.inference_mode():
            state = start.expand(rows, -1)
            steps = self._normal(rows, "steps", state) if self.noise else None
            total = torch.zeros(rows, dtype=state.dtype)
            for time in range(horizon):
                output = self.functions(state, actions[:, time])
                state = self.model.next_state(state, output, None if steps is None else steps[time])
                total += reward(state)
        return total

    def _normal(self, rows: int, what: str, like: Tensor) -> Tensor:
        """(H, rows, S) standard normal numbers, the same in every call."""
        key = (rows, what)
        if key not in self._normals:
            number = 2 * self.seed + (what == "matching")
            generator = torch.Generator().manual_seed(number % 2**63)
            shape = (self.horizon, rows, self.model.state_size)
            self._normals[key] = torch.randn(shape, generator=generator, dtype=torch.float64)
        return self._normals[key].to(like)

    def _checked_start(self, start: Tensor) -> Tensor:
        must_be_tensor("rollout", "start", start, floating=True)
        must_be_finite("rollout", "start", start.detach())
        size = self.model.state_size
        if start.shape == (size,):
            return start.expand(self.particles, size)
        if start.dim() != 2 or start.shape[1] != size or not len(start) or len(start) % self.particles:
            want = f"of shape ({size},), or (K n, {size}) with K = {self.particles} particles"
            raise ValueError(must("rollout", "start", want, tuple(start.shape)))
        return start


def rollout(
    model: DynamicsModel,
    policy: nn.Module | Policy,
    start: Tensor,
    *,
    particles: int,
    horizon: int,
    seed: int = 0,
    noise: bool = True,
    moment_matching: MomentMatching = None,
) -> Rollout:
    """Imagined episodes of a policy: one draw of the model for every particle, held over the horizon.

    Args:
        model: a trained model.
        policy: from states (P, S) to actions (P, A).
        start: (S,), or (K n, S): K groups of n rows, one for each draw.
        particles: K.
        horizon: H.
        seed: of draws and noise, which all calls with the same seed have in common.
        noise: whether the model's noise is added to the mean change.
        moment_matching: "diagonal" or "full": see `moment_matched`.
    """
    simulator = Simulator(
        model,
        particles=particles,
        horizon=horizon,
        seed=seed,
        noise=noise,
        moment_matching=moment_matching,
    )
    return simulator.run(policy, start)
