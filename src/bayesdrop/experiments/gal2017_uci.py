"""Gal, Hron & Kendall (2017), Tables 3 and 4, Figures 2 to 4: Concrete dropout on UCI regression sets.

Two hidden layers of 50 units. "two-layers" is MC dropout with a grid of rates, the paper's column "Dropout";
"CDropout" learns a rate for every layer and has its noise by MAP-EM with partial M-steps, "CDropoutM" by a
full one after training; length scale and pace of the noise are chosen on a fifth of the training rows.
"default" is this library's estimator as it comes. The printed column of the deep Gaussian process (DGP)
stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.uci.fits import MANY_ROWS
from bayesdrop.experiments.uci.picture import draw_rates, draw_scores
from bayesdrop.experiments.uci.published import AVERAGE_RANKS, best_printed, published_mean
from bayesdrop.experiments.uci.report import Benchmark, rank_rows, run_benchmark, score_rows, second_rows
from bayesdrop.plots import new_figure

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

_COLUMNS = {"two-layers": "Dropout", "CDropout": "CDropout", "CDropoutM": "CDropoutM"}
_DROPOUTS = ("Dropout", "CDropout", "CDropoutM")
_PRINTED = (*_DROPOUTS, "DGP")


@dataclass(frozen=True)
class Config:
    """Tables 3 and 4 with every split, and fewer steps of training than the paper's."""

    datasets: tuple[str, ...] = (
        "boston",
        "concrete",
        "energy",
        "kin8nm",
        "power",
        "protein",
        "wine",
        "yacht",
        "naval",
    )
    methods: tuple[str, ...] = ("two-layers", "concrete", "default")
    splits: int = 20
    #: fits of the papers' methods to every split of a small set, whose scores are averaged
    repeats: int = 1
    #: at most so many steps a network of the paper's methods; None is the paper's 20,000 and 10,000 epochs
    steps: int | None = 10_000
    #: the same for sets of 5,000 rows and more, which networks of this size do not fit in fewer
    large_steps: int | None = 60_000
    #: T when scoring; each method's own if None
    num_draws: int | None = None


