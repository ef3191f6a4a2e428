"""PolicySearch: a policy that does well in a dynamics model, under all that the model is unsure of."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.control.dynamics import DynamicsModel
from bayesdrop.control.planning import Planner, imitate
from bayesdrop.control.rollout import MomentMatching, Reward, Simulator
from bayesdrop.errors import must, must_be_module, real_number, whole_number

__all__ = ["Found", "PolicySearch"]

Starts = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Found:
    """The policy that a search ends with.

    Attributes:
        policy: the best of the candidates under new functions.
        name: which of them it is: "plan", "improved" or "incumbent".
        returns: what the model expects of every candidate, by name.
    """

    policy: nn.Module
    name: str
    returns: dict[str, float]


@dataclass(frozen=True)
class PolicySearch:
    """Search for a policy by gradients of the return of imagined episodes.

        maximise E over functions f of the model of sum_t r(s_t),     s_t+1 = f(s_t, pi(s_t)) + noise

    The expectation is over `particles` functions, each held over its whole episode, with common random
    numbers that are drawn anew every `redraw_every` steps.

    Attributes:
        horizon: H, steps of an episode.
        reward: of states (..., S), by which candidates are judged.
        starts: from a number and a generator to states (n, S).
        particles: functions of a step of the gradient.
        steps: of Adam.
        lr: its learning rate.
        clip_norm: largest norm of the gradient.
        redraw_every: steps from one set of functions and noise to the next.
        judges: functions by which the candidates are compared, none of which was searched with.
        starts_each: starts of a judge.
        noise: whether the model's noise is part of the episodes. It is at least the model's least noise,
            which is more than a pole that has to be balanced can bear.
        moment_matching: see `rollout`.
        planner: makes the plans of `from_plans`.
        plan_starts: from which plans are made.
        imitation_steps: of the regression on the plans.
        imitation_lr: its learning rate.
    """

    horizon: int
    reward: Reward
    starts: Starts
    particles: int = 10
    steps: int = 80
    lr: float = 5e-3
    clip_norm: float = 1.0
    redraw_every: int = 25
    judges: int = 30
    starts_each: int = 1
    noise: bool = False
    moment_matching: MomentMatching = None
    planner: Planner | None = None
    plan_starts: int = 4
    imitation_steps: int = 200
    imitation_lr: float = 2e-2

    def __post_init__(self) -> None:
        for name in ("horizon", "particles", "steps", "redraw_every", "judges", "starts_each", "plan_starts"):
            whole_number("PolicySearch", name, getattr(self, name), at_least=1)
        for name in ("lr", "clip_norm", "imitation_lr"):
            real_number("PolicySearch", name, getattr(self, name), "a positive number", above=0)
        for name in ("reward", "starts"):
            if not callable(getattr(self, name)):
                raise TypeError(must("PolicySearch", name, "a function", getattr(self, name)))

    def improve(
        self, model: DynamicsModel, policy: nn.Module, *, seed: int = 0, objective: Reward | None = None
    ) -> list[float]:
        """Gradient steps on a policy, which is changed in place. From random weights, this is deep PILCO.

        Every time that functions are drawn anew the policy is judged by others; the best one is put back at
        the end. The return of an unstable pole is a rugged function of a policy, and one step can lose it.

        Args:
            model: trained.
            policy: with parameters.
            seed: of functions, noise and starts.
            objective: reward that is searched by, if not `reward`: one that is felt from further away.

        Returns: the return of every step, of `objective`.
        """
        self._check(model, policy)
        objective = self.reward if objective is None else objective
        parameters = [each for each in policy.parameters() if each.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=self.lr, fused=True)
        returns: list[float] = []
        best = _Best(self, model, policy, objective, seed)
        for step in range(self.steps):
            if step % self.redraw_every == 0:
                if step:
                    best.look()
                number = 1_000_003 * seed + step
                simulator = self._simulator(model, self.particles, number)
                start = self.starts(self.particles, torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            value = simulator.run(policy, start).returns(objective).mean()
            (-value).backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(parameters, self.clip_norm)
            # An episode that leaves all bounds has no gradient; the next functions may have one.
            if bool(torch.isfinite(norm)):
                optimizer.step()
            returns.append(float(value.detach()))
        best.look()
        best.put_back()
        return returns

    def expected_return(self, model: DynamicsModel, policy: nn.Module, *, seed: int = 0) -> float:
        """The mean return of a policy under `judges` functions of the model, `starts_each` starts each."""
        self._check(model, policy)
        start = self.starts(self.judges * self.starts_each, torch.Generator().manual_seed(seed))
        with torch.no_grad():
            returns = self._simulator(model, self.judges, seed).run(policy, start).returns(self.reward)
        return float(torch.nan_to_num(returns, nan=0.0).mean())

    def from_plans(
        self,
        model: DynamicsModel,
        make_policy: Callable[[], nn.Module],
        *,
        incumbent: nn.Module | None = None,
        seed: int = 0,
        objective: Reward | None = None,
        plan_below: float = math.inf,
    ) -> Found:
        """Plan, imitate the plans, improve by gradients; the best of that and of the incumbent wins.

        The candidates are a new policy that imitates plans and is then improved, the incumbent improved, and
        the incumbent as it is. All are judged by functions that none of them was searched with. Without the
        unchanged incumbent a policy that works is lost sooner or later to a model that promises more.

        Args:
            model: trained.
            make_policy: a new policy.
            incumbent: the policy of before; it is not changed.
            seed: of all that is random.
            objective: reward that is planned and searched by, if not `reward`.
            plan_below: an incumbent of which the model expects as much is improved without a look at plans.
        """
        if self.planner is None:
            raise ValueError(must("PolicySearch", "planner", "a Planner to search from plans", None))
        candidates: dict[str, nn.Module] = {}
        if incumbent is not None:
            improved = copy.deepcopy(incumbent)
            self.improve(model, improved, seed=seed, objective=objective)
            candidates |= {"improved": improved, "incumbent": incumbent}
        if incumbent is None or self.expected_return(model, improved, seed=seed) < plan_below:
            candidates["plan"] = self._planned(model, make_policy(), seed, objective)
        judged = {
            name: self.expected_return(model, policy, seed=1_000_003 * seed + 999_983)
            for name, policy in candidates.items()
        }
        name = max(judged, key=lambda each: judged[each])
        return Found(candidates[name], name, judged)

    def _planned(
        self, model: DynamicsModel, policy: nn.Module, seed: int, objective: Reward | None
    ) -> nn.Module:
        """A new policy that imitates plans, improved."""
        assert self.planner is not None
        self._check(model, policy)
        generator = torch.Generator().manual_seed(1_000_003 * seed + 17)
        start = self.starts(self.plan_starts, generator)
        by = self.reward if objective is None else objective
        states, actions, _ = self.planner.plan(model, by, start, generator=generator)
        imitate(policy, states, actions, steps=self.imitation_steps, lr=self.imitation_lr)
        self.improve(model, policy, seed=seed, objective=objective)
        return policy

    def _simulator(self, model: DynamicsModel, particles: int, seed: int) -> Simulator:
        return Simulator(
            model,
            particles=particles,
            horizon=self.horizon,
            seed=seed,
            noise=self.noise,
            moment_matching=self.moment_matching,
        )

    def _check(self, model: DynamicsModel, policy: nn.Module) -> None:
        if not isinstance(model, DynamicsModel):
            raise TypeError(must("PolicySearch", "model", "a DynamicsModel", model))
        must_be_module("PolicySearch", "policy", policy)
        if not any(each.requires_grad for each in policy.parameters()):
            raise ValueError(must("PolicySearch", "policy", "a policy with parameters to learn", policy))


class _Best:
    """The best parameters that a policy had so far, by functions that it is not searched with."""

    def __init__(
        self, search: PolicySearch, model: DynamicsModel, policy: nn.Module, objective: Reward, seed: int
    ) -> None:
        number = 1_000_003 * seed + 500_009
        self.policy = policy
        self.objective = objective
        self.simulator = search._simulator(model, search.judges, number)
        self.start = search.starts(search.judges, torch.Generator().manual_seed(number))
        self.value = -math.inf
        self.state: list[Tensor] = []
        self.look()

    @torch.no_grad()
    def look(self) -> None:
        """Keep the parameters as they are now, if none were better."""
        value = float(self.simulator.run(self.policy, self.start).returns(self.objective).mean())
        if value > self.value or not self.state:
            self.value = value
            self.state = [each.clone() for each in self.policy.parameters()]

    @torch.no_grad()
    def put_back(self) -> None:
        """Give the policy its best parameters."""
        for each, best in zip(self.policy.parameters(), self.state, strict=True):
            each.copy_(best)
