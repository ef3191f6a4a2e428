"""Gal & Ghahramani (2015), Insights and Applications: every statement, checked by numbers.

The paper prints no table. Its statements are claims here, in its own order, each with what was measured;
those that need a correction have one. Where a row has a number under "paper", it is what the measured number
should be by the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bayesdrop.experiments.gal2015_insights import covariance, divergence, networks, objective
from bayesdrop.experiments.gal2015_insights.checks import CheckResult
from bayesdrop.experiments.gal2015_insights.picture import draw
from bayesdrop.experiments.gal2015_insights.training import TrainingRun, check_training
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome
from bayesdrop.progress import progress_bar

__all__ = ["SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """The whole table takes a minute or two."""

    num_units: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000)  #: K of the covariance's estimates
    repeats: int = 200  #: estimates for every K
    num_samples: int = 50_000  #: of Monte Carlo checks
    networks: int = 20  #: of every kind, to train
    steps: int = 1500
    seed: int = 0


SMOKE = Config(num_units=(10, 100), repeats=20, num_samples=2000, networks=2, steps=20)

NOTES = (
    "Statements that this paper leaves to others are checked there: classification and more layers, "
    "uncertainty of images, deferring to a person, cascades of models, reinforcement learning.",
    "p of the paper is the chance of keeping; it is called keep here.",
)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """All checks, one after another."""
    checks = list(_checks(config, cache))
    found: list[CheckResult] = []
    with progress_bar("statements", len(checks), show=progress) as advance:
        for check in checks:
            found.append(check())
            advance(1, "")
    arrays: dict[str, Any] = {}
    for part in found:
        arrays.update(part.arrays)
    return Outcome(
        rows=(row for part in found for row in part.rows),
        claims=(claim for part in found for claim in part.claims),
        arrays=arrays,
        notes=NOTES,
    )


def _checks(config: Config, cache: PieceCache) -> Iterator[Callable[[], CheckResult]]:
    seed, samples = config.seed, config.num_samples
    training = TrainingRun("", config.networks, rows=60, width=64, steps=config.steps, seed=seed)
    yield lambda: networks.check_regulariser(seed)
    yield lambda: networks.check_masks(seed)
    yield lambda: covariance.check_validity(seed)
    yield lambda: covariance.check_error_rate(config.num_units, config.repeats, seed)
    yield lambda: covariance.check_weight_space(samples, seed)
    yield lambda: divergence.check_reparametrisation(samples, seed)
    yield lambda: divergence.check_mixture(samples, seed)
    yield lambda: divergence.check_bias(seed)
    yield lambda: divergence.check_vanishing_width(seed)
    yield lambda: objective.check_objective(samples, seed)
    yield lambda: objective.check_weight_decay(seed)
    yield lambda: objective.check_bias_rate(seed)
    yield lambda: networks.check_noise(samples, seed)
    yield lambda: networks.check_averages(seed)
    yield lambda: networks.check_recurrence(samples, seed)
    yield lambda: check_training(training, cache)
