"""Gal & Ghahramani (2016), Table 1: MC dropout on the ten UCI regression sets, and the default estimator.

Every set has the papers' own splits. "gal2016" is one hidden layer of 50 units with the rates and length
scales of 2016, the noise chosen on a fifth of the training rows; "gal2018" is the authors' later grid of
rates and precisions on that fifth, 4,000 epochs; "default" is this library's estimator as it comes. Nothing
is chosen on test rows, as the search of 2016 did. A CSV file of one's own takes a set's place by its path:
`--set datasets=mine.csv`, the target in its last column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Outcome
from bayesdrop.experiments.uci.picture import draw_table
from bayesdrop.experiments.uci.published import SECONDS_2016, best_printed, published_error, published_mean
from bayesdrop.experiments.uci.report import Benchmark, rank_rows, run_benchmark, score_rows, second_rows

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: our methods, and the printed column each repeats
_COLUMNS = {"gal2016": "Dropout 2016", "gal2018": "Dropout 2018"}
_PRINTED = ("VI", "PBP", "Dropout 2016", "Dropout 2018")


@dataclass(frozen=True)
class Config:
    """Table 1, with every split."""

    datasets: tuple[str, ...] = (
        "boston",
        "concrete",
        "energy",
        "kin8nm",
        "naval",
        "power",
        "protein",
        "wine",
        "yacht",
        "year",
    )
    methods: tuple[str, ...] = ("gal2016", "gal2018", "default")
    splits: int = 20
    #: fits of the papers' methods to every split of a small set, whose scores are averaged
    repeats: int = 3
    #: at most so many steps of training a network; each method's own if None
    steps: int | None = None
    #: T when scoring; each method's own if None
    num_draws: int | None = None


SMOKE = Config(
    datasets=("boston",), methods=("gal2016", "quick"), splits=2, repeats=2, steps=20, num_draws=50
)
PRESETS = {
    "quick": Config(methods=("quick",), splits=3),
    "default-estimator": Config(methods=("default",)),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Fit every split by every method; means and standard errors."""
    found = run_benchmark(
        config.datasets,
        config.methods,
        steps=lambda method, rows: config.steps,
        splits=config.splits,
        num_draws=config.num_draws,
        repeats=config.repeats,
        cache=cache,
        progress=progress,
    )
    rows = score_rows(found, _COLUMNS, _PRINTED)
    rows += rank_rows(found, ("VI", "PBP"), _COLUMNS, {})
    rows += second_rows(found, {(name, "gal2016"): one[0] for name, one in SECONDS_2016.items()})
    notes = (
        f"The papers' methods were fitted {config.repeats} times to every split of a set of fewer than 2,000"
        " rows, and a split's score is the mean: one fit's seed moves the mean over splits too.",
        "After ±: standard errors over splits, but standard deviations in the dropout column of 2016.",
        "Seconds are of one processor core, search and scores included; the paper's are start to finish.",
        "Batches have 32 rows, as the paper says, and 128 in the grid of 2018, as the repository had by then:"
        " each repeats its own table.",
    )
    return Outcome(tuple(rows), tuple(_claims(found)), found.arrays(), notes)


def _claims(found: Benchmark) -> list[Claim]:
    claims = []
    if "gal2016" in found.labels:
        claims.append(_beats(found, "gal2016"))
    if "gal2018" in found.labels:
        claims.append(_repeats(found, "gal2018"))
    if "default" in found.labels:
        claims.append(_coverage(found, "default"))
    return claims


def _beats(found: Benchmark, label: str) -> Claim:
    """Dropout against VI and PBP, sets with a printed number only."""
    lost, tried = [], 0
    for name in found.present:
        for metric, sign, title in ((0, -1, "RMSE"), (1, 1, "log-likelihood")):
            best = best_printed(("VI", "PBP"), name, metric)
            if best is None or name == "yacht":
                continue
            tried += 1
            # Printed numbers have two digits.
            if sign * (round(found.mean(name, label, metric), 2) - best) < 0:
                lost.append(f"{title} on {name}")
    return Claim(
        "Dropout has a better RMSE and log-likelihood than VI and PBP on every set but yacht, or the same.",
        f"{tried - len(lost)} of {tried} comparisons with the printed numbers"
        + (f"; not {', '.join(lost)}" if lost else ""),
        not lost,
        "" if not lost else "True of most sets, with the noise chosen on training rows.",
    )


def _repeats(found: Benchmark, label: str) -> Claim:
    """The grid of 2018 within one standard error of the authors' numbers, or better."""
    worse, tried = [], 0
    for name in found.present:
        for metric, sign, title in ((0, -1, "RMSE"), (1, 1, "log-likelihood")):
            printed = published_mean("Dropout 2018", name, metric)
            if printed is None:
                continue
            tried += 1
            error = max(found.error(name, label, metric) or 0, published_error("Dropout 2018", name, metric))
            # Printed numbers are rounded to two digits.
            if sign * (found.mean(name, label, metric) - printed) < -error - 0.005:
                worse.append(f"{title} on {name}")
    return Claim(
        "The grid of 2018 gives what the authors' repository reports: within a standard error, or better.",
        f"{tried - len(worse)} of {tried} numbers" + (f"; not {', '.join(worse)}" if worse else ""),
        not worse,
        "" if not worse else "See the rows of those sets.",
    )


def _coverage(found: Benchmark, label: str) -> Claim:
    covers = [found.mean(name, label, 2) for name in found.present]
    mean = float(np.mean(covers))
    return Claim(
        "Ours: 95 % intervals of the default estimator hold 93 to 97 % of test rows, on average over sets.",
        f"{100 * mean:.1f} %; by set "
        + ", ".join(f"{name} {100 * cover:.1f}" for name, cover in zip(found.present, covers, strict=True)),
        0.93 <= mean <= 0.97,
        "" if 0.93 <= mean <= 0.97 else "Intervals are too wide or too narrow on these sets.",
    )


def draw(outcome: Outcome) -> Any:
    """Log-likelihood and RMSE of every set, printed columns beside ours."""
    return draw_table(outcome, _PRINTED)
