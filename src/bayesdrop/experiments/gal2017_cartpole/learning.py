"""One piece: an agent that learns to swing the pole up, trial by trial, in one way and with one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.control import (
    MPC,
    CartPoleSwingUp,
    CartPoleSwingUpVector,
    DynamicsModel,
    MLPPolicy,
    Planner,
    PolicySearch,
    RBFPolicy,
    Simulator,
    StateFeatures,
    Transitions,
    cart_pole_reward,
    fit_dynamics,
)
from bayesdrop.layers import rates
from bayesdrop.likelihoods import HeteroscedasticGaussian
from bayesdrop.predict import predict

__all__ = ["OUTPUTS", "learn", "scheduled_p"]

OUTPUTS = ("x", "x'", "theta", "theta'")
LIMIT = 10.0  #: largest force on the cart, in newtons
STATE_SCALE = (1.0, 3.0, 6.0, 0.7, 0.7)  #: x, x', theta', sin theta, cos theta
ACTION_SCALE = 6.0
OUTPUT_SCALE = (0.2, 1.0, 0.5, 3.0)
#: seed of the first episode that policies are measured by; those that an agent learns from are below
MEASURED_FROM = 1_000_000


def scheduled_p(trial: int) -> float:
    """The rate that is set by hand: 0.1 / trial, as there are `trial` times the data of the first trial."""
    return 0.1 / trial


def learn(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: what was reached and how sure the model was, after every trial.

    Returns: `rewards` (trials,) of the trials' own episodes; `means` (trials,) over many starts, NaN where
    there is no policy; `rates` (trials, 3), `epistemic` (trials, 4) and `rmse` (trials,) of the model; for
    some trials, as the second, "fan 2": that episode in draws of the model, and "real 2": as it was.
    """
    return _Agent(key).learn()


