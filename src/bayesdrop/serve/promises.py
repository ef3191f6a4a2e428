"""What was promised and what came of it: the statistics of the dashboard, from labelled items alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.serve.store import Item

__all__ = [
    "Agreement",
    "Drift",
    "JudgedItem",
    "Period",
    "PromiseCurve",
    "agreement",
    "calibration_of",
    "drift_of",
    "judged",
    "periods",
    "share_interval",
]

Array = NDArray[np.float64]
#: edges of the bins of the calibration curve
_EDGES = np.linspace(0.0, 1.0, 11)
_LEVELS = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True)
class JudgedItem:
    """A prediction that people have judged.

    Attributes:
        at: when it was given out.
        kept: whether the label was right, or the interval contained the number.
        promised: the probability that the model gave to that.
        defer: whether it went to a person because the model was unsure.
        far: for numbers, how far the truth was from the mean, in halves of the interval; NaN for classes.
    """

    at: float
    kept: bool
    promised: float
    defer: bool
    far: float = math.nan


def judged(items: Iterable[Item]) -> list[JudgedItem]:
    """The first predictions of items, those that callers got, beside what people say; in order of time.

    Items about which people disagree evenly are left out, and those whose prediction has no interval.

    Args:
        items: labelled; only if they were picked at random their shares hold for all rows.
    """
    found = []
    for item in items:
        truth = item.agreed
        if truth is None or not item.predictions:
            continue
        said = item.predictions[0]
        one = _judged_class(said, truth) if "label" in said.answer else _judged_number(said, truth)
        if one is not None:
            found.append(one)
    return sorted(found, key=lambda one: one.at)


def _judged_class(said: Any, truth: Any) -> JudgedItem | None:
    probs = [prob for prob in said.answer.get("probs") or () if prob is not None]
    if not probs:
        return None
    kept = str(said.answer["label"]) == str(truth)
    return JudgedItem(said.created, kept, min(1.0, max(probs)), said.defer)


def _judged_number(said: Any, truth: Any) -> JudgedItem | None:
    """A number that is not there stands for an end without a bound."""
    mean, lower, upper = (said.answer.get(name) for name in ("mean", "lower", "upper"))
    if not isinstance(mean, int | float) or said.level is None or not isinstance(truth, int | float):
        return None
    low = -math.inf if lower is None else float(lower)
    high = math.inf if upper is None else float(upper)
    half = high - mean if truth >= mean else mean - low
    far = abs(truth - mean) / half if half > 0 else math.inf if truth != mean else 0.0
    return JudgedItem(said.created, low <= truth <= high, float(said.level), said.defer, far)


@dataclass(frozen=True)
class Period:
    """Judged predictions of a span of time: how many, the share that was kept, and what was promised."""

    start: float
    end: float
    count: int
    share: float
    promised: float

    @property
    def middle(self) -> float:
        """Of the span."""
        return (self.start + self.end) / 2


def periods(found: Sequence[JudgedItem], *, most: int = 12, fewest: int = 10) -> list[Period]:
    """Judged predictions in groups of equal size, in order of time: every share is as sure as the others.

    Args:
        found: in order of time.
        most: groups at most.
        fewest: predictions in a group, if there are so many at all.
    """
    groups = max(1, min(most, len(found) // fewest))
    made = []
    for part in np.array_split(np.arange(len(found)), groups):
        own = [found[place] for place in part.tolist()]
        if own:
            kept = sum(one.kept for one in own) / len(own)
            promised = sum(one.promised for one in own) / len(own)
            made.append(Period(own[0].at, own[-1].at, len(own), kept, promised))
    return made


def share_interval(kept: int, count: int) -> tuple[float, float]:
    """Where a probability lies, with 95 %, of which `kept` of `count` were seen (Wilson's interval).

    >>> low, high = share_interval(9, 10)
    >>> round(low, 3), round(high, 3)
    (0.596, 0.982)
    """
    if not count:
        return 0.0, 1.0
    z = 1.959963984540054
    share, scale = kept / count, 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, eq=False)
class PromiseCurve:
    """A calibration curve, as `plots.plot_reliability` draws it."""

    confidence: Array
    accuracy: Array
    count: Array
    edges: Array


def calibration_of(found: Sequence[JudgedItem]) -> PromiseCurve:
    """Confidence and accuracy, bin by bin; for numbers, level and coverage of ten intervals.

    Intervals of other levels than the promised one are those of a normal distribution of the same width.

    Args:
        found: judged predictions, of one kind.
    """
    if found and not math.isnan(found[0].far):
        return _coverage_curve(found)
    prob = np.array([one.promised for one in found])
    kept = np.array([one.kept for one in found], dtype=np.float64)
    place = np.clip(np.digitize(prob, _EDGES[1:-1]), 0, len(_EDGES) - 2)
    count = np.bincount(place, minlength=len(_EDGES) - 1).astype(np.float64)
    size = np.where(count > 0, count, np.nan)
    confidence = np.bincount(place, prob, minlength=len(count)) / size
    return PromiseCurve(confidence, np.bincount(place, kept, minlength=len(count)) / size, count, _EDGES)


def _coverage_curve(found: Sequence[JudgedItem]) -> PromiseCurve:
    from scipy.stats import norm

    promised = np.array([one.promised for one in found])
    z = np.array([one.far for one in found]) * norm.ppf((1 + promised) / 2)
    observed = np.array([float(np.mean(z <= norm.ppf((1 + level) / 2))) for level in _LEVELS])
    edges = np.concatenate([[0.0], (_LEVELS[1:] + _LEVELS[:-1]) / 2, [1.0]])
    return PromiseCurve(_LEVELS, observed, np.full(len(_LEVELS), float(len(found))), edges)


@dataclass(frozen=True)
class Agreement:
    """How often people agree: items with several labels, those where all say the same, and a number's gap."""

    items: int
    agreeing: int
    pairs: Mapping[tuple[str, str], int]  #: labels that were given to the same item, and how often


def agreement(items: Iterable[Item]) -> Agreement:
    """How often people agree about items with several labels."""
    count = same = 0
    pairs: Counter[tuple[str, str]] = Counter()
    for item in items:
        values = [label.value for label in item.labels if not label.skipped]
        if len(values) < 2:
            continue
        count += 1
        same += not item.disagreement
        for first, second in pairwise(values):
            if first != second and isinstance(first, str) and isinstance(second, str):
                low, high = sorted((first, second))
                pairs[low, high] += 1
    return Agreement(count, same, dict(pairs.most_common(5)))


@dataclass(frozen=True)
class Drift:
    """How far the latest values of a column are from the first ones.

    Attributes:
        distance: largest difference of distribution functions for numbers, of shares (half the sum of
            absolute differences) for texts: 0 to 1.
        chance: what chance alone would exceed in 5 % of cases.
    """

    name: str
    distance: float
    chance: float

    @property
    def is_drift(self) -> bool:
        """Whether it is more than chance."""
        return self.distance > self.chance


def drift_of(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], *, most: int = 10
) -> list[Drift]:
    """The columns that have moved most, by how far they are beyond chance.

    With several columns the 5 % are shared among them (Bonferroni), so that all together cry wolf in one case
    of twenty.

    Args:
        before: rows, cells by name.
        after: rows.
        most: columns at most.
    """
    if len(before) < 10 or len(after) < 10:
        return []
    names = list(dict.fromkeys(name for row in (*before[:50], *after[:50]) for name in row))
    found = []
    for name in names:
        old, new = ([row.get(name) for row in rows] for rows in (before, after))
        numbers = [
            np.array([v for v in part if isinstance(v, int | float) and not isinstance(v, bool)], float)
            for part in (old, new)
        ]
        if min(len(numbers[0]) / len(old), len(numbers[1]) / len(new)) > 0.5:
            found.append(_moved_numbers(name, numbers[0], numbers[1], tests=len(names)))
        elif not any(isinstance(value, list | dict) for value in (*old, *new)):
            found.append(_moved_texts(name, old, new, tests=len(names)))
    return sorted(found, key=lambda one: one.chance - one.distance)[:most]


