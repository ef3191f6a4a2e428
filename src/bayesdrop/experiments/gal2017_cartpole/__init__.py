"""Gal, Hron & Kendall (2017), fig. 9: a dynamics model with Concrete dropout swings up a cart-pole.

A pole hangs from a cart; an agent that pushes the cart for 25 steps of 0.1 s has to swing it up and hold it.
After every trial a network with dropout learns from all data so far how the world moves, and a policy is
searched for in episodes that the network imagines, each with a draw of its own that is held to the end.
With Concrete dropout the drop rates, and with them the epistemic uncertainty, fall as data come in; a fixed
rate stays as unsure as it was.

The default starts the search of a policy from plans (cross-entropy method, regression, gradient) and keeps
the policy of before unless a new one is expected to do better. Beside it are the search from a random policy
of radial basis functions as published, control by planning anew at every step with the same model, fixed
rates, and rates that are set by hand. "Mirrored" data have every transition a second time, left for right:
prior knowledge that the paper does not use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2017_cartpole.learning import learn
from bayesdrop.experiments.gal2017_cartpole.picture import draw, film
from bayesdrop.experiments.gal2017_cartpole.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.gal2017_cartpole.variants import VARIANTS, Variant
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import picked

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "film", "run"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on. A trial is one episode, then a fit, then a search."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: int = 5
    trials: int = 25  #: of Concrete dropout
    short_trials: int = 10  #: of fixed and scheduled rates
    other_trials: int = 8  #: of MPC and of the published search
    starts: int = 40  #: of the real episodes that a policy is measured by
    horizon: int = 25
    width: int = 200
    first_steps: int = 800  #: of training after the first trial
    fit_steps: int = 300  #: after every other
    search_steps: int = 80
    search_lr: float = 1e-2
    plain_steps: int = 120
    plans: int = 2  #: new policies of every search, each from a plan of its own
    keep: int = 2  #: policies that go on to the next search
    plan_samples: int = 100
    plan_iterations: int = 25
    plan_below: float = 13.0  #: the search makes new plans if the expected return of the best policy is below
    num_draws: int = 100
    seed: int = 0


SMOKE = Config(
    variants=("concrete, mirrored", "fixed", "mpc", "plain"),
    seeds=1, trials=3, short_trials=2, other_trials=2, starts=3, horizon=4, width=8, first_steps=5,
    fit_steps=5, search_steps=2, plain_steps=2, plan_samples=6, plan_iterations=2, num_draws=5,
)  # fmt: skip
PRESETS = {"quick": Config(variants=("concrete, mirrored", "fixed"), seeds=1, trials=12, short_trials=6)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Let every agent learn, or find what it learned in the cache."""
    trials = {"long": config.trials, "short": config.short_trials, "other": config.other_trials}
    common = picked(
        config, "starts", "horizon", "width", "first_steps", "fit_steps", "plan_below", "num_draws",
        "search_lr", "plans", "keep", "plan_samples", "plan_iterations",
    )  # fmt: skip

    def keys(variant: Variant) -> list[dict[str, Any]]:
        own = picked(variant, "dropout", "control", "mirrored") | {
            "trials": trials[variant.length],
            "search_steps": config.plain_steps if variant.control == "plain" else config.search_steps,
            "fans": (2, 6),
        }
        return [{**own, **common, "seed": config.seed + seed} for seed in range(config.seeds)]

    groups = {name: keys(VARIANTS[name]) for name in config.variants}
    pieces = run_groups(groups, learn, cache=cache, progress=progress, label="Agents")
    found = {
        name: {
            what: np.array([piece[what] for piece in own])
            for what in ("rewards", "means", "rates", "epistemic", "rmse")
        }
        for name, own in pieces.items()
    }
    arrays: dict[str, Any] = {
        f"{name}: {what}": values for name, by_what in found.items() for what, values in by_what.items()
    }
    first = pieces[config.variants[0]][0]
    arrays |= {name: part for name, part in first.items() if name.startswith(("fan", "real"))}
    return Outcome(
        make_rows(config, found), make_claims(config, found), arrays=arrays, notes=make_notes(config)
    )
