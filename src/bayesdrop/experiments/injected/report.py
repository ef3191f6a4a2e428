"""Rows, claims and notes: which way to be unsure is worth its price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.injected.images import METRICS as IMAGE_METRICS
from bayesdrop.experiments.injected.methods import METHODS
from bayesdrop.experiments.injected.tables import METRICS as TABLE_METRICS
from bayesdrop.experiments.row import Claim, Row, mean_and_error, paired, told

__all__ = ["gather_arrays", "make_claims", "make_notes", "make_rows"]

#: by set, the numbers of every split or seed, by "method | metric"
Found = Mapping[str, Sequence[Mapping[str, float]]]
LIKELIHOOD = TABLE_METRICS[0]
#: thresholds, fixed before any run: on how many of six tables a claim has to hold
ENOUGH_TABLES = 4
MOST_TABLES = 5


def _values(found: Found, dataset: str, method: str, metric: str) -> list[float]:
    name = f"{method} | {metric}"
    return [piece[name] for piece in found.get(dataset, ()) if name in piece]


def _mean(found: Found, dataset: str, method: str, metric: str) -> float:
    return float(np.mean(_values(found, dataset, method, metric)))


def make_rows(found: Found, config: Any) -> Iterator[Row]:
    """Means over splits or seeds, and their standard errors; nothing found is "not run"."""
    for dataset in (*config.tables, *config.images):
        metrics = TABLE_METRICS if dataset in config.tables else IMAGE_METRICS
        for method in METHODS:
            for metric in metrics:
                values = _values(found, dataset, method, metric)
                if values or not found.get(dataset):
                    yield Row.of_runs(f"{dataset}, {method}", metric, values)
        for method in METHODS:
            if found.get(dataset):
                for what, title in (("train", "to make it"), ("predict", "to predict")):
                    seconds = _values(found, dataset, method, what)
                    if seconds:
                        yield Row.of_runs(f"{dataset}, {method}", f"CPU seconds {title}", seconds)


def _gain(found: Found, dataset: str, ours: str, theirs: str) -> tuple[float, float | None]:
    """The mean difference of log-likelihoods over paired runs, and its standard error."""
    one, other = (_values(found, dataset, method, LIKELIHOOD) for method in (ours, theirs))
    return mean_and_error(np.subtract(one, other))


def _gains(found: Found, tables: Sequence[str], ours: str, theirs: str) -> dict[str, tuple[float, float]]:
    """For every table the mean difference of log-likelihoods, and its standard error."""
    gains = {}
    for table in tables:
        mean, error = _gain(found, table, ours, theirs)
        gains[table] = (mean, error or 0.0)
    return gains


def _listed(gains: Mapping[str, tuple[float, float]]) -> str:
    return ", ".join(f"{table} {mean:+.3f} +- {error:.3f}" for table, (mean, error) in gains.items())


def make_claims(found: Found, config: Any) -> Iterator[Claim]:
    """Sentences and thresholds were fixed before any run."""
    tables = [table for table in config.tables if found.get(table)]
    if tables:
        yield from _table_claims(found, tables)
    for dataset in config.images:
        if found.get(dataset):
            yield _detection(found, dataset)
    sets = [name for name in (*config.tables, *config.images) if found.get(name)]
    if sets:
        yield _cost(found, sets)


def _table_claims(found: Found, tables: Sequence[str]) -> Iterator[Claim]:
    # In a run of fewer tables the claim has to hold on as large a share of them.
    enough, most = (round(bar * len(tables) / 6) for bar in (ENOUGH_TABLES, MOST_TABLES))
    gains = _gains(found, tables, "injected", "bare")
    kept = [table for table, (mean, error) in gains.items() if mean >= -error]
    risen = [table for table, (mean, error) in gains.items() if mean > error]
    fallen = [table for table, (mean, error) in gains.items() if mean < -error]
    yield Claim(
        f"Injected before the last map, a network is as likely as before or likelier on at least {enough} of "
        f"{len(tables)} tables.",
        f"held-out log-likelihood, injected less bare: {_listed(gains)} nats. Likelier by more than a "
        f"standard error on {len(risen)}, as likely or likelier on {len(kept)}.",
        len(kept) >= enough,
    )
    yield Claim(
        "On no table does the held-out log-likelihood fall by more than a standard error.",
        f"It falls by more on {len(fallen)}{': ' + ', '.join(fallen) if fallen else ''}.",
        not fallen,
    )
    for name, text, bar in (
        ("dropout, trained", "Dropout that is trained is likelier than dropout that is injected", enough),
        ("ensemble", "An ensemble is likelier than one injected network", most),
    ):
        others = _gains(found, tables, name, "injected")
        better = [table for table, (mean, _) in others.items() if mean > 0]
        yield Claim(
            f"{text}, on at least {bar} of {len(tables)} tables.",
            f"{name} less injected: {_listed(others)} nats. Likelier on {len(better)}.",
            len(better) >= bar,
        )
    for name, text in (
        ("temperature", "A factor of the predicted variances, fitted to the same rows, does as well"),
        ("last-layer Laplace", "A Laplace approximation of the last layer does as well"),
    ):
        others = _gains(found, tables, name, "injected")
        equal = [table for table, (mean, error) in others.items() if mean >= -error]
        yield Claim(
            f"{text} as injecting, within a standard error, on at least {enough} of {len(tables)} tables.",
            f"{name} less injected: {_listed(others)} nats. As likely or likelier on {len(equal)}.",
            len(equal) >= enough,
        )


def _detection(found: Found, dataset: str) -> Claim:
    ours = _values(found, dataset, "injected", "AUROC, entropy")
    theirs = _values(found, dataset, "bare", "AUROC, max softmax")
    every = {
        method: _mean(found, dataset, method, "AUROC, entropy")
        for method in METHODS
        if _values(found, dataset, method, "AUROC, entropy")
    }
    best = max(every, key=lambda method: every[method])
    return Claim(
        f"Networks that learned {dataset} tell foreign images at least as well by the entropy of the "
        "injected network as by the largest probability of the bare one.",
        f"AUROC {np.mean(ours):.4f} against {np.mean(theirs):.4f} ({paired(ours, theirs)[1]}). By entropy: "
        f"{told(every, '.4f')}.",
        float(np.mean(ours)) >= float(np.mean(theirs)),
        f"The best of all here is {best}." if best != "injected" else "",
    )


def _cost(found: Found, sets: Sequence[str]) -> Claim:
    shares = {
        name: _mean(found, name, "injected", "train") / _mean(found, name, "bare", "train") for name in sets
    }
    return Claim(
        "To inject takes less CPU time than to train one more network.",
        f"Seconds of `inject` by those of training: {told(shares)}.",
        max(shares.values()) < 1,
    )


def make_notes(found: Found, config: Any) -> Iterator[str]:
    """What was chosen, and what the comparison leaves out."""
    yield (
        f"Tables: {config.splits} splits, at most {config.most_rows:,} training rows. The held-out rows are "
        "taken from the training rows for every method, also for those that do not use them (ensemble, "
        "trained dropout, VI) and could have learned from them."
    )
    yield (
        "CPU seconds to make a table's network are those of `fit` for one network by itself, from its first "
        "steps; they were trained side by side. Those of injecting, Laplace and temperature come on top of "
        "the bare network's."
    )
    for dataset in (*config.tables, *config.images):
        for method in ("injected", "injected, no labels"):
            rates = _values(found, dataset, method, "p")
            if rates:
                scales = _values(found, dataset, method, "scale")
                plain = sum(scale == 1 for scale in scales)
                yield (
                    f"{dataset}, {method}: rates {', '.join(f'{p:.3g}' for p in rates)}; plain dropout "
                    f"{plain} of {len(scales)} times."
                )
    ranks = _ranks(found, [table for table in config.tables if found.get(table)])
    if ranks:
        order = sorted(ranks, key=lambda method: ranks[method])
        yield (
            "Mean rank by log-likelihood over the tables, 1 being best: "
            f"{', '.join(f'{method} {ranks[method]:.1f}' for method in order)}."
        )


def _ranks(found: Found, tables: Sequence[str]) -> dict[str, float]:
    places: dict[str, list[int]] = {method: [] for method in METHODS}
    for table in tables:
        order = sorted(METHODS, key=lambda method: -_mean(found, table, method, LIKELIHOOD))
        for place, method in enumerate(order):
            places[method].append(place + 1)
    return {method: float(np.mean(own)) for method, own in places.items() if own}


def gather_arrays(found: Found, config: Any) -> dict[str, Any]:
    """For the picture: means and standard errors of gains over the bare network, and of AUROCs; costs."""
    tables = [table for table in config.tables if found.get(table)]
    images = [name for name in config.images if found.get(name)]
    arrays: dict[str, Any] = {"tables": tables, "images": images, "methods": list(METHODS)}
    for name in (*tables, *images):
        gains = [_gain(found, name, method, "bare") for method in METHODS]
        arrays[f"gain {name}"] = [[mean, error or 0.0] for mean, error in gains]
        arrays[f"cost {name}"] = [
            [
                _mean(found, name, method, what) if _values(found, name, method, what) else 0.0
                for method in METHODS
            ]
            for what in ("train", "predict")
        ]
    for name in images:
        detected = [mean_and_error(_values(found, name, method, "AUROC, entropy")) for method in METHODS]
        arrays[f"auroc {name}"] = [[mean, error or 0.0] for mean, error in detected]
    return arrays
