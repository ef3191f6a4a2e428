"""The closed form against enumeration, quadrature and other libraries."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from sklearn.linear_model import Ridge

from bayesdrop.data import load_qspr
from bayesdrop.linear import BayesianDropoutRegression


def problem(n: int = 12, p: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.3, 3.0, size=p)
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


def enumerated_log_likelihood(
    X: np.ndarray, y: np.ndarray, w: np.ndarray, variance: float, f: np.ndarray, weights: np.ndarray
) -> float:
    total = 0.0
    for mask in product((0.0, 1.0), repeat=len(w)):
        chance = np.prod(np.where(np.array(mask) > 0, 1 - f, f))
        each = scipy.stats.norm.logpdf(y, X @ (np.array(mask) * w), np.sqrt(variance))
        total += chance * float(weights @ each)
    return total


@pytest.mark.parametrize("f", [0.3, np.array([0.0, 0.2, 0.5, 0.9])], ids=["one rate", "rate per feature"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_posterior_is_prior_times_exp_of_the_enumerated_log_likelihood(
    f: float | np.ndarray, weighted: bool
) -> None:
    X, y = problem()
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.2, 2.0, size=len(y)) if weighted else np.ones(len(y))
    model = BayesianDropoutRegression(f=f, lambda0=0.7, fit_intercept=False)
    model.fit(X, y, sample_weight=weights if weighted else None)
    count, lambda0 = weights.sum(), 0.7
    precision = np.linalg.inv(model.covariance() / model.posterior_.noise_variance[0])
    differences = []
    for _ in range(5):
        w, variance = rng.normal(size=4), rng.uniform(0.3, 3.0)
        prior = scipy.stats.norm.logpdf(w, 0, np.sqrt(variance / lambda0)).sum() - np.log(variance)
        ours = scipy.stats.multivariate_normal.logpdf(
            w, model.weights_, variance * np.linalg.inv(precision)
        ) + model.noise_posterior().logpdf(variance)
        rates = np.broadcast_to(f, 4)
        differences.append(prior + enumerated_log_likelihood(X, y, w, variance, rates, weights) - ours)
    # The same at every point: the log evidence.
    np.testing.assert_allclose(differences, model.log_evidence_, rtol=1e-9)
    assert model.sigma2_shape_ == pytest.approx(count / 2)


def test_the_evidence_is_the_integral() -> None:
    X, y = problem(n=6, p=1)
    model = BayesianDropoutRegression(f=0.4, lambda0=0.5, fit_intercept=False).fit(X, y)

    w, log_variance = np.linspace(-60, 60, 4001)[:, None], np.linspace(-6, 14, 101)
    variance = np.exp(log_variance)
    # Jeffreys' 1 / sigma^2 is flat in its logarithm.
    log_density = scipy.stats.norm.logpdf(w, 0, np.sqrt(variance / 0.5)) - model.log_evidence_
    for chance, mask in ((0.4, 0.0), (0.6, 1.0)):
        for row, target in zip(X[:, 0], y, strict=True):
            error = np.square(target - mask * row * w) / variance
            log_density -= 0.5 * chance * (np.log(2 * np.pi) + log_variance + error)
    integral = np.exp(log_density).sum() * (120 / 4000) * (20 / 100)
    assert integral == pytest.approx(1.0, abs=1e-5)


def test_a_proper_noise_prior_has_a_normalised_evidence() -> None:
    X, y = problem(n=5, p=1)
    a0, b0 = 1.5, 0.8
    model = BayesianDropoutRegression(f=0.0, lambda0=0.5, fit_intercept=False, a0=a0, b0=b0).fit(X, y)
    # With nothing dropped y has a multivariate t density.
    shape = b0 / a0 * (np.eye(5) + X @ X.T / 0.5)
    expected = scipy.stats.multivariate_t.logpdf(y, np.zeros(5), shape, df=2 * a0)
    assert model.log_evidence_ == pytest.approx(expected)
    assert model.log_marginal_ == pytest.approx(expected)


@pytest.mark.parametrize("f", [0.0, 0.4])
def test_the_marginal_likelihood_is_a_student_density_in_differences(f: float) -> None:
    X, y = problem()
    squares = np.square(X).sum(0)

    def density(lambda0: float) -> float:
        D = lambda0 + f * (1 - f) * squares
        G = np.eye(len(y)) + (1 - f) ** 2 * (X / D) @ X.T
        return float(-0.5 * np.linalg.slogdet(G)[1] - 0.5 * len(y) * np.log(y @ np.linalg.solve(G, y)))

    fits = [BayesianDropoutRegression(f=f, lambda0=v, fit_intercept=False).fit(X, y) for v in (0.1, 5.0)]
    ours = fits[0].log_marginal_ - fits[1].log_marginal_
    assert ours == pytest.approx(density(0.1) - density(5.0))


@pytest.mark.parametrize("f", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("intercept", [False, True])
def test_with_columns_of_one_norm_dropout_is_ridge(f: float, intercept: bool) -> None:
    X, y = problem(n=30)
    if intercept:
        X, y = X + 5.0, y - 2.0
    X = X / np.sqrt(np.square(X - X.mean(0)).sum(0) if intercept else np.square(X).sum(0)) * np.sqrt(30)
    lambda0 = 0.8
    model = BayesianDropoutRegression(f=f, lambda0=lambda0, fit_intercept=intercept).fit(X, y)
    ridge = Ridge(alpha=lambda0 / (1 - f) ** 2 + 30 * f / (1 - f), fit_intercept=intercept).fit(X, y)
    np.testing.assert_allclose(model.weights_, ridge.coef_ / (1 - f), rtol=1e-10)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-10)
    np.testing.assert_allclose(model.predict(X), ridge.predict(X), rtol=1e-10)


def test_the_scale_of_a_feature_does_not_matter_without_a_prior() -> None:
    X, y = problem()
    scale = np.array([1e-4, 1.0, 1e3, 1e6])
    plain = BayesianDropoutRegression(f=0.3, lambda0=0.0).fit(X, y)
    scaled = BayesianDropoutRegression(f=0.3, lambda0=0.0).fit(X * scale, y)
    np.testing.assert_allclose(scaled.weights_ * scale, plain.weights_, rtol=1e-9)
    np.testing.assert_allclose(scaled.predict(X * scale), plain.predict(X), rtol=1e-9)


def test_the_limit_of_f_is_each_variable_by_itself() -> None:
    X, y = problem()
    model = BayesianDropoutRegression(f=1 - 1e-9, lambda0=0.0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.weights_, X.T @ y / np.square(X).sum(0), rtol=1e-6)


def test_the_amino_acids_have_the_published_signs() -> None:
    data = load_qspr()
    x, y = data.x.numpy().copy(), data.y.numpy()[:, 0]
    x[:, 2] *= -1
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()

    def weights(f: float) -> np.ndarray:
        fitted = BayesianDropoutRegression(f=f, lambda0=0.0, fit_intercept=False).fit(x, y)
        return np.asarray(fitted.weights_)

    np.testing.assert_allclose(weights(0.7), [0.324, 0.423, 0.334, 0.089, 0.040, 0.280, 0.126], atol=6e-4)
    np.testing.assert_allclose(weights(0.99), [0.624, 0.692, 0.627, 0.254, 0.274, 0.486, 0.287], atol=6e-4)
    assert (weights(0.7) > 0).all()
    assert (weights(0.5) < 0).any()
    assert weights(0.0).min() == pytest.approx(-5.46, abs=5e-3)


def test_an_intercept_takes_one_degree_of_freedom_and_nothing_else() -> None:
    X, y = problem()
    n = len(y)
    # Rows orthogonal to ones: the same rows and targets with their means removed, one fewer.
    helmert = scipy.linalg.helmert(n)
    centred = BayesianDropoutRegression(f=0.3, lambda0=0.5, fit_intercept=False).fit(helmert @ X, helmert @ y)
    model = BayesianDropoutRegression(f=0.3, lambda0=0.5).fit(X, y)
    np.testing.assert_allclose(model.weights_, centred.weights_, rtol=1e-10)
    np.testing.assert_allclose(model.covariance(), centred.covariance(), rtol=1e-9)
    assert model.sigma2_shape_ == centred.sigma2_shape_ == (n - 1) / 2
    assert model.sigma2_scale_ == pytest.approx(centred.sigma2_scale_)
    assert model.log_evidence_ == pytest.approx(centred.log_evidence_ - 0.5 * np.log(n))


def test_an_intercept_makes_the_fit_independent_of_where_zero_is() -> None:
    X, y = problem()
    model = BayesianDropoutRegression(f=0.3, lambda0=0.5).fit(X, y)
    moved = BayesianDropoutRegression(f=0.3, lambda0=0.5).fit(X + 100.0, y + 7.0)
    np.testing.assert_allclose(moved.weights_, model.weights_, rtol=1e-8)
    for kind in ("scaled", "dropped", "undropped"):
        mean, std = model.predict(X, return_std=True, predictive=kind)
        moved_mean, moved_std = moved.predict(X + 100.0, return_std=True, predictive=kind)
        np.testing.assert_allclose(moved_mean, mean + 7.0, rtol=1e-8)
        np.testing.assert_allclose(moved_std, std, rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_weight_of_two_is_a_row_twice(intercept: bool) -> None:
    X, y = problem()
    times = np.array([0, 1, 2, 3] * 3)
    weighted = BayesianDropoutRegression(fit_intercept=intercept).fit(X, y, sample_weight=times)
    repeated = BayesianDropoutRegression(fit_intercept=intercept).fit(
        np.repeat(X, times, 0), np.repeat(y, times)
    )
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=1e-9)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_)
    for ours, theirs in zip(
        weighted.predict(X, return_std=True), repeated.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_several_targets_are_as_many_fits() -> None:
    X, y = problem()
    Y = np.column_stack([y, np.sin(y), -3 * y + 1])
    together = BayesianDropoutRegression(f=0.2).fit(X, Y)
    apart = [BayesianDropoutRegression(f=0.2).fit(X, column) for column in Y.T]
    assert together.coef_.shape == (3, 4)
    np.testing.assert_allclose(together.weights_, [one.weights_ for one in apart], rtol=1e-10)
    np.testing.assert_allclose(together.intercept_, [one.intercept_ for one in apart], rtol=1e-10)
    np.testing.assert_allclose(together.covariance(), [one.covariance() for one in apart], rtol=1e-10)
    np.testing.assert_allclose(
        together.covariance("diagonal"), [one.covariance("diagonal") for one in apart], rtol=1e-10
    )
    assert together.log_evidence_ == pytest.approx(sum(one.log_evidence_ for one in apart))
    for kind in ("scaled", "dropped", "undropped"):
        mean, std = together.predict(X, return_std=True, predictive=kind)
        lower, upper = together.predict_interval(X, predictive=kind)
        for index, one in enumerate(apart):
            one_mean, one_std = one.predict(X, return_std=True, predictive=kind)
            one_lower, one_upper = one.predict_interval(X, predictive=kind)
            np.testing.assert_allclose(mean[:, index], one_mean, rtol=1e-9)
            np.testing.assert_allclose(std[:, index], one_std, rtol=1e-9)
            np.testing.assert_allclose(lower[:, index], one_lower, rtol=1e-9)
            np.testing.assert_allclose(upper[:, index], one_upper, rtol=1e-9)


def test_a_constant_feature_without_a_prior_has_the_weight_zero() -> None:
    X, y = problem()
    X[:, 1] = 0.1
    model = BayesianDropoutRegression(f=0.3, lambda0=0.0).fit(X, y)
    rest = BayesianDropoutRegression(f=0.3, lambda0=0.0).fit(X[:, [0, 2, 3]], y)
    assert model.weights_[1] == 0
    np.testing.assert_allclose(model.weights_[[0, 2, 3]], rest.weights_, rtol=1e-10)
    assert model.covariance()[1].max() == 0
    assert model.covariance("diagonal")[1] == 0
    assert (model.sample_posterior(5).weights[:, 1] == 0).all()
    assert model.log_evidence_ == pytest.approx(rest.log_evidence_)
    np.testing.assert_allclose(
        model.predict(X, return_std=True), rest.predict(X[:, [0, 2, 3]], return_std=True), rtol=1e-9
    )


def test_without_a_prior_it_is_marginalised_corrupted_features() -> None:
    """lambda0 = 0: least squares over all corrupted copies of the data, each weighted by its chance."""
    rng = np.random.default_rng(3)
    x, y, f = rng.normal(size=(7, 3)) * [1, 4, 0.2], rng.normal(size=7), 0.35
    copies, targets, chances = [], [], []
    for mask in product((0.0, 1.0), repeat=3):
        copies.append(x * mask)
        targets.append(y)
        chances.append(np.full(7, np.prod(np.where(np.array(mask) > 0, 1 - f, f))))
    root = np.sqrt(np.concatenate(chances))
    corrupted, *_ = np.linalg.lstsq(root[:, None] * np.concatenate(copies), root * np.concatenate(targets))
    model = BayesianDropoutRegression(f=f, lambda0=0.0, fit_intercept=False).fit(x, y)
    np.testing.assert_allclose(model.weights_, corrupted)
    # Blanked out without bias, what is left over 1 - f, the weights are those of the prediction.
    unbiased, *_ = np.linalg.lstsq(
        root[:, None] * np.concatenate(copies) / (1 - f), root * np.concatenate(targets)
    )
    np.testing.assert_allclose(model.coef_, unbiased)
