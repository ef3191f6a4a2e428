"""What is predicted: three predictive distributions, intervals, draws of the posterior."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from bayesdrop.linear import BayesianDropoutRegression

DRAWS = 20_000


def fitted(*, n: int = 14, p: int = 3, **options: object) -> tuple[BayesianDropoutRegression, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * np.linspace(0.5, 2.0, p) + 1.0
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    return BayesianDropoutRegression(**options).fit(X, y), rng.normal(size=(4, p)) + 1.0


CASES = {
    "primal": {"f": 0.3, "lambda0": 0.5},
    "dual": {"f": 0.3, "lambda0": 0.5, "solver": "dual"},
    "more features than rows": {"f": 0.3, "lambda0": 0.5, "p": 20},
    "no intercept": {"f": 0.3, "lambda0": 0.5, "fit_intercept": False},
    "rate per feature": {"f": np.array([0.0, 0.3, 0.6]), "lambda0": 0.5},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_draws_have_the_moments_of_the_posterior(options: dict[str, object]) -> None:
    model, _ = fitted(**options)
    draws = model.sample_posterior(DRAWS, seed=1)
    error = draws.weights.std(0) / np.sqrt(DRAWS)
    assert (np.abs(draws.weights.mean(0) - model.weights_) <= 5 * error).all()
    square = np.square(draws.weights - model.weights_)
    assert (np.abs(square.mean(0) - model.covariance("diagonal")) <= 5 * square.std(0) / np.sqrt(DRAWS)).all()
    exact = model.noise_posterior()
    assert scipy.stats.kstest(draws.noise_variance, exact.cdf).pvalue > 1e-5


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_prediction_is_that_of_draws_and_noise(options: dict[str, object]) -> None:
    model, X = fitted(**options)
    draws = model.sample_posterior(DRAWS, seed=2)
    keep = 1 - np.broadcast_to(model.f_, X.shape[1])
    noise = np.random.default_rng(3).normal(size=(DRAWS, len(X))) * np.sqrt(draws.noise_variance)[:, None]
    y = draws.intercept[:, None] + (keep * draws.weights) @ X.T + noise
    location, scale, freedom = model.predict_student(X)
    for column in range(len(X)):
        t = scipy.stats.t(freedom, location[column], scale[column])
        assert scipy.stats.kstest(y[:, column], t.cdf).pvalue > 1e-5
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, location)
    np.testing.assert_allclose(std, [t.std() for t in (scipy.stats.t(freedom, 0, s) for s in scale)])


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_dropped_prediction_is_that_of_draws_masks_and_noise(options: dict[str, object]) -> None:
    model, X = fitted(**options)
    draws = model.sample_posterior(DRAWS, seed=4)
    rng = np.random.default_rng(5)
    f = np.broadcast_to(model.f_, X.shape[1])
    centre = np.zeros(X.shape[1]) if model._mean is None else model._mean
    # The value of a dropped feature is its mean, which the intercept of a draw stands at.
    base = draws.intercept + draws.weights @ (centre * (1 - f))
    masks = rng.random((DRAWS, len(X), X.shape[1])) >= f
    y = base[:, None] + np.einsum("tnp,tp->tn", masks * (X - centre), draws.weights)
    y += rng.normal(size=y.shape) * np.sqrt(draws.noise_variance)[:, None]
    mean, std = model.predict(X, return_std=True, predictive="dropped")
    np.testing.assert_allclose(mean, model.predict(X))
    assert (np.abs(y.mean(0) - mean) <= 5 * y.std(0) / np.sqrt(DRAWS)).all()
    square = np.square(y - mean)
    assert (np.abs(square.mean(0) - std**2) <= 5 * square.std(0) / np.sqrt(DRAWS)).all()


def test_the_undropped_prediction_is_the_one_without_the_factor() -> None:
    model, X = fitted(f=0.3, lambda0=0.5, fit_intercept=False)
    n, residual = 14, 2 * model.sigma2_scale_
    inverse = model.covariance() / model.posterior_.noise_variance[0]
    location, scale, freedom = model.predict_student(X, predictive="undropped")
    assert freedom == n
    np.testing.assert_allclose(location, X @ model.weights_)
    np.testing.assert_allclose(scale**2, residual / n * (1 + np.einsum("np,pq,nq->n", X, inverse, X)))
    shifted, X = fitted(f=0.3, lambda0=0.5)
    expected = shifted.posterior_.centre[0] + (X - shifted._mean) @ shifted.weights_
    np.testing.assert_allclose(shifted.predict(X, predictive="undropped"), expected)


@pytest.mark.parametrize("kind", ["scaled", "undropped"])
def test_an_interval_holds_its_share_of_the_student_density(kind: str) -> None:
    model, X = fitted(f=0.3)
    lower, upper = model.predict_interval(X, 0.8, predictive=kind)
    location, scale, freedom = model.predict_student(X, predictive=kind)
    t = scipy.stats.t(freedom, location, scale)
    np.testing.assert_allclose(t.cdf(upper) - t.cdf(lower), 0.8)
    np.testing.assert_allclose(t.cdf(lower), 0.1)


def test_intervals_cover_as_many_targets_as_they_say() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(200):
        w = rng.normal(size=3)
        X = rng.normal(size=(21, 3))
        y = X @ w + rng.normal(size=21)
        # Weights drawn from the prior and nothing dropped: the model is right, and so is its level.
        model = BayesianDropoutRegression(f=0.0, lambda0=1.0, fit_intercept=False).fit(X[:20], y[:20])
        lower, upper = model.predict_interval(X[20:], 0.9)
        inside.append(bool(lower[0] <= y[20] <= upper[0]))
    assert abs(np.mean(inside) - 0.9) <= 5 * np.sqrt(0.9 * 0.1 / 200)


def test_draws_repeat_with_their_seed() -> None:
    model, _ = fitted()
    again = model.sample_posterior(3, seed=1).weights
    assert (model.sample_posterior(3, seed=1).weights == again).all()
    assert (model.sample_posterior(3, seed=2).weights != again).all()


def test_too_few_rows_have_an_infinite_variance_and_still_an_interval() -> None:
    X, y = np.array([[1.0], [2.0]]), np.array([1.0, 0.5])
    model = BayesianDropoutRegression(f=0.2, lambda0=1.0, fit_intercept=False).fit(X, y)
    assert np.isinf(model.predict(X, return_std=True)[1]).all()
    lower, upper = model.predict_interval(X)
    assert np.isfinite(lower).all()
    assert (upper > lower).all()
    with pytest.raises(ValueError, match="finite variance"):
        model.predict_interval(X, predictive="dropped")
