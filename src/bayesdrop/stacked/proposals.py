"""Bayesian optimisation of p and length scale, a batch of candidates at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bayesdrop.errors import require
from bayesdrop.stacked.recipe import Candidate, FitRecipe

__all__ = ["Proposals"]

#: where p and the length scale are looked for, both on a log scale
P_RANGE, LENGTH_RANGE = (5e-3, 0.5), (1e-3, 10.0)


class Proposals:
    """Candidates that a Gaussian process finds promising: optuna's GP sampler, asked in batches.

    They are the recipe's first candidate with another p and length scale. Of the recipe's own candidates,
    those that differ from the first in these alone are the first observations.

    Args:
        recipe: its candidates, `rounds` and `batch`.
        seed: of the sampler.
    """

    def __init__(self, recipe: FitRecipe, seed: int) -> None:
        self._optuna = optuna = require("optuna", extra="tune", owner="Bayesian search")
        with self._quiet():
            sampler = optuna.samplers.GPSampler(seed=seed % 2**32, n_startup_trials=recipe.batch)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._base = recipe.candidates[0]
        self._batch, self._left = recipe.batch, recipe.rounds
        self._trials: dict[Candidate, list[Any]] = {}
        self._space = {
            "p": optuna.distributions.FloatDistribution(*P_RANGE, log=True),
            "length_scale": optuna.distributions.FloatDistribution(*LENGTH_RANGE, log=True),
        }

    def ask(self) -> list[Candidate]:
        """The next batch; none after the last round."""
        if self._left <= 0:
            return []
        self._left -= 1
        made = []
        with self._quiet():
            for _ in range(self._batch):
                trial = self._study.ask(self._space)
                made.append(self._at(**trial.params))
                self._trials.setdefault(made[-1], []).append(trial)
        return made

    def tell(self, candidate: Candidate, value: float | None) -> None:
        """The log-likelihood of a candidate's held-out rows; None if all of its networks diverged."""
        if self._trials.get(candidate):
            state = self._optuna.trial.TrialState.FAIL if value is None else None
            self._study.tell(self._trials[candidate].pop(0), value, state=state)
        elif value is not None:
            self._observe(candidate, value)

    def _observe(self, candidate: Candidate, value: float) -> None:
        """Add a candidate of the recipe, if it differs from the first in p and length scale alone."""
        p, l = candidate.settings.p, candidate.settings.length_scale
        inside = isinstance(p, float) and P_RANGE[0] <= p <= P_RANGE[1]
        if inside and LENGTH_RANGE[0] <= l <= LENGTH_RANGE[1] and self._at(p, l) == candidate:
            found = {"p": p, "length_scale": l}
            trial = self._optuna.trial.create_trial(params=found, distributions=self._space, value=value)
            self._study.add_trial(trial)

    def _at(self, p: float | tuple[float, ...], length_scale: float) -> Candidate:
        """The first candidate with another p and length scale."""
        settings = replace(self._base.settings, p=p, length_scale=length_scale)
        return replace(self._base, settings=settings)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Silence optuna's log, and its warnings that something is experimental."""
        logging = self._optuna.logging
        level = logging.get_verbosity()
        logging.set_verbosity(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            finally:
                logging.set_verbosity(level)
