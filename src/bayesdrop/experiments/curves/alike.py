"""When two models say the same: one standard for both experiments.

It was written before a network of the preset "wide" was trained. Those of the default had been seen, under
other standards: a network with a layer less differed from the deeper one by 1.4 standard deviations at x*
(carbon dioxide) and by 1.2 in the gaps (solar irradiance), which counted as the same there, while one pass
that was 1.2 standard deviations from the mean of draws did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MEANS", "SPREADS", "Likeness", "likeness", "means_apart", "spreads_are_alike"]

#: means are the same that are less than this many standard deviations apart, root mean square over rows
MEANS = 1.0
#: spreads are the same whose ratio is less than this, and more than its inverse
SPREADS = 1.25


def means_apart(one: Any, other: Any, std: Any) -> float:
    """Distance of two curves in standard deviations, root mean square over rows.

    >>> means_apart([0.0, 0.0], [1.0, 2.0], [1.0, 2.0])
    1.0
    """
    difference = (np.asarray(one) - np.asarray(other)) / np.asarray(std)
    return float(np.sqrt(np.mean(difference**2)))


def spreads_are_alike(ratio: float) -> bool:
    """Whether one standard deviation is as good as the other.

    >>> spreads_are_alike(1.2), spreads_are_alike(0.7)
    (True, False)
    """
    return 1 / SPREADS < ratio < SPREADS


@dataclass(frozen=True)
class Likeness:
    """How far two networks are from saying the same, by where they were asked."""

    apart: dict[str, float]  #: distance of their means, in standard deviations (that of their mean variance)
    ratio: dict[str, float]  #: of the second's mean standard deviation to the first's

    @property
    def differing(self) -> list[str]:
        """What is not the same, as "the means in the gaps"."""
        means = [f"the means {place}" for place, apart in self.apart.items() if apart >= MEANS]
        spreads = [f"the spreads {place}" for place, one in self.ratio.items() if not spreads_are_alike(one)]
        return [*means, *spreads]

    @property
    def same(self) -> bool:
        """Means and spreads are the same wherever they were asked."""
        return not self.differing

    @property
    def correction(self) -> str:
        """What a claim that they are the same overlooks; empty if nothing."""
        return "" if self.same else f"Not the same: {', '.join(self.differing)}."

    def __str__(self) -> str:
        return "; ".join(
            f"{place} the means are {self.apart[place]:.2f} standard deviations apart and the spread is "
            f"{self.ratio[place]:.2f} times as large"
            for place in self.apart
        )


def likeness(one: Mapping[str, Any], other: Mapping[str, Any], *, train: str, test: str) -> Likeness:
    """Of two networks at the training rows and at those that were held out.

    Args:
        one: what the first says.
        other: what the second says.
        train: how the training rows are called, as "at training years".
        test: how the others are called.
    """
    apart, ratio = {}, {}
    for name, place in (("train", train), ("test", test)):
        first, second = (np.asarray(piece[f"{name}_std"]) for piece in (one, other))
        both = np.sqrt((first**2 + second**2) / 2)
        apart[place] = means_apart(one[f"{name}_mean"], other[f"{name}_mean"], both)
        ratio[place] = float(second.mean() / first.mean())
    return Likeness(apart, ratio)
