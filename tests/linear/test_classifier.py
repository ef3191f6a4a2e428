"""Classifiers: the sign of a regression, and logistic regression against enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import expit, log_expit
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bayesdrop.linear import BayesianDropoutClassifier, BayesianDropoutRegression
from bayesdrop.linear.logistic import LogisticObjective
from bayesdrop.linear.margin import expected_log_sigmoid, expected_sigmoid
from bayesdrop.linear.rows import Rows


def data(n: int = 30, p: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.5
    return X, np.where(X @ rng.normal(size=p) + rng.normal(size=n) > 0, 1, -1)


def test_the_sign_classifier_is_the_sign_of_the_regression() -> None:
    X, y = data()
    model = BayesianDropoutClassifier(f=0.4, lambda0=2.0).fit(X, np.where(y > 0, "up", "down"))
    regression = BayesianDropoutRegression(f=0.4, lambda0=2.0).fit(X, y.astype(float))
    np.testing.assert_allclose(model.decision_function(X), regression.predict(X))
    assert (model.predict(X) == np.where(regression.predict(X) > 0, "up", "down")).all()
    location, scale, freedom = regression.predict_student(X)
    from scipy.stats import t

    np.testing.assert_allclose(model.predict_proba(X)[:, 1], t.cdf(location / scale, freedom))
    assert list(model.classes_) == ["down", "up"]


def test_the_sign_classifier_chooses_its_rate() -> None:
    X, y = data(n=60)
    model = BayesianDropoutClassifier(f="cv", lambda0="cv").fit(X, y)
    assert 0 <= model.f_ < 1
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("method", ["sign", "logistic"])
def test_three_classes_are_three_fits(method: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=90)
    X = rng.normal(size=(90, 2)) + 2.5 * np.array([[1, 0], [-1, 0], [0, 1.5]])[labels]
    model = BayesianDropoutClassifier(method=method, f=0.1, lambda0=0.1).fit(X, labels)
    assert model.score(X, labels) > 0.85
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert (proba.argmax(1) == model.predict(X)).all()
    one = BayesianDropoutClassifier(method=method, f=0.1, lambda0=0.1).fit(X, labels == 2)
    np.testing.assert_allclose(model.coef_[2], one.coef_[0], rtol=1e-5)


def test_without_dropout_it_is_logistic_regression() -> None:
    X, y = data(n=80)
    for intercept in (False, True):
        ours = BayesianDropoutClassifier(
            method="logistic", f=0.0, lambda0=0.7, fit_intercept=intercept, tol=1e-8
        )
        theirs = LogisticRegression(C=1 / 0.7, fit_intercept=intercept, tol=1e-10, max_iter=1000)
        weights = np.random.default_rng(1).uniform(0, 2, size=80)
        ours.fit(X, y, sample_weight=weights)
        theirs.fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.0), (-1.0, 0.5), (2.0, 3.0), (-4.0, 30.0)])
def test_the_expectation_is_the_integral(mean: float, std: float) -> None:
    found = expected_log_sigmoid(np.array([mean]), np.array([std**2]))
    chance = expected_sigmoid(np.array([mean]), np.array([std**2]))[0]
    if std == 0:
        assert found.value[0] == pytest.approx(log_expit(mean))
        assert chance == pytest.approx(expit(mean))
        return

    def integral(g: object) -> float:
        value, _ = quad(lambda e: g(mean + std * e) * norm.pdf(e), -9, 9, points=[-mean / std], limit=400)  # type: ignore[operator]
        return float(value)

    def slope(m: float) -> float:
        return float(expit(m) * expit(-m))

    assert found.value[0] == pytest.approx(integral(log_expit), rel=1e-8)
    assert found.first[0] == pytest.approx(integral(lambda m: expit(-m)), rel=1e-8)
    assert found.second[0] == pytest.approx(integral(lambda m: -slope(m)), rel=1e-7)
    third = integral(lambda m: -slope(m) * (1 - 2 * expit(m)))
    assert found.third[0] == pytest.approx(third, rel=1e-6, abs=1e-10)
    fourth = integral(lambda m: -slope(m) * (1 - 6 * slope(m)))
    assert found.fourth[0] == pytest.approx(fourth, rel=1e-6, abs=1e-10)
    assert chance == pytest.approx(integral(expit), rel=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
def test_derivatives_of_the_objective_are_its_differences(sparse: bool) -> None:
    X, y = data(n=12, p=3)
    f = np.array([0.0, 0.3, 0.7])
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=12)
    rows = Rows(scipy.sparse.csr_array(X) if sparse else X, mean=X.mean(0))
    objective = LogisticObjective(rows, y.astype(float), weights, f, 0.4, True)
    point = np.array([0.5, -1.0, 2.0, 0.3])
    np.testing.assert_allclose(
        objective.gradient(point), approx_fprime(point, objective.value, 1e-7), rtol=1e-4, atol=1e-5
    )
    second = np.stack([objective.second_times(point, e) for e in np.eye(4)])
    differences = approx_fprime(point, objective.gradient, 1e-7)
    np.testing.assert_allclose(second, differences, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, second.T, atol=1e-10)


def enumerated(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, f: float, lambda0: float) -> float:
    total = -0.5 * lambda0 * float(w @ w)
    for mask in product((0.0, 1.0), repeat=len(w)):
        chance = np.prod(np.where(np.array(mask) > 0, 1 - f, f))
        total += chance * float(log_expit(y * (b + X @ (np.array(mask) * w))).sum())
    return total


def test_the_enumerated_mode_is_the_mode_of_the_enumerated_posterior() -> None:
    X, y = data()
    f, lambda0 = 0.4, 0.6
    model = BayesianDropoutClassifier(
        method="logistic", f=f, lambda0=lambda0, expectation="enumerate", tol=1e-9
    ).fit(X, y)
    centred = X - X.mean(0)
    mode = model.laplace_[0].mode
    np.testing.assert_allclose(model.weights_[0], mode[:-1])

    def value(point: np.ndarray) -> float:
        return enumerated(centred, y, point[:-1], point[-1], f, lambda0)

    np.testing.assert_allclose(approx_fprime(mode, value, 1e-6), 0.0, atol=1e-3)
    rng = np.random.default_rng(0)
    assert all(value(mode) > value(mode + 0.1 * rng.normal(size=5)) for _ in range(20))
    # Laplace: minus the second derivative, of which the weights' block is inverted with the intercept free.
    second = np.stack(
        [
            [
                (value(mode + h * (a + b)) - value(mode + h * a) - value(mode + h * b) + value(mode)) / h**2
                for a in np.eye(5)
            ]
            for b in np.eye(5)
            for h in [1e-4]
        ]
    )
    np.testing.assert_allclose(model.laplace_[0].covariance(), np.linalg.inv(-second)[:4, :4], rtol=2e-3)
    keep = np.full(4, 1 - f)
    a = np.column_stack([keep * centred, np.ones(len(y))])
    np.testing.assert_allclose(
        model.laplace_[0].variance(Rows(centred), keep),
        np.einsum("np,pq,nq->n", a, np.linalg.inv(-second), a),
        rtol=2e-3,
    )


def test_the_gaussian_margin_is_close_to_enumeration_and_closer_with_more_features() -> None:
    gaps = []
    for p in (2, 10):
        X, y = data(n=60, p=p)
        fits = [
            BayesianDropoutClassifier(method="logistic", f=0.3, lambda0=1.0, expectation=expectation).fit(
                X, y
            )
            for expectation in ("enumerate", "gaussian")
        ]
        exact, close = (fit.predict_proba(X)[:, 1] for fit in fits)
        gaps.append(np.abs(exact - close).mean())
    assert gaps[1] < gaps[0] < 0.02


@pytest.mark.parametrize("intercept", [False, True])
def test_few_rows_and_many_features_have_the_same_posterior_by_either_factorisation(intercept: bool) -> None:
    X, y = data(n=8, p=40)
    model = BayesianDropoutClassifier(method="logistic", f=0.3, lambda0=0.5, fit_intercept=intercept)
    dense = model.fit(X, y).laplace_[0]
    assert dense.dual
    w, keep, new = dense.mode[:-1], np.full(40, 0.7), data(n=5, p=40, seed=1)[0]
    second = np.stack([dense.objective.second_times(dense.mode, e) for e in np.eye(41)])
    inverse = np.linalg.inv(second)
    np.testing.assert_allclose(dense.covariance(), inverse[:40, :40], atol=1e-8)
    rows = Rows(new, mean=model._mean)
    a = np.column_stack([keep * rows.X, np.full(5, float(intercept))])
    np.testing.assert_allclose(dense.variance(rows, keep), np.einsum("np,pq,nq->n", a, inverse, a), rtol=1e-7)
    sparse = BayesianDropoutClassifier(method="logistic", f=0.3, lambda0=0.5, fit_intercept=intercept)
    sparse.fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.weights_[0], w, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(
        sparse.predict_proba(scipy.sparse.csr_matrix(new)), model.predict_proba(new), rtol=1e-6
    )


def test_a_feature_that_never_varies_has_the_weight_zero() -> None:
    X, y = data()
    X[:, 2] = 0.0
    model = BayesianDropoutClassifier(method="logistic", f=0.3, lambda0=0.0).fit(X, y)
    rest = BayesianDropoutClassifier(method="logistic", f=0.3, lambda0=0.0).fit(X[:, [0, 1, 3]], y)
    assert model.weights_[0, 2] == 0
    np.testing.assert_allclose(model.predict_proba(X), rest.predict_proba(X[:, [0, 1, 3]]))


def test_dropout_holds_separable_classes_together() -> None:
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    y = [0, 0, 1, 1]
    # Nothing but dropout keeps the weight of separable classes finite, and here a mask leaves no margin.
    model = BayesianDropoutClassifier(method="logistic", f=0.5, lambda0=0.0, fit_intercept=False).fit(X, y)
    assert 0 < model.weights_[0, 0] < 100
    with pytest.warns(ConvergenceWarning, match="Newton's method stopped"):
        BayesianDropoutClassifier(
            method="logistic", f=0.0, lambda0=0.0, fit_intercept=False, tol=1e-12, max_iter=5
        ).fit(X, y)
