"""Paths and the choice of f and lambda0."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from bayesdrop.linear import BayesianDropoutRegression, dropout_path
from bayesdrop.linear.problem import LinearProblem
from bayesdrop.linear.rows import Rows

RATES, PRIORS = [0.0, 0.3, 0.8], [0.01, 1.0, 30.0]


def data(n: int = 25, p: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.2, 5.0, size=p)
    return X, X @ rng.normal(size=p) + 3 * rng.normal(size=n) + 1.0


@pytest.mark.parametrize("shape", [(25, 6), (10, 30)])
@pytest.mark.parametrize("solver", ["auto", "cg"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_path_is_its_fits(shape: tuple[int, int], solver: str, intercept: bool) -> None:
    X, y = data(*shape)
    scores = solver == "auto"
    path = dropout_path(
        X, y, f=RATES, lambda0=PRIORS, solver=solver, fit_intercept=intercept, scores=scores, tol=1e-12
    )
    predicted = path.predict(X)
    for i, f in enumerate(RATES):
        for j, lambda0 in enumerate(PRIORS):
            model = BayesianDropoutRegression(f=f, lambda0=lambda0, fit_intercept=intercept).fit(X, y)
            np.testing.assert_allclose(path.weights[i, j], model.weights_, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(path.coef[i, j], model.coef_, rtol=1e-7, atol=1e-9)
            assert path.intercept[i, j] == pytest.approx(model.intercept_)
            np.testing.assert_allclose(predicted[i, j], model.predict(X), rtol=1e-7, atol=1e-8)
            if scores:
                assert path.log_evidence[i, j] == pytest.approx(model.log_evidence_)
                assert path.log_marginal[i, j] == pytest.approx(model.log_marginal_)
    if not scores:
        assert path.log_evidence is None
        assert path.leave_one_out_error is None


def test_a_path_of_several_targets_and_sparse_rows() -> None:
    X, y = data()
    Y = np.column_stack([y, -y])
    path = dropout_path(scipy.sparse.csr_matrix(X), Y, f=RATES, lambda0=PRIORS)
    assert path.weights.shape == (3, 3, 6, 2)
    np.testing.assert_allclose(path.weights[..., 0], -path.weights[..., 1])
    np.testing.assert_allclose(
        path.predict(X)[..., 0], dropout_path(X, y, f=RATES, lambda0=PRIORS).predict(X)
    )


def test_matrices_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("gram", "products"):
        real = getattr(Rows, name)

        def counted(self: Rows, *arguments: object, name: str = name, real: object = real) -> object:
            made.append(name)
            return real(self, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(Rows, name, counted)
    X, y = data()
    dropout_path(X, y, f=RATES, lambda0=PRIORS, scores=False)
    assert made == ["gram"]
    made.clear()
    X, y = data(10, 30)
    X[:, 3] = 0.0
    dropout_path(X, y, f=[0.1, 0.5, 0.9], lambda0=[0.0], scores=False)
    assert made == ["products"]
    made.clear()
    dropout_path(X, y, f=[0.0], lambda0=PRIORS, scores=False)
    assert made == ["products"]


def refitted_errors(X: np.ndarray, y: np.ndarray, D: np.ndarray, f: float, *, intercept: bool) -> np.ndarray:
    """Leave-one-out errors with D held, by fitting again without each row."""
    errors = []
    if intercept:
        X = X - X.mean(0)
    for row in range(len(y)):
        rest = np.arange(len(y)) != row
        A = (1 - f) * X
        if intercept:
            A = np.column_stack([A, np.ones(len(y))])
            D_ = np.append(D, 0.0)
        else:
            D_ = D
        w = np.linalg.solve(np.diag(D_) + A[rest].T @ A[rest], A[rest].T @ y[rest])
        errors.append(y[row] - A[row] @ w)
    return np.array(errors)


@pytest.mark.parametrize("shape", [(25, 6), (10, 30)])
@pytest.mark.parametrize("intercept", [False, True])
def test_leave_one_out_is_fitting_without_each_row(shape: tuple[int, int], intercept: bool) -> None:
    X, y = data(*shape)
    f, lambda0 = 0.4, 2.0
    centred = X - X.mean(0) if intercept else X
    D = lambda0 + f * (1 - f) * np.square(centred).sum(0)
    path = dropout_path(X, y, f=[f], lambda0=[lambda0], fit_intercept=intercept)
    expected = np.square(refitted_errors(X, y, D, f, intercept=intercept)).mean()
    assert path.leave_one_out_error[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize("n", [25, 100])
def test_leave_one_out_is_close_to_fitting_everything_again(n: int) -> None:
    X, y = data(n)
    path = dropout_path(X, y, f=[0.0, 0.3], lambda0=[1.0])
    for index, f in enumerate((0.0, 0.3)):
        errors = []
        for row in range(n):
            rest = np.arange(n) != row
            model = BayesianDropoutRegression(f=f, lambda0=1.0).fit(X[rest], y[rest])
            errors.append(y[row] - model.predict(X[[row]])[0])
        # What is held is the penalty, of which a row has the share 1 / n on average.
        tolerance = 1e-9 if f == 0 else 2 / n
        assert path.leave_one_out_error[index, 0] == pytest.approx(np.mean(np.square(errors)), rel=tolerance)


def test_a_zero_weight_row_is_no_row_to_leave_out() -> None:
    X, y = data()
    weights = np.append(np.ones(24), 0.0)
    path = dropout_path(X, y, f=[0.3], lambda0=[1.0], sample_weight=weights)
    without = dropout_path(X[:24], y[:24], f=[0.3], lambda0=[1.0])
    assert path.leave_one_out_error[0, 0] == pytest.approx(without.leave_one_out_error[0, 0])


@pytest.mark.parametrize("shape", [(25, 6), (10, 30)])
@pytest.mark.parametrize("criterion", ["evidence", "marginal", "cv"])
def test_the_choice_is_at_least_as_good_as_a_fine_grid(shape: tuple[int, int], criterion: str) -> None:
    X, y = data(*shape)
    model = BayesianDropoutRegression(f=criterion, lambda0=criterion).fit(X, y)
    scale = np.square(X - X.mean(0)).sum(0).mean()
    path = dropout_path(X, y, f=np.linspace(0, 0.95, 12), lambda0=scale * np.geomspace(1e-6, 1e3, 20))
    table = {
        "evidence": path.log_evidence,
        "marginal": path.log_marginal,
        "cv": -np.array(path.leave_one_out_error),
    }
    problem = LinearProblem(X, y[:, None], None, intercept=True)
    score = problem.score(model.posterior_, criterion)
    # A local search from one cell may miss another hollow, but not by much.
    assert score >= table[criterion].max() - 0.02 * np.ptp(table[criterion])
    assert 0 <= model.f_ < 1
    assert model.lambda0_ > 0


@pytest.mark.parametrize("criterion", ["evidence", "marginal", "cv"])
def test_one_of_the_two_can_be_chosen(criterion: str) -> None:
    X, y = data()
    fixed_f = BayesianDropoutRegression(f=0.3, lambda0=criterion).fit(X, y)
    assert fixed_f.f_ == 0.3
    path = dropout_path(X, y, f=[0.3], lambda0=fixed_f.lambda0_ * np.array([0.8, 1.0, 1.25]))
    table = {
        "evidence": path.log_evidence,
        "marginal": path.log_marginal,
        "cv": -np.array(path.leave_one_out_error),
    }
    assert table[criterion][0].argmax() == 1
    fixed_prior = BayesianDropoutRegression(f=criterion, lambda0=0.01).fit(X, y)
    assert fixed_prior.lambda0_ == 0.01
    flat = BayesianDropoutRegression(f=criterion, lambda0=0.0).fit(X, y)
    assert 0 < flat.f_ < 1


@pytest.mark.parametrize("seed", range(3))
def test_the_generalised_evidence_falls_with_f_at_the_same_prior_of_scaled_weights(seed: int) -> None:
    X, y = data(seed=seed)
    # (1 - f) w has the prior precision lambda0 / (1 - f)^2; dropping adds a penalty without a normaliser.
    values = [
        BayesianDropoutRegression(f=f, lambda0=2.0 * (1 - f) ** 2).fit(X, y).log_evidence_
        for f in (0.0, 0.1, 0.3, 0.6, 0.9)
    ]
    assert (np.diff(values) < 0).all()
    assert BayesianDropoutRegression(f="evidence", lambda0="evidence").fit(X, y).f_ == 0
