"""Riquelme, Tucker & Snoek (2018), section 5: contextual bandits by dropout, NeuralLinear and epsilon-greedy.

A bandit sees a context, chooses an arm and learns from its reward alone. On the wheel one arm is safe and the
others pay forty times as much, each in one quadrant of a rim whose share of the contexts is 1 - delta^2: who
does not explore never finds out. On a real table (8 x 8 digits, ten arms) the right class gives 1. Numbers
are cumulative regret in per cent of that of choosing at random, over the same contexts.

All bandits train the same network in the same way, on every pull so far, after every 20 contexts. The paper's
constants of the wheel and of the last layer's prior are used; its runs were longer, so that its numbers are
not set beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import require
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.settings import picked
from bayesdrop.layers import BernoulliDropout, ConcreteDropout
from bayesdrop.models import mlp
from bayesdrop.plots import finish_axes, new_figure, plot_runs
from bayesdrop.randomness import random_state_kept

__all__ = ["SMOKE", "Config", "draw", "run"]

BANDITS = ("Thompson, p fixed", "Thompson, Concrete", "NeuralLinear", "epsilon-greedy")


@dataclass(frozen=True)
class Config:
    """Two wheels and a table, five seeds."""

    problems: tuple[str, ...] = ("wheel 0.5", "wheel 0.9", "digits")
    num_contexts: int = 2000
    round_size: int = 20
    steps: int = 40  #: of Adam after a round
    hidden: int = 100
    p: float = 0.1
    epsilon: float = 0.05
    num_seeds: int = 5
    seed: int = 0


SMOKE = Config(problems=("wheel 0.5", "digits"), num_contexts=60, steps=2, hidden=8, num_seeds=2)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Cumulative regret of every bandit on every problem."""
    common = picked(config, "steps", "hidden", "p", "epsilon")
    common |= {"contexts": config.num_contexts, "round": config.round_size}
    seeds = range(config.seed, config.seed + config.num_seeds)
    groups = {
        (problem, bandit): [{"problem": problem, "bandit": bandit, "seed": seed, **common} for seed in seeds]
        for problem, bandit in product(config.problems, BANDITS)
    }
    found = run_groups(groups, _played, cache=cache, progress=progress, label="bandits")
    shares = {place: np.stack([piece["share"] for piece in pieces]) for place, pieces in found.items()}
    rows = [
        Row.of_runs(f"{problem}, {bandit}", "regret (% of chance's)", curves[:, -1])
        for (problem, bandit), curves in shares.items()
    ]
    arrays: dict[str, Any] = {f"{problem}: {bandit}": own for (problem, bandit), own in shares.items()}
    arrays["contexts"] = next(iter(found.values()))[0]["contexts"]
    return Outcome(rows, _claims(config, shares), arrays)


def _claims(config: Config, shares: Mapping[tuple[str, str], Any]) -> list[Claim]:
    """Held against the means over seeds at the end; the sentences were fixed before any run."""
    mean = {place: float(np.mean(curves[:, -1])) for place, curves in shares.items()}

    def listed(first: str, second: str) -> tuple[str, list[str]]:
        pairs = [(name, mean[name, first], mean[name, second]) for name in config.problems]
        text = "; ".join(f"{name}: {a:.1f} and {b:.1f} %" for name, a, b in pairs)
        return text, [name for name, a, b in pairs if a < b]

    fixed, concrete, linear, greedy = BANDITS
    claims = []
    for text, first, second in (
        ("Thompson sampling by dropout has less regret than epsilon-greedy on every problem.", fixed, greedy),
        ("NeuralLinear has less regret than Thompson sampling by dropout on every problem.", linear, fixed),
        ("A learned rate has less regret than a fixed one on every problem.", concrete, fixed),
    ):
        found, where = listed(first, second)
        instead = f"It depends on the problem: on {' and '.join(where) or 'none'} of these it had less."
        claims.append(
            Claim(
                text, f"{first} and {second}: {found}.", len(where) == len(config.problems), otherwise=instead
            )
        )
    return claims


def _problem(name: str) -> Any:
    from bayesdrop.control.bandit_problems import TableBandit, WheelBandit

    if name.startswith("wheel "):
        return WheelBandit(float(name.removeprefix("wheel ")))
    datasets = require("sklearn.datasets", extra="sklearn", owner="thompson-bandits")
    x, y = datasets.load_digits(return_X_y=True)
    return TableBandit(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y))


def _network(key: Mapping[str, Any], features: int, arms: int) -> nn.Sequential:
    layers: dict[str, Any] = {BANDITS[0]: BernoulliDropout, BANDITS[1]: ConcreteDropout}
    h, layer = key["hidden"], layers.get(key["bandit"])
    with random_state_kept():
        torch.manual_seed(key["seed"])
        if layer is not None:
            return mlp(features, (h, h), arms, p=key["p"], input_p=0.0, layer=layer)
        # Without dropout, so that nothing but their own exploration tells the others apart.
        return nn.Sequential(
            nn.Linear(features, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, arms)
        )


def _played(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: (rounds,) cumulative regret in per cent of that of chance over all contexts; `contexts`."""
    from bayesdrop.control.bandit_problems import play
    from bayesdrop.control.bandits import EpsilonGreedyBandit, ThompsonBandit, UniformBandit
    from bayesdrop.control.neural_linear import NeuralLinear

    problem = _problem(key["problem"])
    size = problem.num_features, problem.num_arms
    make: Any = {
        "NeuralLinear": NeuralLinear,
        "epsilon-greedy": partial(EpsilonGreedyBandit, epsilon=key["epsilon"]),
    }.get(key["bandit"], ThompsonBandit)
    scale = 10.0 if key["problem"].startswith("wheel") else 1.0
    bandit = make(_network(key, *size), *size, steps=key["steps"], reward_scale=scale, seed=key["seed"])
    options: dict[str, Any] = {"round_size": key["round"], "seed": key["seed"]}
    pulls = play(bandit, problem, key["contexts"], **options)
    chance = play(UniformBandit(*size, seed=key["seed"]), problem, key["contexts"], **options)
    ends = torch.arange(key["round"] - 1, key["contexts"], key["round"])
    share: Tensor = 100 * pulls.regret.double().cumsum(0)[ends] / chance.regret.double().sum()
    return {"share": share.numpy(), "contexts": (ends + 1).numpy()}


def draw(outcome: Outcome) -> Any:
    """Cumulative regret against the number of contexts, a panel a problem: means, and every seed."""
    arrays = outcome.arrays
    problems = list(dict.fromkeys(name.partition(":")[0] for name in arrays if ":" in name))
    figure = new_figure(4.2 * len(problems), 4)
    axes = np.atleast_1d(figure.subplots(1, len(problems), squeeze=True))
    contexts = np.asarray(arrays["contexts"], dtype=float)
    for ax, problem in zip(axes, problems, strict=True):
        for place, bandit in enumerate(BANDITS):
            curves = np.asarray(arrays[f"{problem}: {bandit}"], dtype=float)
            plot_runs(ax, contexts, curves, band=None, runs=True, color=f"C{place}", label=bandit)
        ax.plot([0, contexts[-1]], [0, 100], color="0.5", linestyle=":", label="at random")
        top = max(float(np.max(arrays[f"{problem}: {bandit}"])) for bandit in BANDITS)
        finish_axes(ax, problem, xlabel="contexts", ylim=(0, 1.08 * top), xlim=(0, contexts[-1]))
    axes[0].set_ylabel("cumulative regret (% of chance's at the end)")
    finish_axes(axes[-1], legend="lower right")
    return figure
