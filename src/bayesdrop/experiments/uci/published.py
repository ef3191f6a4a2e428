"""Numbers of the papers' tables, as printed."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AVERAGE_RANKS",
    "COLUMNS",
    "MEDIANS_2016",
    "NO_DROPOUT_2016",
    "PBP_SECONDS",
    "SECONDS_2016",
    "SPLITS_2016",
    "best_printed",
    "published",
    "published_error",
    "published_mean",
]

_SETS_2016 = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht", "year")
_SETS_2017 = ("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine", "yacht", "naval")

_TEXTS = {
    # Gal & Ghahramani (2016), table 1. What follows ± are standard errors for VI and PBP, and standard
    # deviations over splits for dropout, as the authors' files show.
    "VI": (
        _SETS_2016,
        "4.32 ± 0.29, 7.19 ± 0.12, 2.65 ± 0.08, 0.10 ± 0.00, 0.01 ± 0.00, 4.33 ± 0.04, 4.84 ± 0.03, "
        "0.65 ± 0.01, 6.89 ± 0.67, 9.034",
        "-2.90 ± 0.07, -3.39 ± 0.02, -2.39 ± 0.03, 0.90 ± 0.01, 3.73 ± 0.12, -2.89 ± 0.01, -2.99 ± 0.01, "
        "-0.98 ± 0.01, -3.43 ± 0.16, -3.622",
    ),
    "PBP": (
        _SETS_2016,
        "3.01 ± 0.18, 5.67 ± 0.09, 1.80 ± 0.05, 0.10 ± 0.00, 0.01 ± 0.00, 4.12 ± 0.03, 4.73 ± 0.01, "
        "0.64 ± 0.01, 1.02 ± 0.05, 8.879",
        "-2.57 ± 0.09, -3.16 ± 0.02, -2.04 ± 0.02, 0.90 ± 0.01, 3.73 ± 0.01, -2.84 ± 0.01, -2.97 ± 0.00, "
        "-0.97 ± 0.01, -1.63 ± 0.02, -3.603",
    ),
    "Dropout 2016": (
        _SETS_2016,
        "2.97 ± 0.85, 5.23 ± 0.53, 1.66 ± 0.19, 0.10 ± 0.00, 0.01 ± 0.00, 4.02 ± 0.18, 4.36 ± 0.04, "
        "0.62 ± 0.04, 1.11 ± 0.38, 8.849",
        "-2.46 ± 0.25, -3.04 ± 0.09, -1.99 ± 0.09, 0.95 ± 0.03, 3.80 ± 0.05, -2.80 ± 0.05, -2.89 ± 0.01, "
        "-0.93 ± 0.06, -1.55 ± 0.12, -3.588",
    ),
    # The authors' repository, runs of 2018: a grid, 4,000 epochs. Standard errors.
    "Dropout 2018": (
        _SETS_2016[:-1],
        "2.90 ± 0.18, 4.82 ± 0.16, 0.54 ± 0.06, 0.08 ± 0.00, 0.00 ± 0.00, 4.01 ± 0.04, 4.27 ± 0.02, "
        "0.62 ± 0.01, 0.67 ± 0.05",
        "-2.40 ± 0.04, -2.93 ± 0.02, -1.21 ± 0.01, 1.14 ± 0.01, 4.45 ± 0.00, -2.80 ± 0.01, -2.87 ± 0.00, "
        "-0.93 ± 0.01, -1.25 ± 0.01",
    ),
    # Gal, Hron & Kendall (2017), tables 4 and 3.
    "Dropout": (
        _SETS_2017,
        "2.80 ± 0.13, 4.50 ± 0.18, 0.47 ± 0.01, 0.08 ± 0.00, 3.63 ± 0.04, 3.62 ± 0.01, 0.60 ± 0.01, "
        "0.66 ± 0.06, 0.00 ± 0.00",
        "-2.34 ± 0.03, -2.82 ± 0.02, -1.48 ± 0.00, 1.10 ± 0.00, -2.67 ± 0.01, -2.70 ± 0.00, -0.90 ± 0.01, "
        "-1.37 ± 0.02, 4.32 ± 0.00",
    ),
    "CDropout": (
        _SETS_2017,
        "2.65 ± 0.17, 4.46 ± 0.16, 0.46 ± 0.02, 0.07 ± 0.00, 3.70 ± 0.04, 3.85 ± 0.02, 0.62 ± 0.00, "
        "0.57 ± 0.05, 0.00 ± 0.00",
        "-2.72 ± 0.01, -3.51 ± 0.00, -2.30 ± 0.00, 0.65 ± 0.00, -2.75 ± 0.01, -2.81 ± 0.00, -1.70 ± 0.00, "
        "-1.75 ± 0.00, 5.87 ± 0.05",
    ),
    "CDropoutM": (
        _SETS_2017,
        "2.65 ± 0.17, 4.46 ± 0.16, 0.46 ± 0.02, 0.07 ± 0.00, 3.70 ± 0.04, 3.85 ± 0.02, 0.62 ± 0.00, "
        "0.57 ± 0.05, 0.00 ± 0.00",
        "-2.35 ± 0.05, -3.12 ± 0.07, -0.84 ± 0.03, 1.24 ± 0.00, -2.75 ± 0.01, -2.81 ± 0.00, -0.94 ± 0.02, "
        "-0.77 ± 0.06, 5.89 ± 0.05",
    ),
    "DGP": (
        _SETS_2017,
        "2.38 ± 0.12, 4.64 ± 0.11, 0.57 ± 0.02, 0.05 ± 0.00, 3.60 ± 0.03, 3.24 ± 0.10, 0.50 ± 0.01, "
        "0.98 ± 0.09, 0.01 ± 0.00",
        "-2.17 ± 0.10, -2.61 ± 0.02, -0.95 ± 0.01, 1.79 ± 0.02, -2.58 ± 0.01, -2.11 ± 0.04, -0.10 ± 0.03, "
        "-0.99 ± 0.07, 4.77 ± 0.32",
    ),
}

#: names of the printed columns
COLUMNS = tuple(_TEXTS)
_PRINTED = {
    (column, name): (error, score)
    for column, (sets, errors, scores) in _TEXTS.items()
    for name, error, score in zip(sets, errors.split(", "), scores.split(", "), strict=True)
}
#: of sets that have not 20
SPLITS_2016 = {"protein": 5, "year": 1}
#: average rank over nine sets: by log-likelihood, by RMSE
AVERAGE_RANKS = {
    "Dropout": ("2.56 ± 0.23", "2.67 ± 0.31"),
    "CDropout": ("3.56 ± 0.23", "2.00 ± 0.27"),
    "CDropoutM": ("2.44 ± 0.39", "3.00 ± 0.27"),
    "DGP": ("1.44 ± 0.23", "2.33 ± 0.50"),
}
#: seconds a split, search included, and of the last training alone
SECONDS_2016 = {"naval": (276.0, 95.0), "kin8nm": (188.0, 65.0)}
#: of probabilistic back-propagation
PBP_SECONDS = {"naval": 220.0, "kin8nm": 156.0}
#: medians over splits, with quartiles where they are printed, of RMSE (0) and log-likelihood (1)
MEDIANS_2016 = {
    ("boston", 0): "2.68 [2.45, 3.35]",
    ("boston", 1): "-2.34 [-2.54, -2.29]",
    ("concrete", 0): "5.15",
}
#: RMSE and log-likelihood with a dropout probability of 0
NO_DROPOUT_2016 = {"boston": (3.07, -2.59)}


def published(column: str, name: str, metric: int) -> str | None:
    """A printed cell: metric 0 is RMSE, 1 log-likelihood; None where there is none.

    >>> published("Dropout 2016", "boston", 0), published("DGP", "year", 1)
    ('2.97 ± 0.85', None)
    """
    cell = _PRINTED.get((column, name))
    return None if cell is None else cell[metric]


def published_mean(column: str, name: str, metric: int) -> float | None:
    """The mean of a printed cell.

    >>> published_mean("VI", "year", 1)
    -3.622
    """
    text = published(column, name, metric)
    return None if text is None else float(text.split(" ")[0])


def published_error(column: str, name: str, metric: int) -> float:
    """What follows ± in a printed cell; 0 if nothing does."""
    text = published(column, name, metric) or ""
    return float(text.partition(" ± ")[2] or 0)


def best_printed(columns: Sequence[str], name: str, metric: int) -> float | None:
    """The best of some printed columns: the highest log-likelihood, or the lowest RMSE.

    >>> best_printed(("VI", "PBP"), "yacht", 1)
    -1.63
    """
    known = [mean for column in columns if (mean := published_mean(column, name, metric)) is not None]
    if not known:
        return None
    return max(known) if metric == 1 else min(known)
