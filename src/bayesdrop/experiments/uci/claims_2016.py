"""What Gal & Ghahramani (2016) say of table 1, and whether it held."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bayesdrop.experiments.row import Claim
from bayesdrop.experiments.uci.fits import MEAN_FIELD
from bayesdrop.experiments.uci.published import best_printed, published_error, published_mean
from bayesdrop.experiments.uci.report import Benchmark

__all__ = ["claims_2016"]


def claims_2016(found: Benchmark) -> Iterator[Claim]:
    """All of them, for the methods that were run."""
    if "gal2016" in found.labels:
        yield _beats(found, "gal2016")
        yield _significant(found, "gal2016")
        yield from _averages(found, "gal2016")
        yield from _without(found, "gal2016")
    if "gal2018" in found.labels:
        yield _repeats(found, "gal2018")
    if MEAN_FIELD in found.labels:
        yield _mean_field(found)
    if "default" in found.labels:
        yield _coverage(found, "default")


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
        otherwise="True of most sets, with the noise chosen on training rows.",
    )


def _significant(found: Benchmark, label: str) -> Claim:
    """Two standard errors: of differences of splits against our own VI, else of both columns together."""
    told, lost = [], []
    for name in found.present:
        rivals = [column for column in ("VI", "PBP") if published_mean(column, name, 0) is not None]
        if not rivals:
            continue
        for metric, sign, title in ((0, -1, "RMSE"), (1, 1, "log-likelihood")):
            sizes = {}
            for column in rivals:
                gap = found.mean(name, label, metric) - (published_mean(column, name, metric) or 0.0)
                error = math.hypot(
                    found.error(name, label, metric) or 0.0, published_error(column, name, metric)
                )
                # Printed numbers have two digits.
                sizes[column] = (sign * gap, max(error, 0.0025))
            if (name, MEAN_FIELD) in found.scores:
                gap, error = found.gap(name, label, MEAN_FIELD, metric)
                sizes["our VI"] = (sign * gap, error)
            short = [
                f"{rival} {gap:+.3g} ± {error:.2g}"
                for rival, (gap, error) in sizes.items()
                if gap < 2 * error
            ]
            if short and not (name == "yacht" and metric == 0):
                lost.append(f"{title} on {name}")
            if short:
                told.append(f"{title} on {name} ({'; '.join(short)})")
    return Claim(
        "Dropout significantly outperforms all other models, for RMSE and log-likelihood, on all sets apart"
        " from yacht, for which PBP obtains the better RMSE.",
        "better than a rival by less than two standard errors: " + ("; ".join(told) if told else "nowhere"),
        not lost,
        otherwise=f"Not by two standard errors: {', '.join(lost)}.",
    )


def _averages(found: Benchmark, label: str) -> list[Claim]:
    """The mean over draws against one pass of the mean weights."""
    gaps = {name: found.averaging_gap(name, label) for name, of in found.averaged if of == label}
    if not gaps:
        return []
    worse = [name for name, (gap, _) in gaps.items() if gap < 0]
    return [
        Claim(
            "The mean over stochastic passes has a lower RMSE than weight averaging.",
            "RMSE of averaged weights less that of the mean, over splits: "
            + ", ".join(f"{name} {gap:+.2g} ± {error:.1g}" for name, (gap, error) in gaps.items()),
            not worse,
            otherwise=f"Not on {', '.join(worse)}.",
        )
    ]


def _without(found: Benchmark, label: str) -> Iterator[Claim]:
    """The same network without dropout."""
    for name in found.present:
        if (name, "no-dropout") not in found.scores:
            continue
        gaps = [found.gap(name, label, "no-dropout", metric) for metric in (0, 1)]
        holds = gaps[0][0] < -2 * gaps[0][1] and gaps[1][0] > 2 * gaps[1][1]
        yield Claim(
            f"Without dropout, RMSE and log-likelihood on {name} are significantly worse.",
            f"with dropout less without, over splits: RMSE {gaps[0][0]:+.3f} ± {gaps[0][1]:.3f},"
            f" log-likelihood {gaps[1][0]:+.3f} ± {gaps[1][1]:.3f}",
            holds,
            otherwise="Not both by two standard errors.",
        )


def _mean_field(found: Benchmark) -> Claim:
    """Our VI within a standard error of the printed one, or better, in both numbers."""
    good: list[str] = []
    bad: list[str] = []
    for name in found.present:
        if published_mean("VI", name, 0) is None:
            continue
        worse = False
        for metric, sign in ((0, -1), (1, 1)):
            error = max(found.error(name, MEAN_FIELD, metric) or 0.0, published_error("VI", name, metric))
            gap = found.mean(name, MEAN_FIELD, metric) - (published_mean("VI", name, metric) or 0.0)
            # Printed numbers are rounded to two digits.
            worse |= sign * gap < -error - 0.005
        (bad if worse else good).append(name)
    return Claim(
        "Ours: a mean-field Gaussian has the RMSE and log-likelihood of the printed VI, within a standard"
        " error, or better, on at least 5 of 9 sets.",
        f"on {len(good)} of {len(good) + len(bad)} sets: {', '.join(good)}",
        9 * len(good) >= 5 * (len(good) + len(bad)),
        f"Not on {', '.join(bad)}." if bad else "",
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
        otherwise="See the rows of those sets.",
    )


def _coverage(found: Benchmark, label: str) -> Claim:
    covers = [found.mean(name, label, 2) for name in found.present]
    mean = float(np.mean(covers))
    return Claim(
        "Ours: 95 % intervals of the default estimator hold 93 to 97 % of test rows, on average over sets.",
        f"{100 * mean:.1f} %; by set "
        + ", ".join(f"{name} {100 * cover:.1f}" for name, cover in zip(found.present, covers, strict=True)),
        0.93 <= mean <= 0.97,
        otherwise="Intervals are too wide or too narrow on these sets.",
    )