def _moved_numbers(name: str, old: Array, new: Array, tests: int) -> Drift:
    both = np.sort(np.concatenate([old, new]))
    steps = [np.searchsorted(np.sort(part), both, side="right") / len(part) for part in (old, new)]
    scale = math.sqrt((len(old) + len(new)) / (len(old) * len(new)))
    # The limit law of Kolmogorov and Smirnov, its tail 2 exp(-2 x^2).
    chance = scale * math.sqrt(-0.5 * math.log(0.05 / tests / 2))
    return Drift(name, float(np.abs(steps[0] - steps[1]).max()), min(1.0, chance))


def _moved_texts(name: str, old: Sequence[Any], new: Sequence[Any], tests: int) -> Drift:
    from scipy.stats import chi2

    counts = [Counter(map(str, part)) for part in (old, new)]
    kinds = [kind for kind, _ in (counts[0] + counts[1]).most_common(50)]
    table = np.array([[count[kind] for kind in kinds] for count in counts], dtype=np.float64)
    table = np.column_stack([table, [len(old) - table[0].sum(), len(new) - table[1].sum()]])
    table = table[:, table.sum(0) > 0]
    shares = table / table.sum(1, keepdims=True)
    distance = float(np.abs(shares[0] - shares[1]).sum() / 2)
    # By Cauchy and Schwarz |p - q|_1 is at most the root of the chi-squared statistic times 1/n + 1/m.
    scale = 1 / len(old) + 1 / len(new)
    chance = 0.5 * math.sqrt(scale * float(chi2.ppf(1 - 0.05 / tests, max(1, table.shape[1] - 1))))
    return Drift(name, distance, min(1.0, chance))
