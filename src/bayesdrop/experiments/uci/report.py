"""From pieces to rows, ranks and claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data import DataNotFound
from bayesdrop.errors import must
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Row, mean_and_error
from bayesdrop.experiments.uci.fits import (
    ESTIMATOR,
    METHODS,
    METRICS,
    REVISION,
    SECONDS,
    fit_piece,
    labels_of,
    piece_keys,
)
from bayesdrop.experiments.uci.known import KnownFits, Plan, SetFits
from bayesdrop.experiments.uci.published import published, published_mean
from bayesdrop.experiments.uci.sets import load_set

__all__ = [
    "Benchmark",
    "median_rows",
    "printed_column",
    "rank_rows",
    "ranks",
    "run_benchmark",
    "score_rows",
    "second_rows",
]


class Benchmark:
    """What was found: scores of every split, by set and label of a method.

    Attributes:
        present: sets that were run.
        absent: sets whose data are not at hand.
        labels: names under which the fits of methods are reported, in order.
        scores: (splits, metrics) by set and label.
        averaged: (splits,) RMSE of the mean weights, by set and label.
        rates: mean rate of every layer, (fits, layers), by set and method, where a fit is one network.
        seconds: of the processor, a split, by set and method.
        commits: of fits that are of an earlier run, by set and method.
    """

    def __init__(self, present: Sequence[str], absent: Sequence[str]) -> None:
        self.present, self.absent = list(present), list(absent)
        self.labels: list[str] = []
        self.scores: dict[tuple[str, str], NDArray[np.float64]] = {}
        self.rates: dict[tuple[str, str], NDArray[np.float64]] = {}
        self.seconds: dict[tuple[str, str], float] = {}
        self.averaged: dict[tuple[str, str], NDArray[np.float64]] = {}
        self.commits: dict[tuple[str, str], str] = {}

    @property
    def full_labels(self) -> list[str]:
        """Labels that every set has."""
        return [label for label in self.labels if all((name, label) in self.scores for name in self.present)]

    def take(self, name: str, method: str, fits: SetFits) -> None:
        """Add the fits of a set by a method that an earlier run has made."""
        self.scores.update({(name, label): values for label, values in fits.scores.items()})
        self.averaged.update({(name, label): values for label, values in fits.averaged.items()})
        if fits.rates is not None:
            self.rates[name, method] = fits.rates
        self.seconds[name, method] = fits.seconds
        self.commits[name, method] = fits.commit

    def put(self, name: str, method: str, made: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        """Add the fits of a set by a method from its pieces: of all splits and repeats, each with its key."""
        scores: dict[str, dict[int, list[Any]]] = {}
        averaged: dict[str, dict[int, list[Any]]] = {}
        rates: list[list[float]] = []
        seconds: list[float] = []
        for key, piece in made:
            for kept, part in ((scores, "scores"), (averaged, "averaged")):
                for label, values in piece.get(part, {}).items():
                    by_split = kept.setdefault(label, {})
                    for split, value in zip(key["splits"], values, strict=True):
                        by_split.setdefault(split, []).append(value)
            if all(len(networks) == 1 for networks in piece["rates"]):
                rates += [networks[0] for networks in piece["rates"]]
            seconds += [piece["seconds_with_scores"]] * len(key["splits"])
        for kept, whole in ((scores, self.scores), (averaged, self.averaged)):
            for label, by_split in kept.items():
                whole[name, label] = np.array([np.mean(values, 0) for values in by_split.values()])
        if rates:
            self.rates[name, method] = np.array(rates)
        self.seconds[name, method] = float(np.mean(seconds))

    def gap(self, name: str, first: str, second: str, metric: int) -> tuple[float, float]:
        """Mean over splits of one label's score less another's, and its standard error (0 for one split)."""
        return _gap(self.scores[name, first][:, metric], self.scores[name, second][:, metric])

    def averaging_gap(self, name: str, label: str) -> tuple[float, float]:
        """RMSE of the mean weights less that of the mean over draws, and its standard error."""
        return _gap(self.averaged[name, label], self.scores[name, label][:, 0])

    def provenance(self) -> list[str]:
        """A sentence for every earlier run whose fits are here."""
        told = []
        for commit in dict.fromkeys(self.commits.values()):
            methods: dict[str, list[str]] = {}
            for (name, method), made_by in self.commits.items():
                if made_by == commit:
                    methods.setdefault(method, []).append(name)
            listed = "; ".join(f"{method} on {', '.join(sets)}" for method, sets in methods.items())
            short = f"{commit[:7]}{'+' if commit.endswith('-modified') else ''}"
            told.append(f"Fits of an earlier run, commit {short}, with the same settings: {listed}.")
        if told:
            told.append(
                "Earlier fits that were made again came out the same on some splits and as by another seed on"
                " others: rounding differs by machine, and long training makes it large."
            )
        return told

    def mean(self, name: str, label: str, metric: int) -> float:
        """Mean over splits."""
        return float(self.scores[name, label][:, metric].mean())

    def error(self, name: str, label: str, metric: int) -> float | None:
        """Standard error of that mean; None for one split."""
        return mean_and_error(self.scores[name, label][:, metric])[1]

    def arrays(self) -> dict[str, Any]:
        """What a picture needs."""
        return {
            "present": self.present,
            "labels": self.full_labels,
            "revision": REVISION,
            "estimator": ESTIMATOR,
            "commits": {f"{name}/{method}": commit for (name, method), commit in self.commits.items()},
            "averaged": {
                f"{name}/{label}": np.round(values, 6).tolist()
                for (name, label), values in self.averaged.items()
            },
            "scores": {
                f"{name}/{label}": np.round(values, 6).tolist()
                for (name, label), values in self.scores.items()
            },
            "rates": {f"{name}/{label}": np.round(v, 6).tolist() for (name, label), v in self.rates.items()},
        }


def _gap(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> tuple[float, float]:
    mean, error = mean_and_error(ours - theirs)
    return mean, error or 0.0


def _shared(cache: PieceCache) -> PieceCache:
    """Where both tables keep their pieces: a fit that one has made is found by the other."""
    return PieceCache(
        "uci", folder=cache.folder.parent, revision=REVISION, fresh=cache.fresh, processes=cache.processes
    )


def run_benchmark(
    datasets: Sequence[str],
    methods: Sequence[str],
    plan: Plan,
    *,
    also: Mapping[str, Sequence[str]] | None = None,
    known: Sequence[KnownFits] = (),
    must_average: Callable[[str, str], bool] = lambda name, method: False,
    cache: PieceCache,
    progress: bool,
) -> Benchmark:
    """Every method on every set that is at hand.

    Args:
        datasets: names of UCI sets, or CSV files.
        methods: keys of `METHODS`.
        plan: how sets are fitted.
        also: further methods, and the sets that each is for.
        known: fits of earlier runs, which are not made again; the first that has a fit gives it.
        must_average: of a set and a method, whether known fits must tell the error of the mean weights, too.
        cache: of the experiment.
        progress: whether to draw a bar.
    """
    also = also or {}
    for method in (*methods, *also):
        if method not in METHODS:
            raise ValueError(must("Config", "methods", f"among {', '.join(METHODS)}", method))
    present, absent = [], []
    for name in datasets:
        try:
            load_set(name)
            present.append(name)
        except DataNotFound:
            absent.append(name)
    found = Benchmark(present, absent)
    pairs = [(name, method) for name in present for method in methods]
    pairs += [(name, method) for method, sets in also.items() for name in sets if name in present]
    keys: list[dict[str, Any]] = []
    for name, method in pairs:
        offers = (fits.find(name, method, plan) for fits in known)
        before = next(
            (one for one in offers if one is not None and (one.averaged or not must_average(name, method))),
            None,
        )
        if before is not None:
            found.take(name, method, before)
            splits = next(iter(before.scores.values())).shape[0]
            cache.found_seconds += before.seconds * splits * plan.repeats_of(name, method)
            continue
        steps = plan.steps(method, len(load_set(name)))
        for repeat in range(plan.repeats_of(name, method)):
            keys += piece_keys(
                name, method, plan.splits, steps=steps, num_draws=plan.num_draws, repeat=repeat
            )
    shared = _shared(cache)
    pieces = run_pieces(keys, fit_piece, cache=shared, progress=progress, label="Fits")
    cache.found_seconds += shared.found_seconds
    by_fit: dict[tuple[str, str], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for key, piece in zip(keys, pieces, strict=True):
        by_fit.setdefault((str(key["dataset"]), str(key["method"])), []).append((key, piece))
    for (name, method), made in by_fit.items():
        found.put(name, method, made)
    order = [label for method in (*methods, *also) for label in labels_of(method)]
    found.labels = [label for label in order if any((name, label) in found.scores for name in present)]
    return found


def score_rows(found: Benchmark, columns: Mapping[str, str], others: Sequence[str]) -> Iterator[Row]:
    """Rows "paper / ours" of every set, method and metric.

    Args:
        found: what was found.
        columns: for a label of ours, the printed column that it is to be compared with.
        others: printed columns that stand in the note of the methods without one.
    """
    for name in (*found.present, *found.absent):
        for label in found.labels or columns:
            if (name, label) not in found.scores and label in found.labels and label not in found.full_labels:
                continue
            for metric, title in enumerate(METRICS):
                column = columns.get(label)
                paper = None if column is None or metric > 1 else published(column, name, metric)
                note = ""
                if column is None and metric < 2:
                    printed = [(other, published(other, name, metric)) for other in others]
                    note = "; ".join(f"{other} {cell}" for other, cell in printed if cell is not None)
                ours = found.mean(name, label, metric) if (name, label) in found.scores else None
                error = found.error(name, label, metric) if ours is not None else None
                note = note if ours is not None else "data not at hand"
                yield Row(f"{name}, {label}", title, paper, ours, error, note)


def second_rows(
    found: Benchmark,
    paper: Mapping[tuple[str, str], float],
    notes: Mapping[tuple[str, str], str] | None = None,
) -> list[Row]:
    """Rows of processor time a split, search and scores included.

    Args:
        found: what was found.
        paper: printed seconds by set and method.
        notes: of those rows.
    """
    notes = notes or {}
    order = [
        (name, method) for name in found.present for method in METHODS if (name, method) in found.seconds
    ]
    return [
        Row(
            f"{name}, {method}",
            SECONDS,
            paper.get((name, method)),
            found.seconds[name, method],
            note=notes.get((name, method), ""),
        )
        for name, method in order
    ]


def median_rows(found: Benchmark, label: str, paper: Mapping[tuple[str, int], str]) -> Iterator[Row]:
    """Rows of medians over splits; the quartiles are in the note.

    Args:
        found: what was found.
        label: of a method.
        paper: printed medians, by set and metric.
    """
    for name in found.present:
        if (name, label) not in found.scores:
            continue
        for metric in (0, 1):
            low, middle, high = np.quantile(found.scores[name, label][:, metric], [0.25, 0.5, 0.75])
            note = f"quartiles [{low:.4g}, {high:.4g}]"
            title = f"median {METRICS[metric]}"
            yield Row(f"{name}, {label}", title, paper.get((name, metric)), float(middle), None, note)


def ranks(
    columns: Mapping[str, Mapping[str, float]], sets: Sequence[str], *, highest: bool
) -> dict[str, Any]:
    """Average rank of every column over sets, 1 the best, ties shared; with its standard error.

    Args:
        columns: values by column and set.
        sets: those that every column has.
        highest: whether the highest value is the best.

    >>> ranks({"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0, "y": 3.0}}, ["x", "y"], highest=True)
    {'a': (1.75, 0.25), 'b': (1.25, 0.25)}
    """
    table = np.array([[columns[column][name] for name in sets] for column in columns])
    table = -table if highest else table
    below = (table[:, None] > table[None, :]).sum(1)
    equal = (table[:, None] == table[None, :]).sum(1)
    places = below + (equal + 1) / 2
    count = len(sets)
    spread = places.std(1, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(len(places))
    return {
        column: (float(mean), float(error))
        for column, mean, error in zip(columns, places.mean(1), spread, strict=True)
    }


def rank_rows(
    found: Benchmark,
    printed: Sequence[str],
    columns: Mapping[str, str],
    averages: Mapping[str, tuple[str, str]],
) -> list[Row]:
    """Rows of average ranks among our methods and some printed columns, over the sets that all of them have.

    Args:
        found: what was found.
        printed: columns that take part with their printed means.
        columns: for a label of ours, the printed column that it repeats.
        averages: printed average ranks by column: by log-likelihood, by RMSE.
    """
    sets = [name for name in found.present if published_mean(printed[0], name, 1) is not None]
    if not sets:
        return []
    rows = []
    for order, metric, title in ((0, 1, "average rank, log-likelihood"), (1, 0, "average rank, RMSE")):
        values = {
            label: {name: found.mean(name, label, metric) for name in sets} for label in found.full_labels
        }
        names = {label: columns.get(label, "") for label in values}
        for column in printed:
            means = printed_column(column, sets, metric)
            if means is not None:
                values[f"{column} (printed)"] = means
                names[f"{column} (printed)"] = column
        for label, (mean, error) in ranks(values, sets, highest=metric == 1).items():
            paper = averages[names[label]][order] if names[label] in averages else None
            rows.append(Row(f"{len(sets)} sets, {label}", title, paper, mean, error))
    return rows


def printed_column(column: str, sets: Sequence[str], metric: int) -> dict[str, float] | None:
    """Means of a printed column by set; None if it lacks one of them."""
    values = {name: published_mean(column, name, metric) for name in sets}
    if any(value is None for value in values.values()):
        return None
    return {name: value for name, value in values.items() if value is not None}
