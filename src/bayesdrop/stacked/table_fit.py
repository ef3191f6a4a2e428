"""One table on its way through a recipe: which networks it needs, and what came of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import Diverged
from bayesdrop.stacked.bayes import Proposals
from bayesdrop.stacked.encode import Encoder
from bayesdrop.stacked.held_out import (
    Calibration,
    HeldOut,
    calibrate,
    calibrated,
    held_out,
    mixture_log_prob,
)
from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.mixture import Component, Mixture, used_encoders
from bayesdrop.stacked.packed import PackedInputs
from bayesdrop.stacked.recipe import Candidate, Recipe
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.table import Table

__all__ = ["TableFit"]


class TableFit:
    """One table on its way through a recipe."""

    def __init__(self, table: Table, recipe: Recipe) -> None:
        self.table, self.recipe = table, recipe
        self.size = len(table.x)
        self.folds = max(2, min(recipe.folds, self.size))
        self.parts_of_block = min(recipe.parts, self.folds) if self.size > 1 else 0
        self.candidates: list[Candidate] = []
        self.networks: dict[int, list[Trained]] = {}
        self.parts: dict[int, list[HeldOut]] = {}
        self.changes: dict[int, Calibration] = {}
        self.scores: dict[int, Tensor] = {}
        self.encoders: dict[int, Encoder] = {}
        self.inputs: dict[int, Tensor | PackedInputs] = {}
        self.precision: dict[int, float] = {}
        self.proposals = Proposals(recipe, table.seed) if recipe.rounds else None

    def job(self, place: int, network: int, rows: Tensor | None, held: Tensor | None = None) -> Job:
        """A network of a candidate, and rows that tell it when to stop if it has patience."""
        candidate = self.candidates[place]
        if candidate.bins not in self.inputs:
            self.encoders[candidate.bins] = Encoder.of(self.table.x, candidate.bins)
            self.inputs[candidate.bins] = self.encoders[candidate.bins].table_inputs(self.table.x)
        # A seed of 32 bits for every network of every table.
        seed = int(np.random.SeedSequence([self.table.seed, network]).generate_state(1)[0])
        return Job(
            self.inputs[candidate.bins],
            self.table.targets,
            self._in_units(candidate.settings),
            seed=seed,
            rows=rows,
            validation=None if candidate.settings.patience is None else held,
            weight=self.table.weights,
            classes=self.table.classes,
            name=self.table.name,
        )

    def _in_units(self, settings: Settings) -> Settings:
        """Settings whose fixed noise, given in the target's units, is that of standardised targets."""
        if settings.noise != "fixed" or self.table.target is None:
            return settings
        std = settings.noise_std
        if self.recipe.precisions is not None:
            ordered = sorted(self.recipe.precisions)
            std = ordered[len(ordered) // 2] ** -0.5
        return replace(settings, noise_std=float(std / self.table.target.scale.mean()))

    def final_job(self, place: int, restart: int) -> Job:
        """A network of a candidate on all rows, but for a tenth if it must see when to stop."""
        number = 900_000 + restart
        if self.candidates[place].settings.patience is None or self.size < 2:
            return self.job(place, number, None)
        order = torch.from_numpy(self._order(number))
        count = max(1, self.size // 10)
        return self.job(place, number, order[count:].sort().values, order[:count].sort().values)

    def _order(self, number: int) -> NDArray[np.int64]:
        key = np.random.SeedSequence([self.table.seed, 10_000 + number])
        return np.random.Generator(np.random.SFC64(key)).permutation(self.size)

    def held_rows(self, block: int) -> list[Tensor]:
        """The rows that each network of a block does not see."""
        if self.recipe.holdout == "last":
            return [torch.arange(self.size - max(1, self.size // self.folds), self.size)]
        # Where only some rows are held out, all blocks hold out the same: these see the whole mixture.
        order = self._order(block if self.parts_of_block == self.folds else 0)
        return [torch.from_numpy(np.sort(order[part :: self.folds])) for part in range(self.parts_of_block)]

    def block_jobs(self, place: int, block: int) -> tuple[list[Job], list[Tensor]]:
        """The jobs of a block of a candidate, and what they hold out."""
        held = self.held_rows(block)
        jobs = []
        for part, rows in enumerate(held):
            keep = torch.ones(self.size, dtype=torch.bool)
            keep[rows] = False
            jobs.append(self.job(place, 1000 * block + part, keep.nonzero().flatten(), rows))
        return jobs, held

    def add(self, place: int, networks: Sequence[Trained], held: Sequence[Tensor]) -> None:
        """Networks of a candidate, and what they say about the rows they have not seen."""
        bins = self.candidates[place].bins
        for network, rows in zip(networks, held, strict=True):
            if network.diverged:
                continue
            self.networks.setdefault(place, []).append(network)
            part = held_out(
                network,
                self.inputs[bins],
                self.table.targets,
                rows,
                num_draws=self.recipe.judge_draws,
                seed=network.seed,
            )
            self.parts.setdefault(place, []).append(part)

    def judge(self, place: int) -> float:
        """The log-likelihood of a candidate's held-out rows, its noise set to suit them."""
        parts = self.parts.get(place)
        if not parts:
            return -math.inf
        change = Calibration()
        if self.recipe.precisions is not None:
            change = self._best_precision(place, parts)
        elif self.recipe.calibrate:
            change = calibrate(parts, self.size, tails=self.recipe.tails)
        self.changes[place] = change
        self.scores[place] = mixture_log_prob(parts, [change] * len(parts), self.size)
        return float(self.scores[place].nanmean()) - self.table.log_unit

    def _best_precision(self, place: int, parts: Sequence[HeldOut]) -> Calibration:
        """The precision of the grid under which held-out rows are most probable."""
        assert self.table.target is not None
        assert self.recipe.precisions is not None
        level = parts[0].log_noise_std
        assert level is not None
        unit = math.log(float(self.table.target.scale.mean()))
        found = {}
        for precision in self.recipe.precisions:
            change = Calibration(shift=-math.log(precision) - 2 * unit - 2 * float(level[0]))
            value = float(mixture_log_prob(parts, [change] * len(parts), self.size).nanmean())
            found[precision] = (value, change)
        best = max(found, key=lambda precision: found[precision][0])
        self.precision[place] = best
        return found[best][1]

    def picks(self) -> list[int]:
        """Candidates of the blocks, each picked so as to make unseen rows most probable with those before."""
        known = {place: score for place, score in self.scores.items() if not bool(score.isnan().all())}
        if not known:
            raise Diverged("fit: every network diverged. Lower `lr`.", step=0, epoch=0)
        total: Tensor | None = None
        picked: list[int] = []
        for _ in range(1 if self.recipe.refit else self.recipe.blocks):
            joined = {
                place: score if total is None else torch.logaddexp(total, score)
                for place, score in known.items()
            }
            best = max(joined, key=lambda place: float(joined[place].nanmean()))
            total = joined[best]
            picked.append(best)
        return picked

    def result(self, picked: Sequence[int], refitted: Sequence[Trained] | None) -> Mixture:
        """The networks that are kept, their noise set."""
        if refitted is not None:
            place = picked[0]
            change = self.changes.get(place, Calibration())
            kept = [calibrated(one, change) for one in refitted if not one.diverged]
            components = [Component(network, self.candidates[place].bins) for network in kept]
            dof = change.dof
        else:
            components, dof = self._blended(picked)
        if not components:
            raise Diverged("fit: every network diverged. Lower `lr`.", step=0, epoch=0)
        return Mixture(
            components=tuple(components),
            encoders=used_encoders(components, self.encoders),
            target=self.table.target,
            num_draws=self.recipe.num_draws,
            dof=dof,
            search=tuple(self._search_rows(picked)),
        )

    def _blended(self, picked: Sequence[int]) -> tuple[list[Component], float]:
        places = sorted(set(picked))
        parts = [part for place in places for part in self.parts[place]]
        changes = [self.changes[place] for place in places for _ in self.parts[place]]
        last = Calibration(dof=changes[0].dof)
        if self.recipe.calibrate and len(parts) > 1:
            last = calibrate(parts, self.size, given=changes, tails=self.recipe.tails)
        components = [
            Component(
                calibrated(calibrated(network, self.changes[place]), last),
                self.candidates[place].bins,
                part.rows,
            )
            for place in places
            for network, part in zip(self.networks[place], self.parts[place], strict=True)
        ]
        return components, last.dof

    def _search_rows(self, picked: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {
                "candidate": str(candidate),
                "settings": candidate.settings.as_dict(),
                "bins": candidate.bins,
                "log_likelihood": float(self.scores[place].nanmean()) - self.table.log_unit
                if place in self.scores
                else None,
                "shift": self.changes.get(place, Calibration()).shift,
                "slope": self.changes.get(place, Calibration()).slope,
                "precision": self.precision.get(place),
                "picked": list(picked).count(place),
            }
            for place, candidate in enumerate(self.candidates)
        ]
