"""The statistics of the dashboard, against truths that are known beforehand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bayesdrop.plots import binomial_band, new_figure, plot_promise
from bayesdrop.serve.promises import agreement, calibration_of, drift_of, judged, periods, share_interval
from bayesdrop.serve.store import Item, Label, SavedPrediction


def item(answer: dict[str, Any], *values: Any, at: float = 0.0, level: float | None = None) -> Item:
    said = SavedPrediction(1, 10, 0, level, answer, 0.5, False, "", at)
    labels = tuple(
        Label(place, "i", place, f"p{place}", value, False, "", 1.0, "desk", at)
        for place, value in enumerate(values)
    )
    return Item("i", "r", 0, None, {}, "done", True, 0.5, 1, at, (said,), labels)


def classes(prob: float, right: bool, at: float) -> Item:
    return item({"label": "a", "probs": [prob, 1 - prob]}, "a" if right else "b", at=at)


def test_predictions_are_judged_by_what_people_agree_on() -> None:
    answer = {"label": "a", "probs": [0.9, 0.1]}
    found = judged([item(answer, "a"), item(answer, "b", "b", "a"), item(answer, "a", "b"), item(answer)])
    assert [(one.kept, one.promised) for one in found] == [(True, 0.9), (False, 0.9)]


def test_numbers_are_judged_by_their_interval_and_a_missing_end_has_no_bound() -> None:
    whole = {"mean": 10.0, "lower": 8.0, "upper": 14.0}
    open_ended = {"mean": 10.0, "lower": 8.0, "upper": None}
    found = judged(
        [
            item(answer, value, level=0.9)
            for answer, value in ((whole, 12), (whole, 6), (whole, 14), (open_ended, 1e9))
        ]
    )
    assert [one.kept for one in found] == [True, False, True, True]
    assert [one.far for one in found] == [0.5, 2.0, 1.0, 0.0]


def test_periods_have_all_predictions_once_in_order() -> None:
    found = judged([classes(0.8, place % 5 != 0, at=float(place)) for place in range(103)])
    parts = periods(found)
    assert sum(part.count for part in parts) == 103
    assert max(part.count for part in parts) - min(part.count for part in parts) <= 1
    assert all(first.end < second.start for first, second in pairwise(parts))
    assert sum(part.share * part.count for part in parts) == pytest.approx(sum(one.kept for one in found))


def test_the_band_has_at_least_its_chance_and_not_much_more() -> None:
    for promised, count in ((0.9, 50), (0.5, 31), (0.99, 200)):
        low, high = binomial_band([promised], [count])
        law = stats.binom(count, promised)
        first, last = round(low[0] * count), round(high[0] * count)
        assert law.cdf(last) - law.cdf(first - 1) >= 0.95
        assert law.cdf(last - 1) - law.cdf(first) < 0.95
    assert [end.tolist() for end in binomial_band([0.9], [0])] == [[0.0], [1.0]]


def test_a_broken_promise_is_marked_and_a_kept_one_is_not() -> None:
    for share, marked in ((0.88, False), (0.6, True)):
        ax = new_figure(3, 2).subplots()
        plot_promise(ax, [0, 1], [share, math.nan], [0.9, 0.9], [50, 0], label="accuracy")
        assert ("not by chance" in ax.get_legend_handles_labels()[1]) == marked


def test_the_interval_of_a_share_is_wilsons() -> None:
    for kept, count in ((0, 5), (17, 20), (50, 50)):
        found = stats.binomtest(kept, count).proportion_ci(0.95, method="wilson")
        assert share_interval(kept, count) == pytest.approx((found.low, found.high))


def test_the_calibration_curve_of_a_calibrated_model_is_the_diagonal() -> None:
    source = np.random.default_rng(0)
    probs = source.uniform(0.5, 1, 4000)
    curve = calibration_of(
        judged([classes(prob, source.random() < prob, at=float(n)) for n, prob in enumerate(probs)])
    )
    filled = curve.count > 0
    error = 5 * np.sqrt(0.25 / curve.count[filled])
    assert (np.abs(curve.accuracy[filled] - curve.confidence[filled]) <= error).all()
    numbers = [
        item({"mean": 0.0, "lower": -1.6449, "upper": 1.6449}, float(value), level=0.9)
        for value in source.normal(size=3000)
    ]
    curve = calibration_of(judged(numbers))
    assert (np.abs(curve.accuracy - curve.confidence) <= 5 * math.sqrt(0.25 / 3000)).all()


def test_drift_is_told_where_there_is_some_and_rarely_where_there_is_none() -> None:
    source = np.random.default_rng(0)

    def rows(count: int, moved: float) -> list[dict[str, Any]]:
        return [
            {
                "moved": float(source.normal(moved)),
                "kind": str(source.choice(["a", "b", "c"], p=[0.5 - moved / 4, 0.3, 0.2 + moved / 4])),
                "still": float(source.normal()),
                "nested": [1, 2],
            }
            for _ in range(count)
        ]

    found = {one.name: one for one in drift_of(rows(400, 0.0), rows(400, 1.0))}
    assert found["moved"].is_drift
    assert found["kind"].is_drift
    assert not found["still"].is_drift
    assert "nested" not in found
    alarms = sum(any(one.is_drift for one in drift_of(rows(60, 0), rows(60, 0))) for _ in range(100))
    assert alarms <= stats.binom(100, 0.05).ppf(0.9999)


def test_distances_of_numbers_are_those_of_kolmogorov_and_smirnov() -> None:
    source = np.random.default_rng(1)
    old, new = source.normal(size=50), source.normal(0.5, size=70)
    (found,) = drift_of([{"x": float(v)} for v in old], [{"x": float(v)} for v in new])
    assert found.distance == pytest.approx(stats.ks_2samp(old, new).statistic)


def test_agreement_counts_items_with_several_labels() -> None:
    answer = {"label": "a", "probs": [1.0]}
    found = agreement(
        [item(answer, "a", "a"), item(answer, "a", "b"), item(answer, "b", "a"), item(answer, "a")]
    )
    assert (found.items, found.agreeing, found.pairs) == (3, 1, {("a", "b"): 2})
