"""Gal & Ghahramani (2016), Table 1: MC dropout on the ten UCI regression sets, and the default estimator.

Every set has the papers' own splits. "gal2016" is one hidden layer of 50 units with the rates and length
scales of 2016, the noise chosen on a fifth of the training rows; "gal2018" is the authors' later grid of
rates and precisions on that fifth, 4,000 epochs; "default" is this library's estimator as users have it. The
preset "complete" has the papers' methods alone, on all sets: beside those, "meanfield (VI)", a Gaussian for
every weight whose length scale is chosen on that fifth, next to the printed VI, and boston without dropout.
Unlike in the search of 2016, nothing is chosen on test rows. A CSV file of one's own takes a set's place by
its path: `--set datasets=mine.csv`, the target in its last column.
`--from results/gal2016-uci-table1.json` fits only what that file does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome, Row
from bayesdrop.experiments.uci.claims_2016 import claims_2016
from bayesdrop.experiments.uci.fits import MEAN_FIELD, METRICS
from bayesdrop.experiments.uci.known import FEW_ROWS, KnownFits, Plan
from bayesdrop.experiments.uci.picture import draw_table
from bayesdrop.experiments.uci.published import MEDIANS_2016, NO_DROPOUT_2016, PBP_SECONDS, SECONDS_2016
from bayesdrop.experiments.uci.report import (
    Benchmark,
    median_rows,
    rank_rows,
    run_benchmark,
    score_rows,
    second_rows,
)
from bayesdrop.experiments.uci.sets import load_set

__all__ = ["PRESETS", "SMOKE", "TAKES_EARLIER", "Config", "draw", "run"]

TAKES_EARLIER = True
#: our methods, and the printed column each repeats
_COLUMNS = {"gal2016": "Dropout 2016", "gal2018": "Dropout 2018", MEAN_FIELD: "VI"}
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
    #: sets that gal2016 is fitted to without dropout, too
    without_dropout: tuple[str, ...] = ()
    splits: int = 20
    #: fits of the papers' methods to every split of a small set, whose scores are averaged
    repeats: int = 3
    #: at most so many steps of training a network; each method's own if None
    steps: int | None = None
    #: T when scoring; each method's own if None
    num_draws: int | None = None


SMOKE = Config(
    datasets=("boston",), methods=("gal2016", "quick", "meanfield"), without_dropout=("boston",), splits=2,
    repeats=2, steps=20, num_draws=50,
)  # fmt: skip
PRESETS = {
    #: the papers' methods on all sets, mean-field VI and boston without dropout among them
    "complete": Config(methods=("gal2016", "gal2018", "meanfield"), without_dropout=("boston",)),
    "quick": Config(methods=("quick",), splits=3),
    "default-estimator": Config(methods=("default",)),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Fit every split by every method; means and standard errors."""
    plan = _plan(config)
    found = run_benchmark(
        config.datasets,
        config.methods,
        plan,
        also={"no-dropout": config.without_dropout},
        known=[KnownFits(record, _plan(Config(**record.config))) for record in cache.earlier],
        must_average=lambda name, method: method == "gal2016" and len(load_set(name)) < FEW_ROWS,
        cache=cache,
        progress=progress,
    )
    rows = [_with_no_dropout(row) for row in score_rows(found, _COLUMNS, _PRINTED)]
    rows += median_rows(found, "gal2016", MEDIANS_2016)
    rows += _averaging_rows(found)
    rows += rank_rows(found, ("VI", "PBP"), _COLUMNS, {})
    rows += second_rows(
        found, {(name, "gal2016"): one[0] for name, one in SECONDS_2016.items()}, _second_notes()
    )
    notes = (
        f"The papers' methods were fitted {config.repeats} times to every split of a set of fewer than 1,500"
        " rows, and a split's score is the mean: one fit's seed moves the mean over splits too.",
        "After ±: standard errors over splits, but standard deviations in the dropout column of 2016.",
        "Seconds are of one processor core, search and scores included; the paper's are start to finish, on"
        " other machines.",
        "Batches have 32 rows, as the paper says, and 128 in the grid of 2018, as the repository had by then:"
        " each repeats its own table.",
        "Scores are of 1,000 draws; the authors' are of 10,000. Protein has 100 hidden units, as theirs.",
        "The paper's text names rates of 0.05 and 0.005 only. Rates and length scales by set, among them the"
        " rate of 0.01 for concrete and yacht, are those of the authors' repository.",
        "meanfield (VI) has the network of gal2016, Gaussian weights and biases with learned widths, noise at"
        " the mode of its posterior after every epoch, one-cycle Adam at 0.01, and length scale 0.1, 0.3 or 1"
        " times the root of a layer's inputs, chosen on the last fifth of the training rows. The printed VI"
        " is another implementation (Graves, 2011), with a search of its own.",
        "What is said of medians, averaged weights, no dropout and significance was added when the numbers of"
        " gal2016, gal2018 and default on the first six sets were known; the bar for meanfield (VI) was set"
        " before any of its test scores.",
        "Coverage of the default estimator is that of its `predict_interval`, whose level rows out of fold"
        " set. Until that was so, the predictive distribution's own intervals were measured: they held 97.0"
        " %.",
        *found.provenance(),
    )
    return Outcome(rows, claims_2016(found), found.arrays(), notes)


def _plan(config: Config) -> Plan:
    return Plan(config.splits, config.repeats, config.num_draws, lambda method, rows: config.steps)


def _with_no_dropout(row: Row) -> Row:
    """A row of a fit without dropout, with the number that the text gives."""
    name, _, label = row.setting.partition(", ")
    if label != "no-dropout" or name not in NO_DROPOUT_2016 or row.metric not in METRICS[:2]:
        return row
    return replace(row, paper=NO_DROPOUT_2016[name][METRICS.index(row.metric)], note="")


def _averaging_rows(found: Benchmark) -> Iterator[Row]:

    for name, label in found.averaged:
        gap, error = found.averaging_gap(name, label)
        note = f"more by {gap:.2g} ± {error:.1g} than the mean over draws"
        ours = float(found.averaged[name, label].mean())
        yield Row(f"{name}, {label}", "RMSE of averaged weights", None, ours, None, note)


def _second_notes() -> dict[tuple[str, str], str]:
    return {
        (name, "gal2016"): f"the paper's without its search {alone:.0f}; PBP {PBP_SECONDS[name]:.0f}"
        for name, (_, alone) in SECONDS_2016.items()
    }


def draw(outcome: Outcome) -> Any:
    """Log-likelihood and RMSE of every set, printed columns beside ours."""
    return draw_table(outcome, _PRINTED)