SMOKE = Config(
    datasets=("boston",),
    methods=("two-layers", "concrete"),
    splits=2,
    repeats=2,
    steps=20,
    large_steps=20,
    num_draws=50,
)
PRESETS = {
    "paper": Config(steps=None, large_steps=None),
    "quick": Config(methods=("concrete", "quick"), splits=2, steps=400, large_steps=400, num_draws=300),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Fit every split by every method; means and standard errors."""
    found = run_benchmark(
        config.datasets,
        config.methods,
        steps=lambda method, rows: _steps(config, method, rows),
        splits=config.splits,
        num_draws=config.num_draws,
        repeats=config.repeats,
        cache=cache,
        progress=progress,
    )
    rows = score_rows(found, _COLUMNS, _PRINTED)
    rows += _rate_rows(found)
    rows += rank_rows(found, ("DGP",), _COLUMNS, AVERAGE_RANKS)
    rows += second_rows(found, {})
    lengths = [
        "the paper's number of epochs" if steps is None else f"at most {steps:,} steps"
        for steps in (config.steps, config.large_steps)
    ]
    notes = (
        f"Networks of the paper's methods were trained for {lengths[0]}, of sets with {MANY_ROWS:,} rows"
        f" and more for {lengths[1]}.",
        "Noise starts at the spread of the targets and is held back while weights and rates are trained, as"
        " by the paper's partial M-steps: on small sets, noise that follows the errors at once falls to"
        " nothing with them. CDropout has it as training leaves it, CDropoutM after an M-step in closed form."
        " Length scale and pace are those whose CDropoutM is best on the last fifth of the training rows.",
        "Average ranks of ours are over the sets that were run, among our methods and the printed DGP.",
        "Seconds are of one processor core, search and scores included.",
    )
    return Outcome(tuple(rows), tuple(_claims(found)), found.arrays(), notes)


def _steps(config: Config, method: str, rows: int) -> int | None:
    if method in ("default", "quick"):
        return None
    return config.large_steps if rows >= MANY_ROWS else config.steps


def _rate_rows(found: Benchmark) -> list[Row]:
    rows = []
    for name in found.present:
        rates = found.rates.get((name, "concrete"))
        if rates is None:
            continue
        for layer, values in enumerate(rates.T):
            label = "input" if layer == 0 else f"hidden {layer}"
            paper = "about 0" if layer == 0 else None
            error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
            rows.append(Row(f"{name}, {label}", "learned rate p", paper, float(values.mean()), error))
    return rows


def _claims(found: Benchmark) -> list[Claim]:
    claims = []
    learned = {name: rates for (name, method), rates in found.rates.items() if method == "concrete"}
    inputs = {name: float(rates[:, 0].mean()) for name, rates in learned.items()}
    if inputs:
        holds = all(value < 0.02 for value in inputs.values())
        claims.append(
            Claim(
                "The input layer's drop rate always decreases to essentially zero.",
                "mean over splits: " + ", ".join(f"{name} {value:.4f}" for name, value in inputs.items()),
                holds,
                "" if holds else "It falls below the rate it starts at, but not to zero within these steps.",
            )
        )
    if {"CDropoutM", "two-layers"} <= set(found.labels):
        claims.append(_match(found))
    if "default" in found.labels:
        claims += _own_claims(found)
    return claims


def _match(found: Benchmark) -> Claim:
    """Learned rates beside a grid of rates, in log-likelihood."""
    gaps = {}
    for name in found.present:
        gap = found.scores[name, "CDropoutM"][:, 1] - found.scores[name, "two-layers"][:, 1]
        gaps[name] = (float(gap.mean()), float(gap.std(ddof=1) / len(gap) ** 0.5) if len(gap) > 1 else 0.0)
    worse = [name for name, (mean, error) in gaps.items() if mean < -2 * error]
    printed = [
        f"{name} {published_mean('CDropoutM', name, 1)} against {published_mean('Dropout', name, 1)}"
        for name in worse
        if published_mean("CDropoutM", name, 1) is not None
    ]
    told = f"Not on {', '.join(worse)}; printed: {'; '.join(printed) or 'none'}." if worse else ""
    return Claim(
        "Concrete dropout matches the performance of hand-tuned dropout.",
        "log-likelihood of CDropoutM less that of two-layers, over splits: "
        + ", ".join(f"{name} {mean:+.3f} ± {error:.3f}" for name, (mean, error) in gaps.items()),
        not worse,
        told,
    )


def _own_claims(found: Benchmark) -> list[Claim]:
    """What the default estimator is meant to reach."""
    sets = [name for name in found.present if published_mean("DGP", name, 1) is not None]
    better, near, sharper = [], [], []
    for name in sets:
        score, error = found.mean(name, "default", 1), found.mean(name, "default", 0)
        if score > (best_printed(_DROPOUTS, name, 1) or -np.inf):
            better.append(name)
        if score >= (published_mean("DGP", name, 1) or np.inf) - 0.05:
            near.append(name)
        if error <= (published_mean("Dropout", name, 0) or 0.0) + 0.005:
            sharper.append(name)
    count = len(sets)
    return [
        Claim(
            "Ours: the default estimator has a better log-likelihood than all three printed dropout columns.",
            f"on {len(better)} of {count} sets: {', '.join(better)}",
            len(better) == count,
            "" if len(better) == count else "Not on " + ", ".join(n for n in sets if n not in better) + ".",
        ),
        Claim(
            "Ours: it is within 0.05 nats of the printed deep Gaussian process, or better, on half of them.",
            f"on {len(near)} of {count} sets: {', '.join(near)}",
            2 * len(near) >= count,
            "" if 2 * len(near) >= count else "On fewer.",
        ),
        Claim(
            "Ours: its RMSE is no worse than the printed Dropout column, on all sets but one at most.",
            f"on {len(sharper)} of {count} sets: {', '.join(sharper)}",
            len(sharper) >= count - 1,
            "" if len(sharper) >= count - 1 else "On fewer.",
        ),
    ]


def draw(outcome: Outcome) -> Any:
    """Log-likelihood, RMSE, and the learned rates."""
    count = max(len(outcome.arrays["present"]), 2)
    lines = len(_PRINTED) + len(outcome.arrays["labels"])
    height = 0.24 * lines + 1.2
    figure = new_figure(1.7 * count + 1.6, 2 * height + 2.4)
    above, middle, below = figure.subfigures(3, 1, height_ratios=(height, height, 2.4))
    draw_scores(above, outcome, _PRINTED, 1, "test log-likelihood (nats), higher is better")
    draw_scores(middle, outcome, _PRINTED, 0, "test RMSE, lower is better")
    draw_rates(below, outcome, "concrete")
    return figure
