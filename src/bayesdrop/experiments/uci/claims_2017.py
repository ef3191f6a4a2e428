"""What Gal, Hron & Kendall (2017) say of their UCI tables, and whether it held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from bayesdrop.experiments.row import Claim
from bayesdrop.experiments.uci.fits import single_fit_share
from bayesdrop.experiments.uci.published import best_printed, published_mean
from bayesdrop.experiments.uci.report import Benchmark
from bayesdrop.experiments.uci.sets import load_set

__all__ = ["DROPOUTS", "claims_2017"]

#: the printed columns of dropout
DROPOUTS = ("Dropout", "CDropout", "CDropoutM")


def claims_2017(found: Benchmark) -> Iterator[Claim]:
    """All of them, for the methods that were run."""
    learned = {name: rates for (name, method), rates in found.rates.items() if method == "concrete"}
    inputs = {name: float(rates[:, 0].mean()) for name, rates in learned.items()}
    if inputs:
        holds = all(value < 0.02 for value in inputs.values())
        yield Claim(
            "The input layer's drop rate always decreases to essentially zero.",
            "mean over splits: " + ", ".join(f"{name} {value:.4f}" for name, value in inputs.items()),
            holds,
            otherwise="It falls below the rate it starts at, but not to zero within these steps.",
        )
    if {"CDropoutM", "two-layers"} <= set(found.labels):
        yield _match(found)
        yield _experiment_time(found)
    if len(learned) > 2:
        yield _rates_fall(learned)
    yield from _without_dropout(found)
    if "default" in found.labels:
        yield from _own_claims(found)


def _match(found: Benchmark) -> Claim:
    """Learned rates beside a grid of rates, in log-likelihood."""
    gaps = {}
    for name in found.present:
        gaps[name] = found.gap(name, "CDropoutM", "two-layers", 1)
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


def _experiment_time(found: Benchmark) -> Claim:
    """One fit with learned rates against the grid of rates, by the seconds of this page."""
    told, slower, searched = [], [], []
    for name in found.present:
        rows = len(load_set(name))
        grid, search = found.seconds[name, "two-layers"], found.seconds[name, "concrete"]
        single = search * single_fit_share("concrete", rows)
        told.append(f"{name} {single:.1f} against {grid:.1f} s ({search:.1f} s with its own search)")
        if single >= grid:
            slower.append(name)
        if search > grid:
            searched.append(name)
    correction = f"Not on {', '.join(slower)}. " if slower else ""
    if searched:
        correction += (
            "Of a single fit only. A length scale and a pace of the noise must be chosen, too, and the search"
            f" for them took longer than the grid of rates on {len(searched)} of {len(found.present)} sets."
        )
    return Claim(
        "Learning the rates reduces experiment time against a grid search over them.",
        "seconds a split of one fit with learned rates (its share of the search, by rows and candidates)"
        " against the grid of four rates and the fit that follows: " + ", ".join(told),
        not slower,
        correction.strip(),
    )


def _rates_fall(learned: Mapping[str, NDArray[np.float64]]) -> Claim:
    """Rank correlation of a set's rows with the mean rate of its hidden layers."""
    rows = [len(load_set(name)) for name in learned]
    hidden = {name: float(rates[:, 1:].mean()) for name, rates in learned.items()}
    first, second = (np.argsort(np.argsort(values)) for values in (rows, list(hidden.values())))
    products = (first - first.mean()) * (second - second.mean())
    correlation = float(products.mean() / (first.std() * second.std()))
    return Claim(
        "With more data than the model is large, rates fall: a rank correlation of rows with the mean rate of"
        " hidden layers of -0.5 or less.",
        f"{correlation:.2f}; " + ", ".join(f"{name} {p:.3f}" for name, p in hidden.items()),
        correlation <= -0.5,
        otherwise="Sets differ in more than their rows; no such order is seen.",
    )


def _without_dropout(found: Benchmark) -> list[Claim]:
    """The grid of rates against no dropout at all, on the sets with the fewest rows."""
    label = "two-layers-no-dropout"
    sets = [name for name in found.present if {(name, label), (name, "two-layers")} <= set(found.scores)]
    if not sets:
        return []
    gaps = {name: found.gap(name, "two-layers", label, 1) for name in sets}
    better = [name for name, (gap, error) in gaps.items() if gap > 2 * error]
    return [
        Claim(
            "Removing dropout a priori is suboptimal if the training set is not sufficiently informative.",
            "log-likelihood with a rate from the grid less that without dropout, over splits: "
            + ", ".join(f"{name} {gap:+.3f} ± {error:.3f}" for name, (gap, error) in gaps.items()),
            len(better) == len(sets),
            otherwise="Not by two standard errors on "
            + ", ".join(name for name in sets if name not in better)
            + ".",
        )
    ]


def _own_claims(found: Benchmark) -> list[Claim]:
    """What the default estimator is meant to reach."""
    sets = [name for name in found.present if published_mean("DGP", name, 1) is not None]
    better, near, sharper = [], [], []
    for name in sets:
        score, error = found.mean(name, "default", 1), found.mean(name, "default", 0)
        if score > (best_printed(DROPOUTS, name, 1) or -np.inf):
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
            otherwise="Not on " + ", ".join(n for n in sets if n not in better) + ".",
        ),
        Claim(
            "Ours: it is within 0.05 nats of the printed deep Gaussian process, or better, on half of them.",
            f"on {len(near)} of {count} sets: {', '.join(near)}",
            2 * len(near) >= count,
            otherwise="On fewer.",
        ),
        Claim(
            "Ours: its RMSE is no worse than the printed Dropout column, on all sets but one at most.",
            f"on {len(sharper)} of {count} sets: {', '.join(sharper)}",
            len(sharper) >= count - 1,
            otherwise="On fewer.",
        ),
    ]
