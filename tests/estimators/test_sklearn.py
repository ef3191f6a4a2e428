"""The estimators keep scikit-learn's contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesdrop.estimators import DropoutClassifier, DropoutRegressor

SMALL: dict[str, Any] = {
    "preset": "quick",
    "hidden": (16,),
    "epochs": 25,
    "batch_size": 32,
    "num_draws": 8,
    "lr": 2e-2,
    "random_state": 0,
}
WHY = "training by minibatches: a row twice and a row of weight two are not the same random numbers"
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": WHY}


@parametrize_with_checks(
    [DropoutRegressor(**SMALL), DropoutClassifier(**SMALL)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_finds_nothing_wrong(estimator: BaseEstimator, check: Callable[..., None]) -> None:
    check(estimator)
