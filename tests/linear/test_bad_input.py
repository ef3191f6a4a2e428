"""What cannot be fitted is refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from bayesdrop.linear import (
    BayesianDropoutClassifier,
    BayesianDropoutRegression,
    DropPerturbation,
    dropout_log_posterior,
    dropout_path,
)

X = np.random.default_rng(0).normal(size=(10, 3))
Y = X @ [1.0, -1.0, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"f": 1.0}, r"`f` must be in \[0, 1\); got 1.0"),
        ({"f": -0.1}, r"`f` must be in \[0, 1\)"),
        ({"f": float("nan")}, r"`f` must be in \[0, 1\)"),
        ({"f": np.array([0.1, 1.2, 0.3])}, r"`f` must be in \[0, 1\); got 1.2"),
        ({"f": np.array([0.1, 0.2])}, r"shape \(2,\) for 3 features"),
        ({"f": "loo"}, "'evidence', 'marginal' or 'cv'; got 'loo'"),
        ({"f": True}, "`f` must be"),
        ({"lambda0": -1.0}, "`lambda0` must be a finite number of at least 0"),
        ({"lambda0": float("inf")}, "`lambda0` must be a finite number"),
        ({"f": "cv", "lambda0": "evidence"}, "chosen by one criterion"),
        ({"solver": "svd"}, "`solver` must be one of auto, primal, dual, cg"),
        ({"solver": "dual", "f": 0.0, "lambda0": 0.0}, "`lambda0` must be above 0 where f is 0"),
        ({"tol": 0.0}, "`tol` must be a positive number"),
        ({"a0": -1.0}, "`a0` must be a number of at least 0"),
        ({"max_iter": 0}, "`max_iter` must be a positive int"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianDropoutRegression(**options).fit(X, Y)


@pytest.mark.parametrize(("name", "value"), [("f", {"a": 1}), ("lambda0", None)])
def test_a_bad_type_is_named(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"`{name}` must be"):
        BayesianDropoutRegression(**{name: value}).fit(X, Y)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_missing_values_are_refused(kind: Any) -> None:
    broken = X.copy()
    broken[2, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        BayesianDropoutRegression().fit(kind(broken), Y)
    with pytest.raises(ValueError, match="NaN"):
        BayesianDropoutRegression().fit(X, np.where(np.arange(10) == 3, np.nan, Y))
    with pytest.raises(ValueError, match="NaN"):
        BayesianDropoutRegression().fit(X, Y).predict(kind(broken))


def test_widths_and_lengths_must_match() -> None:
    model = BayesianDropoutRegression().fit(X, Y)
    with pytest.raises(ValueError, match="2 features, but BayesianDropoutRegression is expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="inconsistent"):
        BayesianDropoutRegression().fit(X, Y[:5])
    with pytest.raises(ValueError, match="sample_weight"):
        BayesianDropoutRegression().fit(X, Y, sample_weight=np.ones(4))
    with pytest.raises(ValueError, match="egative"):
        BayesianDropoutRegression().fit(X, Y, sample_weight=-np.ones(10))
    with pytest.raises(ValueError, match="weights"):
        BayesianDropoutRegression().fit(X, Y, sample_weight=np.zeros(10))


@pytest.mark.parametrize("solver", ["auto", "primal"])
def test_a_singular_system_is_said_to_be_one(solver: str) -> None:
    twins = np.column_stack([X, X[:, 0] + X[:, 1]])
    with pytest.raises(ValueError, match=r"singular system.*Take lambda0 > 0, or f > 0"):
        BayesianDropoutRegression(f=0.0, lambda0=0.0, solver=solver).fit(twins, Y)
    with pytest.raises(ValueError, match="singular system"):
        BayesianDropoutRegression(f=0.0, lambda0=0.0, solver=solver).fit(X[:2], Y[:2])
    BayesianDropoutRegression(f=0.1, lambda0=0.0, solver=solver).fit(twins, Y)


def test_features_that_never_vary_leave_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="some feature that varies"):
        BayesianDropoutRegression(f=0.3, lambda0=0.0).fit(np.ones((5, 2)), np.arange(5.0))
    model = BayesianDropoutRegression(f=0.3, lambda0=1.0).fit(np.ones((5, 2)), np.arange(5.0))
    assert (model.weights_ == 0).all()
    assert model.predict(np.ones((1, 2)))[0] == pytest.approx(2.0)


def test_one_row_is_too_few_for_an_intercept() -> None:
    with pytest.raises(ValueError, match="n_samples = 1"):
        BayesianDropoutRegression().fit(X[:1], Y[:1])


def test_bad_questions_to_a_fit() -> None:
    model = BayesianDropoutRegression().fit(X, Y)
    with pytest.raises(ValueError, match="'full', 'diagonal' or 'low-rank'"):
        model.covariance("sparse")
    with pytest.raises(ValueError, match="`predictive` must be"):
        model.predict(X, predictive="mean")
    with pytest.raises(ValueError, match=r"`level` must be in \(0, 1\)"):
        model.predict_interval(X, 95)
    with pytest.raises(ValueError, match="`num_draws` must be a positive int"):
        model.sample_posterior(0)


def test_bad_classifiers() -> None:
    labels = (Y > 0).astype(int)
    with pytest.raises(ValueError, match="'sign' or 'logistic'"):
        BayesianDropoutClassifier(method="probit").fit(X, labels)
    with pytest.raises(ValueError, match="'gaussian' or 'enumerate'"):
        BayesianDropoutClassifier(method="logistic", expectation="exact").fit(X, labels)
    with pytest.raises(ValueError, match="1 class"):
        BayesianDropoutClassifier().fit(X, np.zeros(10))
    with pytest.raises(ValueError, match="a number for method='logistic'"):
        BayesianDropoutClassifier(method="logistic", f="cv").fit(X, labels)
    wide = np.random.default_rng(0).normal(size=(10, 13))
    with pytest.raises(ValueError, match="at most 12 features to enumerate"):
        BayesianDropoutClassifier(method="logistic", expectation="enumerate").fit(wide, labels)


def test_bad_paths_and_rules() -> None:
    with pytest.raises(ValueError, match=r"`f` must be in \[0, 1\)"):
        dropout_path(X, Y, f=[0.0, 1.0], lambda0=[1.0])
    with pytest.raises(ValueError, match=r"`w` must be in \[0, 1\)"):
        DropPerturbation({"w": 1.0})
    with pytest.raises(ValueError, match="`num_draws` must be a positive int"):
        dropout_log_posterior(lambda w: w.sum(), lambda w: w.sum(), DropPerturbation(0.1), num_draws=0)
    with pytest.raises(ValueError, match="for a function"):
        dropout_log_posterior(lambda w: w.sum(), lambda w: w.sum(), lambda w, generator: w)
    with pytest.raises(TypeError, match="a DropPerturbation or a function"):
        dropout_log_posterior(lambda w: w.sum(), lambda w: w.sum(), 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e-165, 1e165, 1e200])
def test_numbers_whose_squares_are_no_doubles_are_refused(scale: float) -> None:
    """X times 1e200 gave NaN, and a target of 1e-165 was 1e164 times off."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = X[:, 0]
    for model in (BayesianDropoutRegression(), BayesianDropoutRegression(lambda0=0.0)):
        with pytest.raises(ValueError, match="`X` must be of a size from 1e-140"):
            model.fit(X * [1, scale, 1], y)
        with pytest.raises(ValueError, match="`y` must be of a size from 1e-140"):
            model.fit(X, y * scale)
    sparse = scipy.sparse.csr_array(X * scale)
    with pytest.raises(ValueError, match="in column 0"):
        BayesianDropoutClassifier().fit(sparse, y > 0)
    with pytest.raises(ValueError, match="dropout_path: `y`"):
        dropout_path(X, y * scale, f=[0.1], lambda0=[0.0])


@pytest.mark.parametrize("scale", [2.0**-400, 2.0**400])
def test_within_those_bounds_the_units_do_not_matter(scale: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=20)
    plain, other = (BayesianDropoutRegression(f=0.2, lambda0=0.0) for _ in range(2))
    mean, std = plain.fit(X, y).predict(X, return_std=True)
    scaled_mean, scaled_std = other.fit(X * scale, y * scale).predict(X * scale, return_std=True)
    np.testing.assert_allclose(scaled_mean, mean * scale, rtol=1e-9)
    np.testing.assert_allclose(scaled_std, std * scale, rtol=1e-9)
