"""Bayesian optimisation of p and length scale, a batch of candidates at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from bayesdrop.errors import require
from bayesdrop.stacked.recipe import Candidate, Recipe

__all__ = ["Proposals"]

#: where p and the length scale are looked for, both on a log scale
P_RANGE, LENGTH_RANGE = (5e-3, 0.5), (1e-3, 10.0)


class Proposals:
    """Candidates that a Gaussian process finds promising: optuna's GP sampler, asked in batches.

    The first candidate of the recipe is varied; the candidates of the recipe are the first observations.

    Args:
        recipe: its first candidate, `rounds` and `batch`.
        seed: of the sampler.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        optuna = require("optuna", extra="tune", owner="Bayesian search")
        self._optuna = optuna
        with _quiet(optuna):
            sampler = optuna.samplers.GPSampler(seed=seed % 2**32, n_startup_trials=recipe.batch)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._base = recipe.candidates[0]
        self._batch, self._left = recipe.batch, recipe.rounds
        self._trials: dict[int, Any] = {}
        self._known = 0
        self._space = {
            "p": optuna.distributions.FloatDistribution(*P_RANGE, log=True),
            "length_scale": optuna.distributions.FloatDistribution(*LENGTH_RANGE, log=True),
        }

    @property
    def done(self) -> bool:
        """Whether no round is left."""
        return self._left <= 0

    def ask(self, seen: Sequence[tuple[Candidate, Tensor | None]]) -> list[Candidate]:
        """The next batch.

        Args:
            seen: all candidates so far with the log-likelihood of their held-out rows; those that came with
                the recipe are told to the sampler.
        """
        self._left -= 1
        for candidate, score in seen[self._known :] if not self._known else ():
            self._observe(candidate, score)
        self._known = len(seen)
        made = []
        with _quiet(self._optuna):
            for _ in range(self._batch):
                trial = self._study.ask(self._space)
                settings = replace(
                    self._base.settings, p=trial.params["p"], length_scale=trial.params["length_scale"]
                )
                candidate = replace(self._base, settings=settings)
                self._trials[id(candidate)] = (trial, candidate)
                made.append(candidate)
        return made

    def tell(self, candidate: Candidate, value: float) -> None:
        """The log-likelihood of a candidate's held-out rows."""
        trial, _ = self._trials.pop(id(candidate))
        if math.isfinite(value):
            self._study.tell(trial, value)
        else:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def _observe(self, candidate: Candidate, score: Tensor | None) -> None:
        p, l = candidate.settings.p, candidate.settings.length_scale
        inside = isinstance(p, float) and P_RANGE[0] <= p <= P_RANGE[1]
        if score is None or not inside or not LENGTH_RANGE[0] <= l <= LENGTH_RANGE[1]:
            return
        if replace(candidate, settings=replace(candidate.settings, p=0.1, length_scale=1.0)) != replace(
            self._base, settings=replace(self._base.settings, p=0.1, length_scale=1.0)
        ):
            return
        trial = self._optuna.trial.create_trial(
            params={"p": p, "length_scale": l}, distributions=self._space, value=float(score.nanmean())
        )
        self._study.add_trial(trial)


class _quiet:
    """No log lines and no warnings about what is experimental in optuna."""

    def __init__(self, optuna: Any) -> None:
        self._optuna = optuna

    def __enter__(self) -> None:
        import warnings

        self._level = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *_error: object) -> None:
        self._caught.__exit__(None, None, None)
        self._optuna.logging.set_verbosity(self._level)
