"""Plans: sequences of actions that do well in the mean network, and policies that imitate them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.control.cross_entropy import Best, maximise
from bayesdrop.control.dynamics import DynamicsModel
from bayesdrop.control.rollout import Reward, Simulator
from bayesdrop.errors import real_number, whole_number

__all__ = ["Planner", "imitate"]


@dataclass(frozen=True)
class Planner:
    """Open-loop plans by the cross-entropy method.

    Attributes:
        horizon: H, steps of a plan.
        limit: largest size of an action, of either sign.
        restarts: independent searches, each of which gives a plan.
        samples: plans of an iteration.
        elites: how many of these plans the next ones are sampled around.
        iterations: number of iterations of such a search.
        again: number of iterations of a search that begins with the plan for another start.
        std: standard deviation of the first actions.
        smooth: steps over which the actions of a sample vary together; see `maximise`.
    """

    horizon: int
    limit: float
    restarts: int = 3
    samples: int = 150
    elites: int = 15
    iterations: int = 35
    again: int = 12
    std: float = 7.0
    smooth: float = 1.0

    def __post_init__(self) -> None:
        for name in ("horizon", "restarts", "samples", "elites", "iterations", "again"):
            whole_number("Planner", name, getattr(self, name), at_least=1)
        for name in ("limit", "std"):
            real_number("Planner", name, getattr(self, name), "a positive number", above=0)
        real_number("Planner", "smooth", self.smooth, "a number of steps, 0 or more", at_least=0)

    def plan(
        self, model: DynamicsModel, reward: Reward, starts: Tensor, *, generator: torch.Generator
    ) -> list[tuple[Tensor, Tensor]]:
        """One plan of every restart for the mean of the starts, then adapted to each start.

        Args:
            model: plans are played in its mean network.
            reward: from states to rewards.
            starts: (n, S).
            generator: of the samples.

        Returns: for every restart, the states (n, H, S) in which its plans act, and their actions (n, H, A).
        """
        simulator = Simulator(model, particles=1, horizon=self.horizon, noise=False, mean=True)
        nothing = starts.new_zeros(self.restarts, self.horizon, model.action_size)
        centre = starts.mean(0)
        first = self._searched(simulator, reward, centre, nothing, self.std, self.iterations, generator)
        # All restarts and starts side by side.
        every = starts.repeat(self.restarts, 1)
        mean = first.arguments.repeat_interleave(len(starts), 0)
        actions = self._searched(
            simulator, reward, every, mean, self.std / 4, self.again, generator
        ).arguments
        states = [every]
        with torch.no_grad():
            for time in range(self.horizon - 1):
                output = simulator.functions(states[-1], actions[:, time])
                states.append(model.next_state(states[-1], output))
        path = torch.stack(states, 1)
        return list(zip(path.chunk(self.restarts), actions.chunk(self.restarts), strict=True))

    def _searched(
        self,
        simulator: Simulator,
        reward: Reward,
        starts: Tensor,
        mean: Tensor,
        std: float,
        iterations: int,
        generator: torch.Generator,
    ) -> Best:
        def score(actions: Tensor) -> Tensor:
            number = actions.shape[0] * actions.shape[1]
            each = starts.expand(len(actions), -1).repeat_interleave(actions.shape[1], 0)
            returns = simulator.play(each, actions.reshape(number, *actions.shape[2:]), reward)
            return returns.reshape(actions.shape[:2])

        return maximise(
            score,
            mean,
            std,
            samples=self.samples,
            elites=self.elites,
            iterations=iterations,
            limit=self.limit,
            smooth=self.smooth,
            generator=generator,
        )


def imitate(
    policy: nn.Module, states: Tensor, actions: Tensor, *, steps: int = 200, lr: float = 2e-2
) -> None:
    """Train a policy to give the actions of plans in their states; every step of Adam uses all of them.

    Args:
        policy: changed in place.
        states: (n, H, S).
        actions: (n, H, A).
        steps: of Adam.
        lr: its learning rate.
    """
    states, actions = states.flatten(0, 1), actions.flatten(0, 1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (policy(states) - actions).square().mean()
        loss.backward()
        optimizer.step()