class _Agent:
    """One model, one policy, and all data so far."""

    def __init__(self, key: Mapping[str, Any]) -> None:
        self.key = key
        self.seed = key["seed"]
        self.horizon = key["horizon"]
        self.concrete = key["dropout"] == "concrete"
        self.world = CartPoleSwingUp(horizon=self.horizon)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.model = DynamicsModel(
                4,
                1,
                angles=(2,),
                state_scale=STATE_SCALE,
                action_scale=ACTION_SCALE,
                output_scale=OUTPUT_SCALE,
                hidden=(key["width"], key["width"]),
                dropout="concrete" if self.concrete else "fixed",
                input_p=None if self.concrete else 0.0,
            )
        self.search = PolicySearch(
            horizon=self.horizon,
            reward=cart_pole_reward,
            starts=_starts,
            steps=key["search_steps"],
            moment_matching="diagonal" if key["control"] == "plain" else None,
            lr=key["search_lr"],
            planner=Planner(
                horizon=self.horizon,
                limit=LIMIT,
                restarts=key["plans"],
                samples=key["plan_samples"],
                elites=max(key["plan_samples"] // 10, 2),
                iterations=key["plan_iterations"],
                again=max(key["plan_iterations"] // 3, 1),
            ),
            plan_starts=3,
        )
        self.policy: nn.Module | None = None
        self.pool: list[nn.Module] = []
        self.random = np.random.default_rng(self.seed)
        self.train: list[Transitions] = []
        self.held_out: list[Transitions] = []

    def learn(self) -> dict[str, Any]:
        trials = self.key["trials"]
        rewards, means = np.zeros(trials), np.full(trials, np.nan)
        found = {"rates": np.zeros((trials, 3)), "epistemic": np.zeros((trials, 4)), "rmse": np.zeros(trials)}
        shown: dict[str, Any] = {}
        for trial in range(1, trials + 1):
            act = self._actor(trial)
            seen, actions, states, rewards[trial - 1] = self._episode(act, trial)
            if self.policy is not None:
                means[trial - 1] = measure(self.policy, self.key["starts"], self.horizon)
                if trial in (*self.key["fans"], trials):
                    fan = self._fan(seen[0])
                    shown |= {f"fan {trial}": fan, f"real {trial}": states.astype(np.float32)}
            self._remember(seen, actions)
            self._fit(trial)
            for name, value in self._described().items():
                found[name][trial - 1] = value
            if trial < trials:
                self._search(trial)
        return {"rewards": rewards, "means": means, **found, **shown}

    def _actor(self, trial: int) -> Callable[[Tensor, int], np.ndarray[Any, Any]]:
        if trial == 1:
            return lambda state, time: self.random.uniform(-LIMIT, LIMIT, 1)
        if self.key["control"] == "mpc":
            control = MPC(
                self.model,
                self._objective(trial - 1),
                horizon=self.horizon,
                limit=LIMIT,
                samples=max(self.key["plan_samples"] // 2, 8),
                first_iterations=self.key["plan_iterations"],
                seed=1000 * self.seed + trial,
            )
            return lambda state, time: control.act(state, steps_left=self.horizon - time).double().numpy()
        policy = self.policy
        assert policy is not None
        return lambda state, time: policy(state[None])[0].detach().double().numpy()

    def _episode(
        self, act: Callable[[Tensor, int], np.ndarray[Any, Any]], trial: int
    ) -> tuple[Tensor, Tensor, np.ndarray[Any, Any], float]:
        """What was seen (H + 1, 4), what was done (H, 1), the true states, and the sum of rewards."""
        state, _ = self.world.reset(seed=1000 * self.seed + trial)
        seen, actions, states, total = [state], [], [self.world.state], 0.0
        for time in range(self.horizon):
            action = np.clip(act(torch.tensor(state).float(), time), -LIMIT, LIMIT)
            state, reward, _, _, _ = self.world.step(action)
            seen.append(state)
            actions.append(action)
            states.append(self.world.state)
            total += reward
        return (
            torch.tensor(np.array(seen)).float(),
            torch.tensor(np.array(actions)).float(),
            np.array(states),
            total,
        )

    def _remember(self, seen: Tensor, actions: Tensor) -> None:
        """Add an episode to the data; one in eight transitions is held out, to measure the model by."""
        episode = Transitions.of_episode(seen, actions)
        order = torch.from_numpy(self.random.permutation(len(episode)))
        aside = max(len(episode) // 8, 1)
        self.held_out.append(episode[order[:aside]])
        self.train.append(episode[order[aside:]])

    def _fit(self, trial: int) -> None:
        data = Transitions.joined(self.train)
        if self.key["mirrored"]:
            data = Transitions.joined([data, data.mirrored()])
        if self.key["dropout"] == "scheduled":
            self.model.set_p(scheduled_p(trial))
        steps = self.key["first_steps"] if trial == 1 else self.key["fit_steps"]
        fit_dynamics(self.model, data, steps=steps, seed=1000 * self.seed + trial)

    def _objective(self, trial: int) -> Callable[[Tensor], Tensor]:
        """The reward and some of a wider one, which reaches the hanging pole: less after three trials."""
        weight = 0.5 if trial <= 3 else 0.1
        return lambda state: cart_pole_reward(state) + weight * cart_pole_reward(state, width=0.8)

    def _search(self, trial: int) -> None:
        seed, control = 1000 * self.seed + trial, self.key["control"]
        if control == "mpc":
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if control == "plain":
                if self.policy is None:
                    self.policy = RBFPolicy(_features(), limit=LIMIT)
                self.search.improve(self.model, self.policy, seed=seed)
                return
            found = self.search.from_plans(
                self.model,
                lambda: MLPPolicy(_features(), limit=LIMIT),
                incumbents=self.pool,
                seed=seed,
                objective=self._objective(trial),
                plan_below=self.key["plan_below"],
                keep=self.key["keep"],
            )
            self.pool, self.policy = found.policies, found.policy

    def _described(self) -> dict[str, Any]:
        """Rates of the three layers; epistemic std and error on transitions that were held out."""
        held_out = Transitions.joined(self.held_out)
        inputs, targets = self.model.data(held_out)
        prediction = predict(
            self.model,
            inputs,
            num_draws=self.key["num_draws"],
            seed=self.seed,
            likelihood=HeteroscedasticGaussian(),
        )
        layers = [float(rate) for rate in rates(self.model).values()]
        return {
            "rates": [0.0] * (3 - len(layers)) + layers,
            "epistemic": (prediction.epistemic.mean(0).sqrt() * self.model.output_scale).numpy(),
            "rmse": float((prediction.mean - targets).square().mean().sqrt()),
        }

    def _fan(self, start: Tensor) -> np.ndarray[Any, Any]:
        """(20, H + 1, 4) the episode in 20 draws of the model, which has not been trained on it yet."""
        assert self.policy is not None
        simulator = Simulator(
            self.model, particles=20, horizon=self.horizon, seed=self.seed + 77, noise=False
        )
        with torch.no_grad():
            return simulator.run(self.policy, start).states.transpose(0, 1).numpy()


def measure(policy: nn.Module, number: int, horizon: int) -> float:
    """The mean return of a policy in the real world over starts that are the same for all."""
    worlds = CartPoleSwingUpVector(number, horizon=horizon)
    seen, _ = worlds.reset(seed=MEASURED_FROM)
    total = 0.0
    with torch.no_grad():
        for _ in range(horizon):
            seen, rewards, _, _, _ = worlds.step(policy(torch.tensor(seen).float()).double().numpy())
            total += float(rewards.mean())
    return total


def _features() -> StateFeatures:
    return StateFeatures(4, angles=(2,), scale=STATE_SCALE)


def _starts(number: int, generator: torch.Generator) -> Tensor:
    return 0.1 * torch.randn(number, 4, generator=generator)
