"""The estimators keep scikit-learn's own rules."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesdrop.linear import BayesianDropoutClassifier, BayesianDropoutRegression

ESTIMATORS = [
    BayesianDropoutRegression(),
    BayesianDropoutClassifier(),
    BayesianDropoutClassifier(method="logistic"),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_they_work_in_pipelines_and_searches() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, 2.0, 0.0] + 0.1 * rng.normal(size=40)
    search = GridSearchCV(BayesianDropoutRegression(), {"f": [0.0, 0.5], "lambda0": [1e-3, 1.0]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.9
    model = make_pipeline(StandardScaler(), BayesianDropoutClassifier(method="logistic"))
    assert model.fit(X, y > 0).score(X, y > 0) > 0.9
