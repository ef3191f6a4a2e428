"""fit_tables(): a recipe for one table or many, all networks of all tables in common stacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import Diverged, must
from bayesdrop.stacked.encode import EncodedRows, Encoder, Seen
from bayesdrop.stacked.held_out import (
    Calibration,
    HeldOut,
    calibrate,
    calibrated,
    held_out,
    mixture_log_prob,
)
from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.mixture import Component, Mixture
from bayesdrop.stacked.natures import with_natures
from bayesdrop.stacked.out_of_fold import central_shares
from bayesdrop.stacked.proposals import Proposals
from bayesdrop.stacked.recipe import Candidate, FitRecipe, bins_for
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.start import Start, guess_table
from bayesdrop.stacked.table import TrainingTable
from bayesdrop.stacked.train import train
from bayesdrop.threads import in_one_thread, in_threads

__all__ = ["TableFit", "fit_tables", "grow"]

#: draws of a network for the rows that it held out, in `grow`
_DRAWS = 24
#: guesses of a start, each of which is fitted without a part of the rows
_GUESSES = 4
#: rows from which on two guesses are enough: half of so many rows is all that a guess is fitted to
_LONG = 120_000
#: standard deviation of the noise of standardised targets, while networks are trained whose fixed noise is
#: chosen afterwards
_NOISE_TO_CHOOSE = 0.1
#: candidates with few columns are tried where at most this share of the columns counts
_FEWER = 0.6


def fit_tables(
    tables: Sequence[TrainingTable],
    recipe: FitRecipe | Sequence[FitRecipe],
    *,
    processes: int = 1,
    progress: bool = False,
) -> list[Mixture]:
    """Fit every table by a recipe; networks of all tables that have one shape are trained side by side.

    Args:
        tables: what to fit, each by itself.
        recipe: one for all tables, or one for each.
        processes: as in `train`.
        progress: as in `train`.

    Returns: a mixture for each table.
    """
    recipes = [recipe] * len(tables) if isinstance(recipe, FitRecipe) else list(recipe)
    if len(recipes) != len(tables):
        raise ValueError(must("fit_tables", "recipe", f"one, or one for each of {len(tables)}", len(recipes)))
    tables = with_natures(tables, [one.natures for one in recipes], processes=processes)
    fits = [TableFit(table, one) for table, one in zip(tables, recipes, strict=True)]

    def run(
        wanted: Sequence[tuple[TableFit, Tried, int, range]],
        label: str,
        beside: Sequence[Callable[[], None]] = (),
    ) -> None:
        """Train networks of candidates, (table, candidate, block, parts of the block), beside other work.

        `label` says what they are, in a progress bar.
        """
        made = in_one_thread(
            lambda: [fit.block_jobs(tried, block, parts) for fit, tried, block, parts in wanted]
        )
        jobs = [job for own, _ in made for job in own]
        if not jobs and not beside:
            return
        note = _best_so_far(fits)
        found = iter(
            train(jobs, processes=processes, progress=progress, label=label, note=note, beside=beside)
        )
        new = [
            (fit, tried, part, next(found), rows)
            for (fit, tried, _, parts), (_, held) in zip(wanted, made, strict=True)
            for part, rows in zip(parts, held, strict=True)
        ]
        told = in_threads(lambda one: one[0].says(*one[1:]), new)
        for (fit, tried, part, network, _), said in zip(new, told, strict=True):
            fit.add(tried, part, network, said)

    def judge(trials: Mapping[TableFit, Sequence[Tried]]) -> None:
        """Set the noise of candidates, score them, and tell the search of it."""
        judged = [(fit, tried) for fit, own in trials.items() for tried in own]
        in_threads(lambda one: one[0].judge(one[1]), judged)
        for fit, tried in judged:
            fit.tell(tried)
        for fit, own in trials.items():
            fit.remember_best(own)

    searching = [fit for fit in fits if fit.parts]

    def look(trials: Mapping[TableFit, Sequence[Tried]], beside: Sequence[Callable[[], None]] = ()) -> None:
        """Train the networks of the first look at candidates."""
        count = sum(map(len, trials.values()))
        label = f"try {count} candidate{'' if count == 1 else 's'}"
        run([(fit, tried, 0, fit.scouts) for fit, own in trials.items() for tried in own], label, beside)

    # Starts are fitted while the networks that need none are trained.
    free = {fit: fit.tried for fit in searching}
    look(free, [fit.find_start for fit in fits if fit.needs_start])
    look({fit: [one for one in fit.tried if one not in free[fit]] for fit in searching})
    judge({fit: fit.tried for fit in searching})
    for _ in range(max((fit.recipe.rounds for fit in searching), default=0)):
        new = {fit: fit.proposed() for fit in searching}
        look(new)
        judge(new)
    looked = {fit: fit.survivors() for fit in searching}
    for fit, trials in looked.items():
        fit.end_look(trials)
    best = [(fit, tried, 0, fit.others) for fit, trials in looked.items() for tried in trials if fit.others]
    run(best, "train the best")
    judge({fit: trials for fit, trials in looked.items() if fit.others})
    picked = {fit: fit.picks(looked[fit]) if fit.parts else fit.tried[:1] for fit in fits}
    more = [
        (fit, tried, block, range(fit.parts))
        for fit in searching
        if not fit.recipe.refit
        for tried in fit.tried
        for block in range(1, picked[fit].count(tried))
    ]
    run(more, "more of the best")
    refits = [fit for fit in fits if fit.recipe.refit or not fit.parts]
    jobs = [
        fit.final_job(picked[fit][0], restart) for fit in refits for restart in range(fit.recipe.restarts)
    ]
    note = _best_so_far(fits)
    trained = iter(train(jobs, processes=processes, progress=progress, label="train on all rows", note=note))
    refitted = {fit: [next(trained) for _ in range(fit.recipe.restarts)] for fit in refits}
    return in_threads(lambda fit: _with_shares(fit.result(picked[fit], refitted.get(fit)), fit.table), fits)


def _best_so_far(fits: Sequence[TableFit]) -> str:
    """The best candidate of the only table and what it says of unseen rows; "" if nothing is judged yet."""
    best = fits[0].best if len(fits) == 1 else None
    return "" if best is None else f"log-likelihood {best[0]:.3f} so far ({best[1].brief})"


def _with_shares(mixture: Mixture, table: TrainingTable) -> Mixture:
    """The mixture with the `shares` that set its intervals, where it predicts numbers and held rows out."""
    if mixture.target is None or all(one.held is None for one in mixture.components):
        return mixture
    return replace(mixture, shares=central_shares(mixture, table.x, table.y, groups=table.groups))


@dataclass(eq=False)
class Tried:
    """A candidate of a table, and what came of it.

    Attributes:
        candidate: what was tried.
        networks: its networks, each trained without a part of the rows; those that diverged are left out.
        encoders: the name of the encoder of each network.
        parts: what each network says about the part of the rows that it has not seen.
        change: how the noise is changed to suit those rows.
        score: (N,) log-likelihood of each row that was held out, NaN for others; None before it is judged.
        precision: the one that was chosen from the recipe's grid, if it has one.
    """

    candidate: Candidate
    networks: list[Trained] = field(default_factory=list)
    encoders: list[str] = field(default_factory=list)
    parts: list[HeldOut] = field(default_factory=list)
    change: Calibration = field(default_factory=Calibration)
    score: Tensor | None = None
    precision: float | None = None


class TableFit:
    """One table on its way through a recipe: which networks it needs, and what they score."""

    def __init__(self, table: TrainingTable, recipe: FitRecipe) -> None:
        self.table, self.recipe = table, recipe
        self.size = len(table.x)
        units = self.size if table.groups is None else len(np.unique(table.groups))
        if table.groups is not None and recipe.parts and (units < 2 or recipe.holdout == "last"):
            want = "None with holdout='last'" if recipe.holdout == "last" else "of at least 2 groups"
            raise ValueError(
                must("fit_tables", "groups", want, f"{units} group" + ("s" if units != 1 else ""))
            )
        self.folds = max(2, min(recipe.folds, units))
        #: parts of the rows that are held out: a block has a network for each
        self.parts = min(recipe.parts, self.folds) if self.size > 1 else 0
        self.encoders: dict[str, Encoder] = {}
        self.inputs: dict[str, Tensor | EncodedRows] = {}
        self.seen = Seen.of(table.x)
        #: guesses of the start; part p of the rows has guess p % num_guesses, which has not seen it
        self.num_guesses = min(_GUESSES if self.size < _LONG else 2, self.folds)
        #: what trees and a linear map say of the table; None before `find_start`, or if there is none
        self.start: Start | None = None
        #: candidates; those that need a start come with it
        self.tried = [Tried(candidate) for candidate in recipe.candidates if not candidate.needs_start]
        self.proposals = Proposals(recipe, table.seed) if recipe.rounds else None
        #: the best candidate so far, and its mean log-likelihood of held-out rows in the target's units
        self.best: tuple[float, Candidate] | None = None
        #: whether a first look with short trainings is under way, whose networks are judged and dropped
        self.looking = recipe.look < 1 and not recipe.rounds and len(recipe.candidates) > recipe.survivors
        self._looked = self.looking

    @property
    def scouts(self) -> range:
        """The parts that all candidates hold out at the first look."""
        recipe = self.recipe
        few = recipe.scouts is None or recipe.rounds or len(recipe.candidates) <= recipe.survivors
        return range(self.parts if few else min(recipe.scouts or 0, self.parts))

    @property
    def others(self) -> range:
        """The parts that the survivors of the first look hold out after it."""
        return range(0 if self._looked else len(self.scouts), self.parts)

    def end_look(self, survivors: Sequence[Tried]) -> None:
        """Drop the networks of a first look with short trainings: the survivors are trained anew."""
        if self.looking:
            for one in survivors:
                one.networks, one.encoders, one.parts, one.score = [], [], [], None
        self.looking = False

    @property
    def needs_start(self) -> bool:
        """Whether a candidate needs trees and a linear map."""
        return any(one.needs_start for one in self.recipe.candidates)

    def find_start(self) -> None:
        """Fit the table's start: guess g without the parts p of the rows with p % num_guesses = g."""
        table = self.table
        y = table.targets.numpy() if table.target is not None else table.y
        self.start = guess_table(
            table.x, y, self._folds_of(0) % self.num_guesses, classes=table.classes, weight=table.weight,
            seed=table.seed,
        )  # fmt: skip
        known = iter(self.tried)
        self.tried = [
            Tried(one) if one.needs_start else next(known)
            for one in self.recipe.candidates
            if self._is_of_use(one)
        ]

    def _is_of_use(self, candidate: Candidate) -> bool:
        """Whether there is a start for a candidate that needs one, and columns to leave out."""
        if not candidate.needs_start:
            return True
        if self.start is None:
            return False
        return not candidate.few or self.start.columns <= _FEWER * self.table.x.shape[1]

    def _encoding(self, candidate: Candidate, part: int) -> tuple[str, Tensor | EncodedRows]:
        """The name of the encoder of a candidate's network that holds out a part, and its inputs."""
        place, bins, x = part % self.num_guesses, candidate.bins, self.table.x
        chosen, guess, predicted, own, shared = None, None, None, "", ""
        if self.start is not None and candidate.few:
            chosen = self.start.telling(place, self.start.columns)
            bins = bins_for(self.size, len(chosen), most=bins)
            own = shared = f", {len(chosen)} columns of {place}"
        if self.start is not None and candidate.start:
            guess, predicted = self.start.guesses[place], self.start.predicted
            own, shared = f"{own}, start {place}", f"{shared}, start"
        name, inputs = f"{bins} bins{own}", f"{bins} bins{shared}"
        if name not in self.encoders:
            self.encoders[name] = Encoder.of(
                x, bins, chosen=chosen, guess=guess, predicted=predicted, seen=self.seen
            )
        if inputs not in self.inputs:
            # One set of inputs for all guesses: `predicted` has every row by the guess that has not seen it.
            self.inputs[inputs] = self.encoders[name].table_inputs(x, predicted)
        return name, self.inputs[inputs]

    def _job(
        self, tried: Tried, network: int, rows: Tensor | None, held: Tensor | None = None, part: int = 0
    ) -> Job:
        """The job of one network of a candidate.

        Args:
            tried: the candidate.
            network: its number in the table, which its seed is made of.
            rows: to train on; all if None.
            held: rows that tell it when to stop, if it has patience.
            part: the part of the rows that it holds out, which names its encoder.
        """
        settings = tried.candidate.settings
        if self.looking:
            share = self.recipe.look * settings.epochs
            epochs = max(1, round(share))
            settings = replace(settings, epochs=epochs, check_every=min(epochs, settings.check_every))
            if rows is not None and share < 1:
                # Less than one epoch: some of the rows are seen, once.
                some = self._order(network + 500_000)[: max(1, math.ceil(share * len(rows)))]
                rows = rows[torch.from_numpy(np.flatnonzero(np.isin(rows.numpy(), some)))]
        return Job(
            self._encoding(tried.candidate, part)[1],
            self.table.targets,
            self._in_units(settings),
            # A seed of 32 bits for every network of every table.
            seed=int(np.random.SeedSequence([self.table.seed, network]).generate_state(1)[0]),
            rows=rows,
            validation=None if settings.patience is None else held,
            weight=self.table.weights,
            classes=self.table.classes,
            name=self.table.name,
        )

    def _in_units(self, settings: Settings) -> Settings:
        """The settings with a fixed `noise_std` taken from the target's units to standardised ones."""
        if settings.noise != "fixed" or self.table.target is None:
            return settings
        std, precisions = settings.first_noise_std, self.recipe.precisions
        if precisions is not None:
            std = sorted(precisions)[len(precisions) // 2] ** -0.5
        elif settings.noise_std is None and self.parts and self.recipe.calibrate:
            return replace(settings, noise_std=_NOISE_TO_CHOOSE)
        return replace(settings, noise_std=float(std / self.table.target.scale.mean()))

    def _order(self, number: int) -> NDArray[np.int64]:
        """(N,) places of the rows in random order, the same for the same number."""
        key = np.random.SeedSequence([self.table.seed, 10_000 + number])
        return np.random.Generator(np.random.SFC64(key)).permutation(self.size)

    def _folds_of(self, number: int, folds: int | None = None) -> NDArray[np.int64]:
        """(N,) the part of every row; each number cuts anew, and never through a group of rows."""
        folds, groups = self.folds if folds is None else folds, self.table.groups
        if groups is None:
            place = np.empty(self.size, dtype=np.int64)
            place[self._order(number)] = np.arange(self.size)
            return place % folds
        names, own, counts = np.unique(groups, return_inverse=True, return_counts=True)
        order = self._order(number)
        # Groups in the random order of their first rows, each to the part with the fewest rows so far.
        first = np.unique(own[order], return_index=True)[1]
        part, filled = np.empty(len(names), dtype=np.int64), np.zeros(folds, dtype=np.int64)
        for group in np.argsort(first, kind="stable"):
            part[group] = filled.argmin()
            filled[part[group]] += counts[group]
        return part[own]

    def final_job(self, tried: Tried, restart: int) -> Job:
        """The job of a network on all rows; with patience, a tenth of them tells when to stop."""
        number = 900_000 + restart
        if tried.candidate.settings.patience is None or self.size < 2:
            return self._job(tried, number, None)
        apart = torch.from_numpy(np.flatnonzero(self._folds_of(number, min(10, self.folds)) == 0))
        return self._job(tried, number, rows_without(self.size, apart), apart)

    def block_jobs(self, tried: Tried, block: int, parts: range) -> tuple[list[Job], list[Tensor]]:
        """The jobs of some parts of a block of a candidate, and the rows that each of them does not see."""
        if self.recipe.holdout == "last":
            held = [torch.arange(self.size - max(1, self.size // self.folds), self.size)]
        else:
            # Each block cuts the rows anew if all of them are held out in turn. Else all blocks hold out the
            # same rows, so that each of these is judged by the whole mixture. Candidates with a start keep
            # the cut that its guesses were fitted by.
            anew = self.parts == self.folds and not tried.candidate.needs_start
            folds = self._folds_of(block if anew else 0)
            held = [torch.from_numpy(np.flatnonzero(folds == part)) for part in parts]
        jobs = [
            self._job(tried, 1000 * block + part, rows_without(self.size, rows), rows, part)
            for part, rows in zip(parts, held, strict=True)
        ]
        return jobs, held

    def says(self, tried: Tried, part: int, network: Trained, rows: Tensor) -> HeldOut | None:
        """What a network of a candidate says about `rows`, which it held out; None if it diverged."""
        if network.diverged:
            return None
        x, y = self._encoding(tried.candidate, part)[1], self.table.targets
        return held_out(network, x, y, rows, num_draws=self.recipe.judge_draws, seed=network.seed)

    def add(self, tried: Tried, part: int, network: Trained, said: HeldOut | None) -> None:
        """Add a network and what it says to a candidate; one that diverged is left out."""
        if said is not None:
            tried.networks.append(network)
            tried.encoders.append(self._encoding(tried.candidate, part)[0])
            tried.parts.append(said)

    def judge(self, tried: Tried) -> None:
        """Set a candidate's noise to suit its held-out rows, and score it by their log-likelihood."""
        parts = tried.parts
        if parts:
            if self.recipe.precisions is not None:
                self._choose_precision(tried, self.recipe.precisions)
            elif self.recipe.calibrate:
                tried.change = calibrate(parts, tails=self.recipe.tails)
            tried.score = mixture_log_prob(parts, [tried.change] * len(parts), self.size)

    def remember_best(self, trials: Sequence[Tried]) -> None:
        """Remember the best of the candidates that were judged last, for a progress bar."""
        known = [
            (value, one.candidate)
            for one in trials
            if (value := self._log_likelihood(one)) is not None and math.isfinite(value)
        ]
        self.best = max(known, key=lambda pair: pair[0], default=self.best)

    def tell(self, tried: Tried) -> None:
        """Tell Bayesian optimisation, if it is used, the score of a candidate."""
        if self.proposals is not None:
            self.proposals.tell(tried.candidate, self._log_likelihood(tried))

    def _log_likelihood(self, tried: Tried) -> float | None:
        """Mean over the rows that a candidate held out, in the target's units; None if all diverged."""
        return None if tried.score is None else float(tried.score.nanmean()) - self.table.log_unit

    def _choose_precision(self, tried: Tried, precisions: Sequence[float]) -> None:
        """Set the precision of the grid under which held-out rows are most probable."""
        level = tried.parts[0].log_noise_std
        assert self.table.target is not None
        assert level is not None
        unit = math.log(float(self.table.target.scale.mean()))
        changes = {
            precision: Calibration(shift=-math.log(precision) - 2 * unit - 2 * float(level[0]))
            for precision in precisions
        }
        values = {
            precision: float(mixture_log_prob(tried.parts, [change] * len(tried.parts), self.size).nanmean())
            for precision, change in changes.items()
        }
        tried.precision = max(values, key=lambda precision: values[precision])
        tried.change = changes[tried.precision]

    def proposed(self) -> list[Tried]:
        """Candidates of the next round of Bayesian optimisation; none after the last."""
        new = [] if self.proposals is None else [Tried(one) for one in self.proposals.ask()]
        self.tried += new
        return new

    def survivors(self) -> list[Tried]:
        """The candidates that go on after the first look: those that make its held-out rows most probable.

        After short trainings the best one without a start is among them: it gains more by a long one.
        """
        if not self.others:
            return self.tried
        known = [(float(one.score.nanmean()), one) for one in self.tried if one.score is not None]
        ranked = [one for _, one in sorted(known, key=lambda pair: -pair[0])]
        kept = ranked[: self.recipe.survivors]
        if self.looking and all(one.candidate.start for one in kept):
            kept += [one for one in ranked if not one.candidate.start][:1]
        return [one for one in self.tried if one in kept]

    def picks(self, trials: Sequence[Tried] | None = None) -> list[Tried]:
        """The candidate of every block, each picked to make unseen rows most probable with those before it.

        Args:
            trials: to pick from; all that were tried if None.
        """
        trials = self.tried if trials is None else trials
        known = [(one, one.score) for one in trials if one.score is not None]
        known = [(one, score) for one, score in known if not bool(score.isnan().all())]
        if not known:
            raise _all_diverged()
        total: Tensor | None = None
        picked: list[Tried] = []
        for _ in range(1 if self.recipe.refit else self.recipe.blocks):
            joined = [
                (one, score if total is None else torch.logaddexp(total, score)) for one, score in known
            ]
            best, total = max(joined, key=lambda pair: float(pair[1].nanmean()))
            picked.append(best)
        return picked

    def result(self, picked: Sequence[Tried], refitted: Sequence[Trained] | None) -> Mixture:
        """The mixture of the networks that are kept, with their noise set.

        Args:
            picked: the candidate of every block.
            refitted: networks trained on all rows; None to keep those that held rows out.
        """
        if refitted is None:
            components, dof = self._blended([one for one in self.tried if one in picked])
        else:
            best, dof = picked[0], picked[0].change.dof
            kept = [calibrated(one, best.change) for one in refitted if not one.diverged]
            name = self._encoding(best.candidate, 0)[0]
            components = [Component(network, name) for network in kept]
        if not components:
            raise _all_diverged()
        return Mixture(
            components=tuple(components),
            encoders={name: self.encoders[name] for name in sorted({one.encoder for one in components})},
            target=self.table.target,
            num_draws=self.recipe.num_draws,
            dof=dof,
            search=tuple(self._search_row(one, list(picked).count(one)) for one in self.tried),
            start=self.start if any(self.encoders[one.encoder].guess for one in components) else None,
        )

    def _blended(self, kept: Sequence[Tried]) -> tuple[list[Component], float]:
        """All networks of candidates, their noise set together, and its degrees of freedom."""
        parts = [part for one in kept for part in one.parts]
        changes = [one.change for one in kept for _ in one.parts]
        last = Calibration(dof=changes[0].dof)
        if self.recipe.calibrate and len(parts) > 1:
            last = calibrate(parts, given=changes, tails=self.recipe.tails)
        components = [
            Component(calibrated(calibrated(network, one.change), last), name, part.rows)
            for one in kept
            for network, name, part in zip(one.networks, one.encoders, one.parts, strict=True)
        ]
        return components, last.dof

    def _search_row(self, tried: Tried, picked: int) -> dict[str, Any]:
        return {
            "candidate": str(tried.candidate),
            "settings": tried.candidate.settings.as_dict(),
            "bins": tried.candidate.bins,
            "start": tried.candidate.start,
            "few_columns": tried.candidate.few,
            "log_likelihood": self._log_likelihood(tried),
            "shift": tried.change.shift,
            "slope": tried.change.slope,
            "precision": tried.precision,
            "picked": picked,
        }


def _all_diverged() -> Diverged:
    return Diverged("fit: every network diverged. Lower `lr`.", step=0, epoch=0)


def rows_without(size: int, held: Tensor) -> Tensor:
    """The places of a table's rows, without those that are held out."""
    keep = torch.ones(size, dtype=torch.bool)
    keep[held] = False
    return keep.nonzero().flatten()


def _held_later(table: TrainingTable, held: Tensor, known: int, source: np.random.Generator) -> Tensor:
    """Places of new rows that a network holds out: as large a share as of the old; groups stay together."""
    share = len(held) / known
    groups = table.groups
    if groups is None:
        return torch.from_numpy(np.flatnonzero(source.random(len(table.x) - known) < share) + known)
    apart = np.unique(groups[held.numpy()])
    new = np.setdiff1d(groups[known:], groups[:known])
    apart = np.concatenate([apart, new[source.random(len(new)) < share]])
    return torch.from_numpy(np.flatnonzero(np.isin(groups[known:], apart)) + known)


def grow(
    mixture: Mixture, table: TrainingTable, known: int, *, epochs: int | None = None, processes: int = 1
) -> Mixture:
    """Go on training all networks on a table that has more rows than before.

    The encoding of columns and the scale of targets stay as they were; the range of the columns grows with
    the table, and N in the objective is the new one. A network that held rows out goes on holding out these
    and as large a share of the new ones, and its noise is set by all of them. A network that diverges stays
    as it was.

    Args:
        mixture: fitted to the first `known` rows.
        table: all rows, the new ones last.
        known: how many rows were there before.
        epochs: passes over the whole table; a quarter of the networks' own if None.
        processes: as in `train`.

    Returns: the mixture after training.
    """
    size = len(table.x)
    if not 0 < known < size:
        raise ValueError(must("grow", "known", f"from 1 to {size - 1}: there must be new rows", known))
    seen = mixture.seen.joined(Seen.of(table.x))
    encoders = {name: replace(encoder, seen=seen) for name, encoder in mixture.encoders.items()}
    start = None if mixture.start is None else mixture.start.with_rows(table.x[known:])
    inputs = {
        name: encoder.table_inputs(
            table.x, None if start is None or encoder.guess is None else start.predicted
        )
        for name, encoder in encoders.items()
    }
    target = mixture.target
    if target is not None:
        table = replace(table, warp=target.warp)
        target = target.with_targets(table.continuous)
    targets = table.targets_in(target)
    source = np.random.Generator(np.random.SFC64(np.random.SeedSequence([table.seed, size])))
    jobs: list[Job] = []
    held: list[Tensor | None] = []
    for component in mixture.components:
        network, apart = component.network, component.held
        if apart is not None:
            apart = torch.cat([apart, _held_later(table, apart, known, source)])
        count = epochs or max(1, network.settings.epochs // 4)
        job = Job(
            inputs[component.encoder],
            targets,
            replace(network.settings, epochs=count, patience=None, check_every=count),
            seed=int(source.integers(2**32)),
            rows=None if apart is None else rows_without(size, apart),
            weight=table.weights,
            classes=table.classes,
            start=network,
            name=network.name,
        )
        jobs.append(job)
        held.append(apart)
    components: list[Component] = []
    for component, found, apart in zip(
        mixture.components, train(jobs, processes=processes), held, strict=True
    ):
        old, name = component.network, component.encoder
        # What diverges stays as it was.
        network = old if found.diverged else replace(found, settings=old.settings)
        components.append(Component(network, name, apart))

    def said(one: Component) -> HeldOut:
        """What a network says about the rows that it held out."""
        network, apart = one.network, one.held
        assert apart is not None
        return held_out(network, inputs[one.encoder], targets, apart, num_draws=_DRAWS, seed=network.seed)

    parts = in_threads(said, [one for one in components if one.held is not None and len(one.held)])

    def finished() -> Mixture:
        """The mixture, with the noise that suits the rows that its networks held out."""
        change = Calibration(dof=mixture.dof)
        if parts:
            tails = math.isfinite(mixture.dof)
            change = calibrate(parts, given=[Calibration()] * len(parts), tails=tails)
        changed = [replace(one, network=calibrated(one.network, change)) for one in components]
        grown = replace(
            mixture, components=tuple(changed), encoders=encoders, target=target, dof=change.dof, start=start
        )
        return _with_shares(grown, table)

    return in_one_thread(finished)
