"""Shares over time beside what was promised, with bands of what chance alone would do."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.errors import must, real_number, require
from bayesdrop.plots.checks import Numbers, Values, check_axes, numbers, row_numbers
from bayesdrop.plots.style import BLUE, MUTED, ORANGE, dress

__all__ = ["binomial_band", "plot_promise"]


def binomial_band(promised: Values, count: Values, *, level: float = 0.95) -> tuple[Numbers, Numbers]:
    """Ends of the shares that a promise allows: a right one stays between with a chance of at least `level`.

    The ends are quantiles of Binomial(count, promised) / count, exactly.

    Args:
        promised: (S,) probabilities.
        count: (S,) how many were counted.
        level: chance of staying inside.

    Returns: lower and upper ends, (S,) each; 0 and 1 where nothing was counted.

    >>> low, high = binomial_band([0.9], [100])
    >>> low.tolist(), high.tolist()
    ([0.84], [0.95])
    """
    owner = "binomial_band"
    chance = row_numbers(owner, "promised", promised)
    trials = row_numbers(owner, "count", count, len(chance), like="promised")
    real_number(owner, "level", level, "in (0, 1)", above=0, below=1)
    if (chance < 0).any() or (chance > 1).any():
        raise ValueError(must(owner, "promised", "probabilities", chance.tolist()))
    if (trials < 0).any() or (trials != np.round(trials)).any():
        raise ValueError(must(owner, "count", "whole numbers of at least 0", trials.tolist()))
    law = require("scipy.stats", extra="sklearn", owner=owner).binom
    size = np.maximum(trials, 1)
    low = np.where(trials > 0, law.ppf((1 - level) / 2, size, chance) / size, 0.0)
    high = np.where(trials > 0, law.ppf((1 + level) / 2, size, chance) / size, 1.0)
    # The quantile at a probability of 0 is 0 - 1.
    return np.maximum(low, 0.0), high


def plot_promise(
    ax: Any,
    x: Values,
    share: Values,
    promised: Values,
    count: Values,
    *,
    level: float = 0.95,
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """Shares that were observed, as accuracy or coverage, beside those that were promised.

    The shaded band is where 95 % of the shares lie if the promise holds; a share outside of it is drawn in
    orange. Where nothing was counted nothing is drawn.

    Args:
        ax: matplotlib axes.
        x: (S,) positions, as times.
        share: (S,) observed shares; NaN where nothing was counted.
        promised: (S,) promised shares.
        count: (S,) how many each share is of.
        level: of the band.
        color: of the line.
        label: of the line, for a legend.

    Returns: the axes.
    """
    owner = "plot_promise"
    check_axes(owner, ax)
    places = row_numbers(owner, "x", x)
    seen = numbers(owner, "share", share, 1, finite=False)
    if len(seen) != len(places):
        raise ValueError(must(owner, "share", f"{len(places)} values, as `x`", seen.shape))
    wanted = row_numbers(owner, "promised", promised, len(places))
    low, high = binomial_band(wanted, row_numbers(owner, "count", count, len(places)), level=level)
    drawn = np.isfinite(seen)
    kept = places[drawn], seen[drawn], wanted[drawn], low[drawn], high[drawn]
    places, seen, wanted, low, high = kept
    ax.vlines(places, low, high, color=MUTED, alpha=0.25, linewidth=9, zorder=0)
    ax.plot(places, wanted, color=MUTED, linewidth=1.2, linestyle="--", label="promised", zorder=1)
    ax.plot(places, seen, color=color, linewidth=1.6, marker="o", markersize=5, label=label, zorder=3)
    broken = (seen < low - 1e-12) | (seen > high + 1e-12)
    if broken.any():
        ax.plot(
            places[broken],
            seen[broken],
            linestyle="",
            marker="o",
            markersize=8,
            color=ORANGE,
            label="not by chance",
            zorder=4,
        )
    dress(ax)
    return ax
