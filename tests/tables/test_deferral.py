"""Deferral and intervals: thresholds that keep their promise on rows that are new."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bayesdrop.tables import Column, Rule, Schema
from bayesdrop.tables.deferral import cross_checked, find_deferral, outcome
from bayesdrop.tables.judge import Judged, measures, worst_slices


def test_a_share_is_kept_on_new_rows() -> None:
    source = np.random.default_rng(0)
    rule = Rule(share=0.1).for_task("regression")
    shares = []
    for _ in range(400):
        scores = source.gamma(2.0, size=150)
        found = find_deferral(rule, {"std": scores[:50]}, scores[:50], root=True)
        shares.append(found({"std": scores[50:]}).mean())
    # Beta(46, 5) over calibration sets: its mean is 46 / 51.
    error = np.std(shares) / 20
    assert abs(np.mean(shares) - 5 / 51) < 5 * error
    assert np.mean(shares) < 0.1 + 5 * error


def test_an_error_is_reached_with_as_few_rows_as_possible() -> None:
    score = np.arange(100.0)
    loss = (score >= 90).astype(float)
    rule = Rule(error=0.03).for_task("classification")
    found = find_deferral(rule, {"entropy": score}, loss, root=False)
    # 90 rows without a fault, and k more with one each: (k + 1) / (91 + k) <= 0.03 gives k = 1.
    assert found.threshold == 90
    result = outcome(found({"entropy": score}), loss, root=False)
    assert (result.deferred, result.error) == (9, 0.1)
    assert result.error_kept == pytest.approx(1 / 91)


def test_rows_of_one_score_go_together() -> None:
    score = np.repeat([1.0, 2.0], 50)
    loss = np.concatenate([np.zeros(50), np.ones(5), np.zeros(45)])
    found = find_deferral(Rule(error=0.03).for_task("classification"), {"entropy": score}, loss, root=False)
    assert found.threshold == 1.0


def test_what_cannot_be_reached_hands_everything_over() -> None:
    score, loss = np.arange(50.0), np.full(50, 4.0)
    found = find_deferral(Rule(error=1.0).for_task("regression"), {"std": score}, loss, root=True)
    assert found.threshold == -math.inf
    assert found({"std": score}).all()
    assert "all rows go" in str(found)
    result = cross_checked(found.rule, {"std": score}, loss, root=True)
    assert result.deferred == 50
    assert math.isnan(result.error_kept)
    enough = find_deferral(Rule(error=2.0).for_task("regression"), {"std": score}, loss, root=True)
    assert not enough({"std": score}).any()


def test_rules_that_make_no_sense_are_refused() -> None:
    for rule, words in (
        ({"share": 0.1, "error": 0.1}, "not both"),
        ({"share": 1.0}, "share"),
        ({"error": -1.0}, "error"),
    ):
        with pytest.raises(ValueError, match=words):
            Rule(**rule)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one of entropy"):
        Rule(by="std").for_task("classification")
    assert Rule().for_task("classification") == Rule(0.05, None, "entropy")


def test_measures_are_those_of_a_gaussian_that_is_right() -> None:
    source = np.random.default_rng(0)
    target = source.normal(size=4000)
    from scipy.stats import norm

    ones = np.ones(4000)
    scores = {"mean": 0 * ones, "std": ones, "lower": -1.645 * ones, "upper": 1.645 * ones}
    judged = Judged(target, scores, norm.logpdf(target), norm.cdf(target))
    found = measures(judged, 0.9)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(target**2)))
    assert abs(found["coverage"] - 0.9) < 5 * math.sqrt(0.09 / 4000)
    assert found["calibration_error"] < 5 * 0.5 / math.sqrt(4000)
    assert found["r2"] == pytest.approx(0, abs=0.01)


def test_the_slice_that_was_spoiled_is_the_worst() -> None:
    source = np.random.default_rng(0)
    kind = source.choice(["a", "b", "c"], 600)
    target = source.normal(size=600) * np.where(kind == "b", 3, 1)
    ones = np.ones(600)
    scores = {"mean": 0 * ones, "std": ones, "lower": -2 * ones, "upper": 2 * ones}
    judged = Judged(target, scores, ones, ones / 2)
    frame = pd.DataFrame({"size": source.normal(size=600), "kind": kind})
    columns = (Column("size", "numeric"), Column("kind", "category", categories=("a", "b", "c")))
    worst = worst_slices(judged, frame, Schema("y", "regression", columns), 0.95)
    assert worst[0].name == "kind = b"
    assert worst[0].z < -5
    assert worst[0].rows == int((kind == "b").sum())
    assert [part for part in worst if part.name.startswith("size")]
