"""MPC: at every step, make a plan and take its first action."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.control.cross_entropy import maximise
from bayesdrop.control.dynamics import DynamicsModel
from bayesdrop.control.rollout import Reward, Simulator, cautious
from bayesdrop.errors import must, must_be_finite, real_number, whole_number

__all__ = ["MPC"]


@dataclass
class MPC:
    """Model-predictive control by the cross-entropy method: no policy is learned.

    Every plan is played in `particles` draws of the model, each held over the horizon, and is scored by the
    mean of its returns, less `caution` times their standard deviation over the draws: plans whose return the
    model does not know score lower, so that states without data are avoided. A search starts from the plan
    of the step before, moved on by one step.

    Attributes:
        model: a trained model.
        reward: from states to rewards.
        horizon: steps that a plan looks ahead.
        limit: largest size of an action, of either sign.
        particles: number of draws; 0 for the mean network alone.
        samples: plans of an iteration.
        elites: how many of these plans the next ones are sampled around.
        iterations: number of iterations in a step.
        first_iterations: number of iterations in the first step, when there is no plan yet.
        restarts: searches of the first step, of which the best is used.
        std: standard deviation of the first plans.
        smooth: steps over which the actions of a plan vary together; see `maximise`.
        caution: kappa, at least 0; above 0, at least two particles are needed.
        seed: of plans and draws.

    Reference: Chua et al. (2018), whose ensembles are draws here. Safe exploration is a use that Gal, Hron &
    Kendall (2017) name.
    """

    model: DynamicsModel
    reward: Reward
    horizon: int
    limit: float
    particles: int = 5
    samples: int = 60
    elites: int = 8
    iterations: int = 5
    first_iterations: int = 35
    restarts: int = 3
    std: float = 7.0
    smooth: float = 1.0
    caution: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.model, DynamicsModel):
            raise TypeError(must("MPC", "model", "a DynamicsModel", self.model))
        for name in ("horizon", "samples", "elites", "iterations", "first_iterations", "restarts"):
            whole_number("MPC", name, getattr(self, name), at_least=1)
        whole_number("MPC", "particles", self.particles, at_least=0)
        for name in ("limit", "std"):
            real_number("MPC", name, getattr(self, name), "a positive number", above=0)
        real_number("MPC", "caution", self.caution, "a number of at least 0", at_least=0)
        if self.caution > 0 and self.particles < 2:
            raise ValueError(must("MPC", "particles", "at least 2 with caution", self.particles))
        real_number("MPC", "smooth", self.smooth, "a number of steps, 0 or more", at_least=0)
        self.reset(self.seed)

    def reset(self, seed: int) -> None:
        """Forget the plan: an episode begins.

        Args:
            seed: of plans and draws from here on.
        """
        self.seed = whole_number("MPC", "seed", seed, at_least=0)
        self._generator = torch.Generator().manual_seed(self.seed)
        self._simulator = Simulator(
            self.model,
            particles=max(self.particles, 1),
            horizon=self.horizon,
            seed=self.seed,
            noise=False,
            mean=self.particles == 0,
        )
        self._plan: Tensor | None = None

    def act(self, state: Tensor, *, steps_left: int | None = None) -> Tensor:
        """The action for a state.

        Args:
            state: (S,).
            steps_left: of the episode, if fewer than the horizon: plans are no longer than that.

        Shape: (A,).
        """
        must_be_finite("MPC.act", "state", state)
        if state.shape != (self.model.state_size,):
            want = f"of shape ({self.model.state_size},)"
            raise ValueError(must("MPC.act", "state", want, tuple(state.shape)))
        length = self.horizon if steps_left is None else min(self.horizon, steps_left)
        if self._plan is None:
            mean = state.new_zeros(self.restarts, length, self.model.action_size)
            found = self._searched(state, mean, self.std, self.first_iterations)
        else:
            moved = torch.cat((self._plan[1:], torch.zeros_like(self._plan[:1])))[:length]
            found = self._searched(state, moved.unsqueeze(0), self.std / 3, self.iterations)
        self._plan = found
        return found[0]

    def _searched(self, state: Tensor, mean: Tensor, std: float, iterations: int) -> Tensor:
        particles = max(self.particles, 1)

        def score(plans: Tensor) -> Tensor:
            flat = plans.reshape(-1, *plans.shape[2:])
            # The plans are repeated: group k is played in draw k.
            every = flat.repeat(particles, 1, 1)
            returns = self._simulator.play(state, every, self.reward)
            return cautious(returns.reshape(particles, *plans.shape[:2]), self.caution)

        best = maximise(
            score,
            mean,
            std,
            samples=self.samples,
            elites=self.elites,
            iterations=iterations,
            limit=self.limit,
            smooth=self.smooth,
            generator=self._generator,
        )
        return best.arguments[best.values.argmax()]
