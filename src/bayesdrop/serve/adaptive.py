"""Adaptive: intervals of answers that are widened or narrowed so that they keep their promise under drift."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesdrop.calibration import AdaptiveThreshold
from bayesdrop.errors import require
from bayesdrop.serve.store.history import ServedHistory

if TYPE_CHECKING:
    from bayesdrop.serve.store import Item, SavedPrediction, Store

__all__ = ["Adaptive", "stretched", "stretched_as"]

#: scores that a right model would have, which a stream begins with
_START = 200


@dataclass(frozen=True)
class _State:
    """Thresholds by (model, level, group), and what they were made of."""

    mark: tuple[int, int]
    thresholds: Mapping[tuple[int, float, str], AdaptiveThreshold]


class Adaptive:
    """The factor by which intervals are stretched, learned from labels of items that were picked at random.

    A score is how far the truth was from the mean, in parts of the way from the mean to the end of the
    model's own interval on that side; of several outputs the largest, so that all are covered at once. The
    factor is the threshold of `AdaptiveThreshold`, which begins with the scores that a right model would have
    (so that the factor begins at about 1), and moves with every label. It is learned anew from the store
    whenever a label was given or taken back: nothing is kept elsewhere, so that nothing can be lost or differ
    between processes.

    Args:
        store: with labels.
        group: a column whose values keep the promise each for itself; None for all together.
        rate: how far a label moves the level.
        window: scores that are remembered.
    """

    def __init__(
        self, store: Store, *, group: str | None = None, rate: float = 0.02, window: int = 500
    ) -> None:
        self._store, self._history = store, ServedHistory(store.database)
        self._group, self._rate, self._window = group, rate, window
        self._lock = threading.Lock()
        self._state = _State((-1, -1), {})

    def refresh(self) -> bool:
        """Learn from the labels that are there; whether they were others than before."""
        with self._lock:
            mark = self._history.label_mark()
            if mark == self._state.mark:
                return False
            thresholds: dict[tuple[int, float, str], AdaptiveThreshold] = {}
            judged = [item for item in self._store.overview.labelled(random=True) if item.agreed is not None]
            for item in sorted(judged, key=lambda one: one.labels[-1].id):
                self._learn(item, thresholds)
            self._state = _State(mark, thresholds)
            return True

    def _learn(self, item: Item, thresholds: dict[tuple[int, float, str], AdaptiveThreshold]) -> None:
        said = item.predictions[0]
        found = _score(said, item.agreed)
        if found is None or said.level is None:
            return
        score, covered = found
        key = (said.model_id, said.level, self._name(item.data))
        if key not in thresholds:
            thresholds[key] = self._fresh(said.level)
        thresholds[key].observe(score, covered=covered)

    def _fresh(self, level: float) -> AdaptiveThreshold:
        law = require("scipy.stats", extra="sklearn", owner="serve --adaptive").norm
        end = float(law.ppf((1 + level) / 2))
        scores = [float(law.ppf(0.5 + 0.5 * k / (_START + 1))) / end for k in range(1, _START + 1)]
        # Spread over the window, so that those that are forgotten first are no smaller than the others.
        mixed = [scores[(7 * place) % _START] for place in range(_START)]
        return AdaptiveThreshold(level, rate=self._rate, window=self._window, scores=mixed)

    def factor(self, model_id: int, level: float, row: Mapping[str, Any]) -> float:
        """By how much the interval of a row is stretched now; it may be infinite, and is never below 0."""
        found = self._state.thresholds.get((model_id, level, self._name(row)))
        return max(0.0, (self._fresh(level) if found is None else found).value)

    def told(self) -> list[tuple[str, str]]:
        """For people: groups and factors."""
        return [
            (f", {key[2]}" if key[2] else "", f"{one.value:.2f}" if math.isfinite(one.value) else "no bound")
            for key, one in sorted(self._state.thresholds.items(), key=lambda pair: str(pair[0]))
        ]

    def _name(self, row: Mapping[str, Any]) -> str:
        return "" if self._group is None else str(row.get(self._group))[:100]


def stretched(answer: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """An answer whose interval is stretched from its mean; the model's own ends are kept beside it.

    Args:
        answer: with mean, lower and upper: numbers, or lists of them.
        factor: infinite for ends without a bound, which JSON has as null.
    """
    if any(answer.get(name) is None for name in ("mean", "lower", "upper")):
        return dict(answer)

    def end(mean: Any, own: Any) -> Any:
        if isinstance(mean, list):
            return [end(one, other) for one, other in zip(mean, own, strict=True)]
        return None if own is None or mean is None or math.isinf(factor) else mean + factor * (own - mean)

    mean = answer["mean"]
    ends = {name: end(mean, answer[name]) for name in ("lower", "upper")}
    own = {f"model_{name}": answer[name] for name in ("lower", "upper")}
    return {**answer, **ends, **own, "stretched": None if math.isinf(factor) else factor}


def stretched_as(given: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of the model alone, stretched as much as one that was given out, if that was."""
    if "stretched" not in given:
        return dict(answer)
    factor = given["stretched"]
    return stretched(answer, math.inf if factor is None else float(factor))


def _score(said: SavedPrediction, truth: Any) -> tuple[float, bool] | None:
    """How far the truth is in parts of the model's own interval, and whether what was given out had it."""
    answer = said.answer
    names = ("mean", "model_lower", "model_upper") if "model_lower" in answer else ("mean", "lower", "upper")
    mean, low, high = (_listed(answer.get(name)) for name in names)
    truths, ends = _listed(truth), [_listed(answer.get(name)) for name in ("lower", "upper")]
    if mean is None or low is None or high is None or truths is None or len(truths) != len(mean):
        return None
    scores = []
    for one, middle, first, last in zip(truths, mean, low, high, strict=True):
        way = last - middle if one >= middle else middle - first
        scores.append(abs(one - middle) / way if way > 0 else 0.0 if one == middle else math.inf)
    given = list(
        zip(truths, ends[0] or [-math.inf] * len(truths), ends[1] or [math.inf] * len(truths), strict=True)
    )
    return max(scores), all(first <= one <= last for one, first, last in given)


def _listed(value: Any) -> list[float] | None:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return None
    return [float(one) for one in values]
