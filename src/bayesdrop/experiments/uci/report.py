"""From pieces to rows, ranks and claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data import DataNotFound
from bayesdrop.errors import must
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Row
from bayesdrop.experiments.uci.fits import METHODS, METRICS, fit_piece, piece_keys
from bayesdrop.experiments.uci.published import published, published_mean
from bayesdrop.experiments.uci.sets import load_set

__all__ = ["Benchmark", "printed_column", "rank_rows", "ranks", "run_benchmark", "score_rows", "second_rows"]

#: of the pieces that both tables share
REVISION = 2


class Benchmark:
    """What was found: scores of every split, by set and label of a method.

    Attributes:
        present: sets that were run.
        absent: sets whose data are not at hand.
        labels: methods, in order.
        scores: (splits, metrics) by set and label.
        rates: mean rate of every layer, (splits, layers), by set, of methods with one network a split.
        seconds: of the processor, a split, by set and method.
    """

    def __init__(self, present: Sequence[str], absent: Sequence[str]) -> None:
        self.present, self.absent = list(present), list(absent)
        self.labels: list[str] = []
        self.scores: dict[tuple[str, str], NDArray[np.float64]] = {}
        self.rates: dict[tuple[str, str], NDArray[np.float64]] = {}
        self.seconds: dict[tuple[str, str], float] = {}

    def mean(self, name: str, label: str, metric: int) -> float:
        """Mean over splits."""
        return float(self.scores[name, label][:, metric].mean())

    def error(self, name: str, label: str, metric: int) -> float | None:
        """Standard error of that mean; None for one split."""
        values = self.scores[name, label][:, metric]
        return None if len(values) < 2 else float(values.std(ddof=1) / math.sqrt(len(values)))

    def arrays(self) -> dict[str, Any]:
        """What a picture needs."""
        return {
            "present": self.present,
            "labels": self.labels,
            "scores": {
                f"{name}/{label}": np.round(values, 6).tolist()
                for (name, label), values in self.scores.items()
            },
            "rates": {f"{name}/{label}": np.round(v, 6).tolist() for (name, label), v in self.rates.items()},
        }


def _shared(cache: PieceCache) -> PieceCache:
    """Where both tables keep their pieces: a fit that one has made is found by the other."""
    return PieceCache(
        "uci", folder=cache.folder.parent, revision=REVISION, fresh=cache.fresh, processes=cache.processes
    )


def run_benchmark(
    datasets: Sequence[str],
    methods: Sequence[str],
    *,
    steps: Callable[[str, int], int | None],
    splits: int,
    num_draws: int | None,
    repeats: int = 1,
    cache: PieceCache,
    progress: bool,
) -> Benchmark:
    """Every method on every set that is at hand.

    Args:
        datasets: names of UCI sets, or CSV files.
        methods: keys of `METHODS`.
        steps: of a method and a set's number of rows, the most steps of training a network; None for the
            method's own.
        splits: at most so many of every set.
        num_draws: T when scoring; the methods' own if None.
        repeats: fits of one network to every split of a set of fewer than 2,000 rows, where the seed moves a
            mean over splits by half its standard error; a split's score is their mean.
        cache: of the experiment.
        progress: whether to draw a bar.
    """
    for method in methods:
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
    keys = [
        key
        for name in present
        for method in methods
        for repeat in range(repeats if _moved_by_seed(name, method) else 1)
        for key in piece_keys(
            name,
            method,
            splits,
            steps=steps(method, len(load_set(name))),
            num_draws=num_draws,
            repeat=repeat,
        )
    ]
    shared = _shared(cache)
    pieces = run_pieces(keys, fit_piece, cache=shared, progress=progress, label="Fits")
    cache.found_seconds += shared.found_seconds
    scores: dict[tuple[str, str], dict[int, list[list[float]]]] = {}
    rates: dict[tuple[str, str], list[list[float]]] = {}
    seconds: dict[tuple[str, str], list[float]] = {}
    for key, piece in zip(keys, pieces, strict=True):
        name, method = str(key["dataset"]), str(key["method"])
        for label, values in piece["scores"].items():
            if label not in found.labels:
                found.labels.append(label)
            for split, value in zip(key["splits"], values, strict=True):
                scores.setdefault((name, label), {}).setdefault(split, []).append(value)
        if all(len(networks) == 1 for networks in piece["rates"]):
            rates.setdefault((name, method), []).extend(networks[0] for networks in piece["rates"])
        seconds.setdefault((name, method), []).extend([piece["seconds_with_scores"]] * len(key["splits"]))
    found.scores = {
        place: np.array([np.mean(values, 0) for values in by_split.values()])
        for place, by_split in scores.items()
    }
    found.rates = {place: np.array(values) for place, values in rates.items()}
    found.seconds = {place: float(np.mean(values)) for place, values in seconds.items()}
    return found


def _moved_by_seed(name: str, method: str) -> bool:
    return method not in ("default", "quick") and len(load_set(name)) < 2000


def score_rows(found: Benchmark, columns: Mapping[str, str], others: Sequence[str]) -> list[Row]:
    """Rows "paper / ours" of every set, method and metric.

    Args:
        found: what was found.
        columns: for a label of ours, the printed column that it is to be compared with.
        others: printed columns that stand in the note of the methods without one.
    """
    rows = []
    for name in (*found.present, *found.absent):
        for label in found.labels or columns:
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
                rows.append(Row(f"{name}, {label}", title, paper, ours, error, note))
    return rows


def second_rows(found: Benchmark, paper: Mapping[tuple[str, str], float]) -> list[Row]:
    """Rows of processor time a split, search and scores included."""
    return [
        Row(f"{name}, {method}", "seconds a split", paper.get((name, method)), seconds)
        for (name, method), seconds in found.seconds.items()
    ]


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
        values = {label: {name: found.mean(name, label, metric) for name in sets} for label in found.labels}
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
