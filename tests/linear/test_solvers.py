"""Three ways to one posterior, for dense and sparse designs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from bayesdrop.linear import BayesianDropoutRegression, LowRankCovariance
from bayesdrop.linear.rows import Rows


def design(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    # Counts with many zeros and columns of very different size.
    X = rng.poisson(0.4, size=(n, p)) * rng.uniform(0.1, 30.0, size=p)
    return X, X @ rng.normal(size=p) / 30 + rng.normal(size=n)


SHAPES = {"more rows": (40, 12), "more features": (12, 40)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("per_feature", [False, True])
def test_all_solvers_agree(
    shape: tuple[int, int], intercept: bool, weighted: bool, per_feature: bool
) -> None:
    X, y = design(*shape)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.0, 2.0, size=len(y)) if weighted else None
    f = rng.uniform(0.0, 0.9, size=shape[1]) if per_feature else 0.4
    new = design(5, shape[1], seed=2)[0]
    found: list[dict[str, Any]] = []
    for solver in ("primal", "dual", "cg"):
        for kind in (np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_array):
            model = BayesianDropoutRegression(
                f=f, lambda0=0.3, fit_intercept=intercept, solver=solver, tol=1e-13, max_iter=2000
            ).fit(kind(X), y, sample_weight=weights)
            assert model.solver_ == solver
            found.append(
                {
                    "weights": model.weights_,
                    "intercept": model.intercept_,
                    "residual": model.sigma2_scale_,
                    "evidence": model.log_evidence_,
                    "marginal": model.log_marginal_,
                    "covariance": model.covariance(),
                    "variances": model.covariance("diagonal"),
                    "scaled": model.predict(kind(new), return_std=True),
                    "dropped": model.predict(kind(new), return_std=True, predictive="dropped"),
                    "undropped": model.predict(kind(new), return_std=True, predictive="undropped"),
                }
            )
    for other in found[1:]:
        for name, value in found[0].items():
            np.testing.assert_allclose(other[name], value, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_low_rank_covariance_is_the_full_one(intercept: bool) -> None:
    X, y = design(10, 30)
    X[:, 4] = 0.0
    model = BayesianDropoutRegression(f=0.3, lambda0=0.0, fit_intercept=intercept).fit(X, y)
    low = model.covariance("low-rank")
    assert isinstance(low, LowRankCovariance)
    assert low.rank == 10
    full = model.covariance()
    U = low.factor()
    np.testing.assert_allclose(
        low.variance * (np.diag(low.diagonal) - U @ U.T), full, atol=1e-10 * np.abs(full).max()
    )
    np.testing.assert_allclose(low.variance * low.times(np.eye(30)), full, atol=1e-10 * np.abs(full).max())
    assert low.diagonal[4] == 0


def test_auto_chooses_by_shape_and_sparsity() -> None:
    def chosen(X: Any, f: float = 0.3, lambda0: float = 1.0) -> str:
        y = np.arange(float(X.shape[0]))
        return str(BayesianDropoutRegression(f=f, lambda0=lambda0).fit(X, y).solver_)

    assert chosen(design(40, 12)[0]) == "primal"
    assert chosen(design(12, 40)[0]) == "dual"
    assert chosen(scipy.sparse.csr_array(design(12, 40)[0])) == "dual"
    wide = scipy.sparse.random_array((600, 700), density=0.01, rng=np.random.default_rng(0), format="csr")
    assert chosen(wide) == "cg"
    # Nothing in D: there is no dual form, and here none is needed.
    assert chosen(design(40, 12)[0], f=0.0, lambda0=0.0) == "primal"


def test_conjugate_gradients_that_stop_early_say_so() -> None:
    X, y = design(40, 12)
    with pytest.warns(ConvergenceWarning, match="did not reach tol=1e-12 in 2 iterations"):
        BayesianDropoutRegression(f=0.01, solver="cg", tol=1e-12, max_iter=2).fit(X, y)


def test_conjugate_gradients_do_without_a_penalty_of_their_own() -> None:
    X, y = design(40, 12)
    direct = BayesianDropoutRegression(f=0.0, lambda0=0.0, solver="primal").fit(X, y)
    iterated = BayesianDropoutRegression(f=0.0, lambda0=0.0, solver="cg", tol=1e-13).fit(X, y)
    np.testing.assert_allclose(iterated.weights_, direct.weights_, rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_sparse_rows_are_dense_rows(weighted: bool, centred: bool) -> None:
    rng = np.random.default_rng(0)
    X, Z = design(9, 7)[0], design(4, 7, seed=3)[0]
    weights = rng.uniform(0.5, 2.0, size=9) if weighted else None
    mean = X.mean(0) if centred else None
    shift = np.zeros(7) if mean is None else mean
    truth = (X - shift) * (np.ones(9) if weights is None else np.sqrt(weights))[:, None]
    other = Z - shift
    d = rng.normal(size=7)
    for kind in (np.asarray, scipy.sparse.csr_matrix):
        rows, new = Rows(kind(X), mean=mean, weights=weights), Rows(kind(Z), mean=mean)
        v, u = rng.normal(size=(7, 2)), rng.normal(size=(9, 2))
        np.testing.assert_allclose(rows.times(v), truth @ v, atol=1e-10)
        np.testing.assert_allclose(rows.transposed_times(u), truth.T @ u, atol=1e-10)
        np.testing.assert_allclose(rows.gram(), truth.T @ truth, atol=1e-9)
        np.testing.assert_allclose(rows.squares(), np.square(truth).sum(0), rtol=1e-10)
        np.testing.assert_allclose(rows.products(d, new), truth @ np.diag(d) @ other.T, atol=1e-9)
        np.testing.assert_allclose(rows.products(d), truth @ np.diag(d) @ truth.T, atol=1e-9)
        np.testing.assert_allclose(rows.columns(2, 5), truth[:, 2:5], atol=1e-12)
        np.testing.assert_allclose(rows.squared.columns(0, 7), np.square(truth), atol=1e-9)
        np.testing.assert_allclose(
            rows.squared.products(d, new), np.square(truth) @ np.diag(d) @ other.T, atol=1e-8
        )
        mask = np.arange(7) % 2 == 0
        np.testing.assert_allclose(rows.take(mask).times(v[mask]), truth[:, mask] @ v[mask], atol=1e-10)


def test_squares_of_columns_far_from_zero_do_not_cancel() -> None:
    X = np.array([[1e8], [1e8 + 1], [1e8 + 2], [0.0]])
    for rows in (X[:3], scipy.sparse.csr_array(X[:3])):
        assert Rows(rows, mean=np.array([1e8 + 1])).squares()[0] == pytest.approx(2.0, rel=1e-6)
    for rows in (X, scipy.sparse.csr_array(X)):
        mean = X.mean(0)
        assert Rows(rows, mean=mean).squares()[0] == pytest.approx(np.square(X - mean).sum())
