"""Baselines: the numbers that scikit-learn itself gives, and sentences that are true."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import balanced_accuracy_score, log_loss, r2_score, root_mean_squared_error

from bayesdrop.tables.baselines import Baseline, compare, fit_baselines
from bayesdrop.tables.rows import TrainingRows


def training(x: np.ndarray, y: np.ndarray) -> TrainingRows:
    return TrainingRows(x, y.astype(np.float64), np.arange(1.0, len(x) + 1), len(x))


def scaled(x: np.ndarray) -> tuple[np.ndarray, object]:
    mean, std = x.mean(0), x.std(0)
    return (x - mean) / std, lambda part: (part - mean) / std


def test_numbers_are_scored_as_scikit_learn_scores_them() -> None:
    x, y = load_diabetes(return_X_y=True)
    z, standardise = scaled(x)
    found = fit_baselines(training(x[:300], y[:300]), x[300:], y[300:], classes=0, standardise=standardise)
    assert [one.name for one in found] == ["mean of the target", "ridge regression", "gradient boosting"]
    middle = np.full(142, y[:300].mean())
    boosted = HistGradientBoostingRegressor(random_state=0).fit(z[:300], y[:300]).predict(z[300:])
    ridge = RidgeCV(np.logspace(-2, 4, 13)).fit(z[:300], y[:300]).predict(z[300:])
    for one, said in zip(found, (middle, ridge, boosted), strict=True):
        assert one.measures["rmse"] == pytest.approx(root_mean_squared_error(y[300:], said), rel=1e-4)
        assert one.measures["r2"] == pytest.approx(r2_score(y[300:], said), abs=1e-3)
        assert one.loss.mean() == pytest.approx(one.measures["rmse"] ** 2)


@pytest.mark.parametrize("unit", [1e-90, 1.0, 1e90])
def test_units_of_the_target_change_nothing_else(unit: float) -> None:
    x, y = load_diabetes(return_X_y=True)
    _, standardise = scaled(x)
    rows = training(x[:100], unit * y[:100])
    found = fit_baselines(rows, x[300:], unit * y[300:], classes=0, standardise=standardise)
    one = fit_baselines(training(x[:100], y[:100]), x[300:], y[300:], classes=0, standardise=standardise)
    for here, there in zip(found, one, strict=True):
        assert here.measures["rmse"] == pytest.approx(unit * there.measures["rmse"], rel=1e-6)


def test_labels_are_scored_as_scikit_learn_scores_them() -> None:
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    z, standardise = scaled(x)
    found = fit_baselines(training(x[:120], y[:120]), x[120:], y[120:], classes=3, standardise=standardise)
    probs = LogisticRegression(max_iter=300).fit(z[:120], y[:120]).predict_proba(z[120:])
    logistic = found[1].measures
    assert logistic["log_loss"] == pytest.approx(log_loss(y[120:], probs), rel=1e-3)
    assert logistic["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y[120:], probs.argmax(1)))
    shares = np.bincount(y[:120]) / 120
    assert found[0].measures["log_loss"] == pytest.approx(-np.log(shares[y[120:]]).mean(), rel=1e-4)


def test_a_label_that_no_row_had_costs_much_and_is_not_infinite() -> None:
    x = np.linspace(0, 1, 30)[:, None]
    for seen in (np.zeros(30), np.arange(30) % 2):
        found = fit_baselines(
            training(x, seen), x[:3], np.array([0, 1, 2]), classes=3, standardise=lambda part: part
        )
        for one in found:
            assert np.isfinite(one.loss).all()
            assert one.loss[2] > 10


def test_the_sentence_says_who_wins_and_by_how_much() -> None:
    source = np.random.default_rng(0)
    noise = source.normal(size=400) ** 2
    boosting = Baseline("gradient boosting", {"rmse": 1.0}, noise)
    for added, word, better in ((0.5, "loses to gradient boosting", False), (-0.5, "better than", True)):
        loss = noise + added + 0.1 * source.normal(size=400)
        found = compare([boosting], loss, {"rmse": 1.2})
        assert word in found.sentence
        assert (found.z > 0) is better
        gain = noise - loss
        assert found.z == pytest.approx(gain.mean() / (gain.std(ddof=1) / 20))
    same = compare([boosting], noise + 0.1 * source.normal(size=400), {"rmse": 1.0})
    assert "cannot be told apart" in same.sentence
    assert compare([boosting], noise, {"rmse": 1.0}).z == 0
    few = compare([Baseline("ridge regression", {"rmse": 1.0}, np.ones(9))], np.zeros(9), {"rmse": 0.0})
    assert few.verdict == "as good"


def test_the_best_of_three_equals_is_called_better_once_in_forty_times() -> None:
    """Chance alone: the threshold is that of three comparisons, of which the best is picked."""
    source = np.random.default_rng(1)
    worse = 0
    for _ in range(2000):
        losses = 1 + source.normal(size=(4, 60))
        three = [Baseline(str(place), {"rmse": 1.0}, losses[place]) for place in range(3)]
        worse += compare(three, losses[3], {"rmse": 1.0}).verdict == "worse"
    # One way, 1 in 40 at most; t of 59 degrees of freedom has a little more in its tails.
    assert worse / 2000 < 0.03 + 5 * np.sqrt(0.03 * 0.97 / 2000)
