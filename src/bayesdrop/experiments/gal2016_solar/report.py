"""Rows, claims and notes of solar irradiance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.curves.alike import MEANS, SPREADS, likeness, means_apart
from bayesdrop.experiments.curves.config import common_notes
from bayesdrop.experiments.curves.measures import distance, few_draws, roughness
from bayesdrop.experiments.curves.series import GAP, Curve
from bayesdrop.experiments.row import Claim, Row

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2016_solar import Config

__all__ = ["make_claims", "make_notes", "make_rows"]

Piece = dict[str, Any]
TITLES = {"relu": "MC dropout, ReLU, 4 hidden layers", "shallow": "MC dropout, ReLU, 3 hidden layers"}
#: share of a Gaussian's mass within two standard deviations
NOMINAL = 0.954


def coverage(piece: Piece, y: Any, most: float = 2.0, noise: float = 0.0) -> float:
    """Share of the held-out years that are within `most` standard deviations of the mean.

    Args:
        piece: what a model says.
        y: (M,) held-out values.
        most: number of standard deviations.
        noise: standard deviation of the noise, which is added to that of the function.
    """
    std = np.sqrt(np.asarray(piece["test_std"]) ** 2 + noise**2)
    return float(np.mean(np.abs(np.asarray(piece["test_mean"]) - np.asarray(y)) <= most * std))


def gap_spreads(piece: Piece) -> list[float]:
    """Mean standard deviation in each gap."""
    return [float(part.mean()) for part in np.asarray(piece["test_std"]).reshape(-1, GAP)]


def make_rows(curve: Curve, found: Mapping[str, Piece], process: Piece) -> list[Row]:
    """Errors, spreads and coverage of each model."""
    y, y_test, relu = curve.y[:, 0], curve.y_test[:, 0], found["relu"]
    rows = [
        Row("standard dropout, ReLU", "RMSE, training years", None, distance(relu["train_standard"], y)),
        Row("standard dropout, ReLU", "RMSE, gaps", None, distance(relu["test_standard"], y_test)),
    ]
    for name, piece in {**found, "process": process}.items():
        title = TITLES.get(name, "Gaussian process")
        inside, outside = float(piece["train_std"].mean()), float(piece["test_std"].mean())
        rows += [
            Row(title, "RMSE, training years", None, piece["train_rmse"]),
            Row(title, "RMSE, gaps", None, piece["test_rmse"]),
            Row(title, "mean std, training years", None, inside),
            Row(title, "mean std, gaps", None, outside),
            Row(title, "ratio of the two", None, outside / inside),
            Row(title, "gap years within 2 std (%)", None, 100 * coverage(piece, y_test)),
        ]
    rows += [
        Row("Gaussian process", "length scale (years)", None, 11 * process["length_scale"] / curve.period),
        Row("Gaussian process", "noise std", None, process["noise_std"]),
        Row("draws, ReLU", "roughness, masks shared by rows", None, roughness(relu["paths"])),
        Row("draws, ReLU", "roughness, a mask for every row", None, roughness(relu["scattered_paths"])),
    ]
    return rows


def make_claims(config: Config, curve: Curve, found: Mapping[str, Piece], process: Piece) -> list[Claim]:
    """What figure D.1 shows, as the paper says little of it; and what section 5.1 says of such models."""
    y = curve.y_test[:, 0]
    return [
        _wider(found["relu"], process),
        _covered(found["relu"], process, y),
        _standard(found["relu"], y),
        _layers(found),
        few_draws(
            "5.1: 10 passes already give a reasonable estimate of mean and uncertainty.",
            config,
            *found.values(),
        ),
    ]


def _wider(piece: Piece, process: Piece) -> Claim:
    inside, gaps = float(piece["train_std"].mean()), gap_spreads(piece)
    ratio, other = (
        float(np.mean(gaps)) / inside,
        float(process["test_std"].mean() / process["train_std"].mean()),
    )
    # Two runs of the default, with the same settings and seed, had 0.95 and 1.10: more than that is demanded.
    holds = ratio > SPREADS
    return Claim(
        "Fig. D.1: the network is less certain in the gaps than at the years that it has learned.",
        f"mean standard deviation {inside:.3f} at training years and "
        f"{', '.join(f'{value:.3f}' for value in gaps)} in the five gaps.",
        holds,
        otherwise=f"It is about as certain in the gaps as at the years that it has learned: {ratio:.2f} "
        f"times the spread, and less than {SPREADS:g} counts as the same. The Gaussian process has "
        f"{other:.0f} times the spread in the gaps that it has there.",
    )


def _covered(piece: Piece, process: Piece, y: Any) -> Claim:
    """The share may be two standard errors too small, as if the 100 years were independent."""
    share, other = coverage(piece, y), coverage(process, y)
    error = (NOMINAL * (1 - NOMINAL) / len(y)) ** 0.5
    holds = share > NOMINAL - 2 * error
    return Claim(
        "5.1: two standard deviations represent 95 % confidence.",
        f"{100 * share:.0f} % of the years in the gaps are within two standard deviations of the network's "
        f"mean, and {100 * other:.0f} % of the Gaussian process's.",
        holds,
        otherwise=f"The spread is too small: the standard deviation would have to be "
        f"{widening(piece, y):.1f} times as large to hold {100 * NOMINAL:.0f} % of the years.",
    )


def widening(piece: Piece, y: Any) -> float:
    """The factor by which standard deviations must grow so that two of them hold the nominal share."""
    away = np.abs(np.asarray(piece["test_mean"]) - np.asarray(y)) / np.asarray(piece["test_std"])
    return float(np.quantile(away, NOMINAL) / 2)


def _standard(piece: Piece, y: Any) -> Claim:
    one, many = distance(piece["test_standard"], y), distance(piece["test_mean"], y)
    apart = means_apart(piece["test_standard"], piece["test_mean"], piece["test_std"])
    holds = apart < MEANS
    return Claim(
        "4: the mean of MC dropout can be approximated by one pass with averaged weights (standard dropout).",
        f"in the gaps the two are {apart:.2f} standard deviations apart (root mean square); RMSE {one:.3f} "
        f"in one pass, {many:.3f} with the mean of draws.",
        holds,
        otherwise="In a deep network the two are not the same, and one pass has no spread at all.",
    )


def _layers(found: Mapping[str, Piece]) -> Claim:
    alike = likeness(found["relu"], found["shallow"], train="at training years", test="in the gaps")
    return Claim(
        "5.1: models with one layer less converge to the same results.",
        f"3 hidden layers instead of 4: {alike}.",
        alike.same,
        alike.correction,
    )


def make_notes(config: Config) -> list[str]:
    """What differs from the paper."""
    return common_notes(
        config,
        ("Of the 391 years of the reconstruction the first 375 are used, as many as the authors' file has.",),
        "Half of the second layer's units start as tents, which end about 7 years from their middle.",
    )
