"""PolicySearch: policies that do well in a dynamics model, under all that the model is unsure of."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.control.dynamics import DynamicsModel
from bayesdrop.control.planning import Planner, imitate
from bayesdrop.control.policy_stack import PolicyStack
from bayesdrop.control.rollout import MomentMatching, Reward, Simulator
from bayesdrop.errors import must, real_number, whole_number

__all__ = ["Found", "PolicySearch"]

Starts = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Found:
    """The policies that a search ends with, the best first.

    Attributes:
        policies: as the model judges them, under functions that none was searched with.
        returns: what the model expects of each.
        names: what each is: "plan", "improved" or "incumbent".
    """

    policies: list[nn.Module]
    returns: list[float]
    names: list[str]

    @property
    def policy(self) -> nn.Module:
        """The best of them."""
        return self.policies[0]


@dataclass(frozen=True)
class PolicySearch:
    """Search for policies by gradients of the return of imagined episodes.

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
        clip_norm: largest norm of a policy's gradient.
        redraw_every: steps from one set of functions and noise to the next.
        judges: functions by which policies are compared, none of which was searched with.
        noise: whether the model's noise is part of the episodes. It is at least the model's least noise,
            which is more than a pole that has to be balanced can bear.
        moment_matching: see `rollout`; for one policy at a time.
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
    noise: bool = False
    moment_matching: MomentMatching = None
    planner: Planner | None = None
    plan_starts: int = 4
    imitation_steps: int = 200
    imitation_lr: float = 2e-2

    def __post_init__(self) -> None:
        for name in ("horizon", "particles", "steps", "redraw_every", "judges", "plan_starts"):
            whole_number("PolicySearch", name, getattr(self, name), at_least=1)
        for name in ("lr", "clip_norm", "imitation_lr"):
            real_number("PolicySearch", name, getattr(self, name), "a positive number", above=0)
        for name in ("reward", "starts"):
            if not callable(getattr(self, name)):
                raise TypeError(must("PolicySearch", name, "a function", getattr(self, name)))

    def improve(
        self,
        model: DynamicsModel,
        policy: nn.Module | Sequence[nn.Module],
        *,
        seed: int = 0,
        objective: Reward | None = None,
    ) -> Tensor:
        """Gradient steps on a policy, which is changed in place. From random weights, this is deep PILCO.

        Several policies of one kind are improved side by side, each by its own gradient. Every time that
        functions are drawn anew the policies are judged by others, and each has its best parameters at the
        end: the return of an unstable pole is a rugged function of a policy, and one step can lose it.

        Args:
            model: trained.
            policy: one with parameters, or several.
            seed: of functions, noise and starts.
            objective: reward that is searched by, if not `reward`: one that is felt from further away.

        Returns: the return of every step by `objective`, (steps, policies).
        """
        stack = self._stack(model, policy)
        objective = self.reward if objective is None else objective
        optimizer = torch.optim.Adam(stack.parameters, lr=self.lr, fused=True)
        returns = torch.zeros(self.steps, stack.number)
        number = 1_000_003 * seed
        judge = self._simulator(model, self.judges, number + 500_009)
        begun = self._begun(self.judges, number + 500_009, stack)
        best = stack.copied()
        top = self._judged(judge, stack, begun, objective)
        for step in range(self.steps):
            if step % self.redraw_every == 0:
                simulator = self._simulator(model, self.particles, number + step)
                start = self._begun(self.particles, number + step, stack)
            optimizer.zero_grad()
            value = simulator.run(stack, start).returns(objective)
            by_policy = value.reshape(self.particles, stack.number).mean(0)
            (-by_policy.sum()).backward()  # type: ignore[no-untyped-call]
            # An episode that leaves all bounds has no gradient; the next functions may have one.
            stack.clip_gradients(self.clip_norm)
            optimizer.step()
            returns[step] = by_policy.detach()
            if (step + 1) % self.redraw_every == 0 or step + 1 == self.steps:
                now = self._judged(judge, stack, begun, objective)
                better = now > top
                top = torch.where(better, now, top)
                for kept, value in zip(best, stack.copied(), strict=True):
                    kept[better] = value[better]
        stack.put_back(best)
        return returns

    def expected_return(
        self, model: DynamicsModel, policy: nn.Module | Sequence[nn.Module], *, seed: int = 0
    ) -> Tensor:
        """The mean return of policies under `judges` functions of the model. Shape (policies,)."""
        stack = self._stack(model, policy)
        judge = self._simulator(model, self.judges, seed)
        return self._judged(judge, stack, self._begun(self.judges, seed, stack), self.reward)

    def from_plans(
        self,
        model: DynamicsModel,
        make_policy: Callable[[], nn.Module],
        *,
        incumbents: Sequence[nn.Module] = (),
        seed: int = 0,
        objective: Reward | None = None,
        plan_below: float = math.inf,
        keep: int = 3,
    ) -> Found:
        """Plan, imitate the plans, improve by gradients; the best of that and of the incumbents win.

        The candidates are new policies that imitate plans and are then improved, the incumbents improved, and
        the first incumbent as it is. All are judged by functions that none of them was searched with. Without
        the unchanged incumbent a policy that works is lost sooner or later to a model that promises more.

        Args:
            model: trained.
            make_policy: a new policy.
            incumbents: the policies of before, the best first; they are not changed.
            seed: of all that is random.
            objective: reward that is planned and searched by, if not `reward`.
            plan_below: where the model expects as much of the first incumbent, no plans are made.
            keep: how many policies to give back.
        """
        if self.planner is None:
            raise ValueError(must("PolicySearch", "planner", "a Planner to search from plans", None))
        candidates = [copy.deepcopy(each) for each in incumbents]
        names = ["improved"] * len(candidates)
        sure = (
            len(incumbents) > 0 and float(self.expected_return(model, incumbents[0], seed=seed)) >= plan_below
        )
        if not sure:
            planned = self._planned(model, make_policy, seed, objective)
            candidates += planned
            names += ["plan"] * len(planned)
        self.improve(model, candidates, seed=seed, objective=objective)
        candidates += incumbents[:1]
        names += ["incumbent"] * len(incumbents[:1])
        judged = self.expected_return(model, candidates, seed=1_000_003 * seed + 999_983)
        order = judged.argsort(descending=True)[:keep].tolist()
        return Found(
            [candidates[place] for place in order],
            [float(judged[place]) for place in order],
            [names[place] for place in order],
        )

    def _planned(
        self,
        model: DynamicsModel,
        make_policy: Callable[[], nn.Module],
        seed: int,
        objective: Reward | None,
    ) -> list[nn.Module]:
        """New policies, each of which imitates another plan."""
        assert self.planner is not None
        generator = torch.Generator().manual_seed(1_000_003 * seed + 17)
        start = self.starts(self.plan_starts, generator)
        by = self.reward if objective is None else objective
        policies = []
        for states, actions in self.planner.plan(model, by, start, generator=generator):
            policy = make_policy()
            self._stack(model, policy)
            imitate(policy, states, actions, steps=self.imitation_steps, lr=self.imitation_lr)
            policies.append(policy)
        return policies

    def _begun(self, number: int, seed: int, stack: PolicyStack) -> Tensor:
        """Starts, the same ones for every policy, in blocks."""
        start = self.starts(number, torch.Generator().manual_seed(seed))
        return start.repeat_interleave(stack.number, 0)

    @torch.no_grad()
    def _judged(self, judge: Simulator, stack: PolicyStack, begun: Tensor, reward: Reward) -> Tensor:
        returns = judge.run(stack, begun).returns(reward).reshape(self.judges, stack.number)
        return torch.nan_to_num(returns, nan=0.0).mean(0)

    def _simulator(self, model: DynamicsModel, particles: int, seed: int) -> Simulator:
        return Simulator(
            model,
            particles=particles,
            horizon=self.horizon,
            seed=seed,
            noise=self.noise,
            moment_matching=self.moment_matching,
        )

    def _stack(self, model: DynamicsModel, policy: nn.Module | Sequence[nn.Module]) -> PolicyStack:
        if not isinstance(model, DynamicsModel):
            raise TypeError(must("PolicySearch", "model", "a DynamicsModel", model))
        policies = [policy] if isinstance(policy, nn.Module) else list(policy)
        if self.moment_matching is not None and len(policies) > 1:
            want = "one policy where moments are matched, as particles of several would be mixed"
            raise ValueError(must("PolicySearch", "policy", want, f"{len(policies)} policies"))
        return PolicyStack("PolicySearch", policies)
