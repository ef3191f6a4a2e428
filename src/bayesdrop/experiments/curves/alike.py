"""When two models count as the same: one standard for both experiments.

It was written before a network of the preset "wide" was trained, and after those of the default had been
judged by other standards: a network with a layer less, whose mean was 1.4 standard deviations from that of
the deeper one at x* (carbon dioxide) and 1.2 in the gaps (solar irradiance), had counted as the same, but one
pass that was 1.2 standard deviations from the mean of draws had not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MEANS", "SPREADS", "Likeness", "likeness", "means_apart", "spreads_are_alike"]

#: means count as the same if they are fewer standard deviations apart, root mean square over rows
MEANS = 1.0
#: spreads count as the same if their ratio is less than this, and more than its inverse
SPREADS = 1.25


def means_apart(one: Any, other: Any, std: Any) -> float:
    """Distance of two curves in standard deviations, root mean square over rows.

    >>> means_apart([0.0, 0.0], [1.0, 2.0], [1.0, 2.0])
    1.0
    """
    difference = (np.asarray(one) - np.asarray(other)) / np.asarray(std)
    return float(np.sqrt(np.mean(difference**2)))


def spreads_are_alike(ratio: float) -> bool:
    """Whether two standard deviations with this ratio count as the same.

    >>> spreads_are_alike(1.2), spreads_are_alike(0.7)
    (True, False)
    """
    return 1 / SPREADS < ratio < SPREADS


@dataclass(frozen=True)
class Likeness:
    """How far two networks are from saying the same, by place: at the training rows, at the held-out ones."""

    #: distance of their means, in units of the root of their mean variance
    apart: dict[str, float]
    #: mean standard deviation of the second over that of the first
    ratio: dict[str, float]

    @property
    def differing(self) -> list[str]:
        """What is not the same, as "the means in the gaps"; empty if all is."""
        means = [f"the means {place}" for place, apart in self.apart.items() if apart >= MEANS]
        spreads = [f"the spreads {place}" for place, one in self.ratio.items() if not spreads_are_alike(one)]
        return [*means, *spreads]

    @property
    def same(self) -> bool:
        """Whether means and spreads count as the same at both places."""
        return not self.differing

    @property
    def correction(self) -> str:
        """The correction of a claim that they are the same; empty if they are."""
        return "" if self.same else f"Not the same: {', '.join(self.differing)}."

    def __str__(self) -> str:
        return "; ".join(
            f"{place} the means are {self.apart[place]:.2f} standard deviations apart and the spread is "
            f"{self.ratio[place]:.2f} times as large"
            for place in self.apart
        )


def likeness(one: Mapping[str, Any], other: Mapping[str, Any], *, train: str, test: str) -> Likeness:
    """How far two networks are from saying the same.

    Args:
        one: what the first says, from `ask`.
        other: what the second says.
        train: what the place of the training rows is called, as "at training years".
        test: what that of the held-out rows is called.
    """
    apart, ratio = {}, {}
    for name, place in (("train", train), ("test", test)):
        first, second = (np.asarray(piece[f"{name}_std"]) for piece in (one, other))
        both = np.sqrt((first**2 + second**2) / 2)
        apart[place] = means_apart(one[f"{name}_mean"], other[f"{name}_mean"], both)
        ratio[place] = float(second.mean() / first.mean())
    return Likeness(apart, ratio)
