"""PolicySearch: policies of high expected return in a dynamics model, its uncertainty included."""

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
    """The result of a search: policies, the best first.

    Attributes:
        policies: ordered by their returns in draws of the model that the search did not use.
        returns: the expected return of each policy, by the model.
        names: where each comes from: "plan", "improved" or "incumbent".
    """

    policies: list[nn.Module]
    returns: list[float]
    names: list[str]

    @property
    def policy(self) -> nn.Module:
        """The best policy."""
        return self.policies[0]


@dataclass(frozen=True)
class PolicySearch:
    """Search for policies by gradients of the return of imagined episodes.

        maximise E over draws f of the model of sum_t r(s_t),     s_t+1 = f(s_t, pi(s_t)) + noise

    The expectation is over `particles` draws, each held over its whole episode. Draws and noise are the same
    for all policies, and are replaced every `redraw_every` steps.

    Attributes:
        horizon: H, steps of an episode.
        reward: from states (..., S) to rewards, by which candidates are compared.
        starts: from a number n and a generator to first states (n, S).
        particles: number of draws in a gradient step.
        steps: number of steps of Adam.
        lr: its learning rate.
        clip_norm: largest norm of a policy's gradient.
        redraw_every: steps from one set of draws and noise to the next.
        judges: number of draws by which policies are compared; the search does not use them.
        noise: whether the model's noise is part of the episodes. The model's least noise can be too much for
            a task such as balancing a pole.
        moment_matching: see `rollout`; for one policy at a time.
        planner: makes the plans of `from_plans`.
        plan_starts: number of starts from which plans are made.
        imitation_steps: number of steps of `imitate`.
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
        """Improve a policy in place by gradient steps. From random weights, this is deep PILCO.

        Several policies of one kind are improved side by side, each by its own gradient. Whenever new draws
        are made, the policies are scored by the draws of `judges`, and at the end each gets the parameters of
        its best score: the return of an unstable pole changes abruptly with the policy, and one step can
        ruin it.

        Args:
            model: a trained model.
            policy: one module with parameters, or several.
            seed: of draws, noise and starts.
            objective: reward of the search in place of `reward`, such as a wider one that has a gradient far
                from the goal.

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
            # The gradient of an episode that overflows is not finite; the next draws may do better.
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
        """The mean return of policies under `judges` draws of the model. Shape (policies,)."""
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
        """Make plans, train policies that imitate them, improve those, and return the best candidates.

        The candidates are new policies that imitate plans and are then improved, the improved incumbents, and
        the first incumbent unchanged. All are compared by draws that the search did not use. Without the
        unchanged incumbent, a policy that works would sooner or later be replaced by one of which the model
        promises more.

        Args:
            model: a trained model.
            make_policy: makes a new policy.
            incumbents: policies of an earlier search, the best first; they are not changed.
            seed: of all that is random.
            objective: reward of plans and search in place of `reward`.
            plan_below: plans are made only if the expected return of the first incumbent is below this.
            keep: how many policies to return.
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
        """New policies, each of which imitates the plans of one restart."""
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
        # An episode that overflows must not score higher than a finite one, also where returns are negative.
        finite = returns[returns.isfinite()]
        worst = min(0.0, float(finite.min())) if len(finite) else 0.0
        return torch.nan_to_num(returns, nan=worst, posinf=worst).mean(0)

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
