"""Numbers that rows and claims are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.experiments.curves.alike import means_apart
from bayesdrop.experiments.curves.series import YEAR
from bayesdrop.experiments.row import Claim

__all__ = ["at", "distance", "few_draws", "roughness", "season"]

Values = np.ndarray[Any, Any]


def at(piece: dict[str, Any], name: str, place: float) -> float:
    """A curve at one x, between the points of its grid on a straight line.

    Args:
        piece: with "grid" and curves on it, as `ask` gives it.
        name: of the curve: "mean", "std", "standard".
        place: x.
    """
    return float(np.interp(place, np.asarray(piece["grid"]), np.asarray(piece[f"grid_{name}"])))


def distance(one: Any, other: Any) -> float:
    """Root mean square of the difference of two curves."""
    return means_apart(one, other, 1.0)


def season(monthly: Any) -> float:
    """Size of the seasons: root mean square of a monthly series minus its moving mean over a year.

    >>> import math
    >>> round(season([3 + 0.5 * m + math.sqrt(2) * math.sin(math.pi * m / 6) for m in range(60)]), 3)
    1.0
    """
    values = np.asarray(monthly, dtype=float)
    # Months at both ends count half, so that the mean of a year has its middle at a month.
    weights = np.r_[0.5, np.ones(YEAR - 1), 0.5] / YEAR
    smooth = np.convolve(values, weights, mode="valid")
    left = values[YEAR // 2 : -(YEAR // 2)] - smooth
    return float(np.sqrt(np.mean(left**2)))


def roughness(paths: Values) -> float:
    """Root mean square of the second differences of functions (T, G) on a grid: 0 for straight lines."""
    return float(np.sqrt(np.mean(np.diff(np.asarray(paths), n=2, axis=-1) ** 2)))


def few_draws(text: str, config: Any, *pieces: dict[str, Any]) -> Claim:
    """The claim that few draws do: they are off by less than twice the error that theory expects.

    Args:
        text: of the claim.
        config: of the run.
        pieces: of all networks, from `ask`.
    """
    of_mean, of_std = (
        float(np.sqrt(np.mean([piece[f"few_{name}_error"] ** 2 for piece in pieces])))
        for name in ("mean", "std")
    )
    # What the mean and the standard deviation of independent Gaussian draws would have.
    mean_error, std_error = config.few_draws**-0.5, (2 * max(1, config.few_draws - 1)) ** -0.5
    holds = of_mean < 2 * mean_error and of_std < 2 * std_error
    return Claim(
        text,
        f"with {config.few_draws} draws instead of {config.num_draws:,} the mean is off by {of_mean:.2f} "
        f"standard deviations (theory: {mean_error:.2f}), and the standard deviation by {100 * of_std:.0f} % "
        f"(theory: {100 * std_error:.0f} %), root mean square over sets of draws, x and networks.",
        holds,
        otherwise="Enough for a glance, not for the size of the spread.",
    )
