"""Bayesian dropout classifiers: the sign of a regression, and logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy.stats
from scipy.special import logit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesdrop.errors import is_one_of, must, must_be_flag, told_by
from bayesdrop.linear.estimator import LinearDropout
from bayesdrop.linear.logistic import LaplacePosterior, LogisticObjective, fit_logistic
from bayesdrop.linear.margin import all_masks, expected_sigmoid
from bayesdrop.linear.rates import check_iteration, drop_rates, prior_precision, row_weights
from bayesdrop.linear.regression import BayesianDropoutRegression
from bayesdrop.linear.rows import Array, Rows
from bayesdrop.scale import check_scale

__all__ = ["BayesianDropoutClassifier"]

_OWNER = "BayesianDropoutClassifier"


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianDropoutClassifier(ClassifierMixin, LinearDropout):
    """Linear classification with weights that are fitted while features are dropped.

        sign       regression on y = -1, 1 (`BayesianDropoutRegression`); the class is the prediction's sign
        logistic   prior N(0, 1 / lambda0) times exp E log sigmoid(y m), by Laplace's Gaussian at the mode

    More than two classes: one against the rest.

    Args:
        method: "sign" (closed form) or "logistic".
        f: chance of dropping a feature, in [0, 1): one number or one per feature; with method="sign" also
            "evidence", "marginal" or "cv".
        lambda0: prior precision of the weights, at least 0 (for "sign" in units of the noise precision, and
            as for `f` a criterion).
        fit_intercept: whether to fit an intercept, which is never dropped; a dropped feature is then replaced
            by its mean.
        expectation: of the logistic likelihood: "gaussian" approximates the margin of a row with dropped
            features by a Gaussian of its mean and variance, and integrates by quadrature; "enumerate" sums
            over all masks of up to 12 features, and is exact.
        solver: of "sign", see `BayesianDropoutRegression`.
        tol: of conjugate gradients ("sign"), or the gradient at which Newton's method stops ("logistic").
        max_iter: most iterations of either; the solver's default if None.

    Attributes: `classes_`, `coef_` ((1 - f) mu), `weights_` (mu), `intercept_`, `n_features_in_`.
    Reference: Herlau, Morup & Schmidt (2022), "Bayesian Dropout", Eq. 10 (rule) and fig. 2 (sign).

    >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, -1.0], [3.0, 0.0]])
    >>> BayesianDropoutClassifier(f=0.1).fit(X, ["no", "no", "yes", "yes"]).predict([[2.5, 0.0]])
    array(['yes'], dtype='<U3')
    """

    method: Literal["sign", "logistic"] = "sign"
    expectation: Literal["gaussian", "enumerate"] = "gaussian"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the posterior.

        Args:
            X: (N, P), dense or sparse.
            y: (N,), labels of any kind.
            sample_weight: (N,), at least 0.
        """
        with told_by(_OWNER, "X", "y"):
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
            check_classification_targets(y)
        check_scale(_OWNER, "X", X)
        must_be_flag(_OWNER, fit_intercept=self.fit_intercept)
        check_iteration(_OWNER, self.tol, self.max_iter)
        if not is_one_of(self.method, ("sign", "logistic")):
            raise ValueError(must(_OWNER, "method", "'sign' or 'logistic'", self.method))
        if not is_one_of(self.expectation, ("gaussian", "enumerate")):
            raise ValueError(must(_OWNER, "expectation", "'gaussian' or 'enumerate'", self.expectation))
        weights = row_weights(_OWNER, sample_weight, X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(must(_OWNER, "y", "of at least two classes", "1 class"))
        codes = codes.reshape(-1, 1)
        columns = np.array([1]) if len(self.classes_) == 2 else np.arange(len(self.classes_))
        signs = np.where(codes == columns, 1.0, -1.0)
        if self.method == "sign":
            self._fit_sign(X, signs, weights)
        else:
            self._fit_logistic(X, signs, weights)
        return self

    def _fit_sign(self, X: Any, signs: Array, weights: Array | None) -> None:
        self.regression_ = BayesianDropoutRegression(
            f=self.f,
            lambda0=self.lambda0,
            fit_intercept=self.fit_intercept,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
        ).fit(X, signs, sample_weight=weights)
        self.n_iter_ = self.regression_.n_iter_
        self.f_, self.lambda0_ = self.regression_.f_, self.regression_.lambda0_
        self.weights_, self.coef_ = self.regression_.weights_, self.regression_.coef_
        self.intercept_ = self.regression_.intercept_

    def _fit_logistic(self, X: Any, signs: Array, weights: Array | None) -> None:
        for name, value in (("f", self.f), ("lambda0", self.lambda0)):
            if isinstance(value, str):
                hint = "method='sign' can choose, and so can sklearn's GridSearchCV."
                raise ValueError(must(_OWNER, name, "a number for method='logistic'", value, hint))
        f = drop_rates(self.f, X.shape[1], _OWNER)
        lambda0 = prior_precision(self.lambda0, _OWNER)
        weights = np.ones(X.shape[0]) if weights is None else weights
        self._mean = np.asarray(X.T @ (weights / weights.sum())) if self.fit_intercept else None
        rows = Rows(X, mean=self._mean)
        active = (rows.squared.transposed_times(weights) > 0) | (lambda0 > 0)
        self._active = active
        rows = rows if active.all() else rows.take(active)
        chance, kept = f[active], rows
        if self.expectation == "enumerate":
            # Every row under every mask becomes a row, from which nothing is dropped.
            masks, chances = all_masks(chance, _OWNER)
            dense = rows.columns(0, rows.shape[1])
            kept = Rows((dense[:, None] * masks).reshape(-1, rows.shape[1]))
            weights = np.outer(weights, chances).reshape(-1)
            signs = np.repeat(signs, len(chances), axis=0)
            chance = np.zeros_like(chance)
        self.laplace_: list[LaplacePosterior] = []
        found, steps = [], []
        for column in signs.T:
            objective = LogisticObjective(kept, column, weights, chance, lambda0, bool(self.fit_intercept))
            max_iter = 200 if self.max_iter is None else self.max_iter
            mode, taken = fit_logistic(objective, tol=self.tol, max_iter=max_iter, owner=_OWNER)
            self.laplace_.append(LaplacePosterior(objective, mode, owner=_OWNER))
            found.append(mode)
            steps.append(taken)
        weights_, intercept = np.array(found)[:, :-1], np.array(found)[:, -1]
        self.weights_ = np.zeros((len(found), len(f)))
        self.weights_[:, active] = weights_
        self.coef_ = self.weights_ * (1 - f)
        self.intercept_ = intercept - (0.0 if self._mean is None else self.coef_ @ self._mean)
        self.f_ = float(f[0]) if np.all(f == f[0]) else f
        self.lambda0_ = lambda0
        self.n_iter_ = max(1, *steps)

    def decision_function(self, X: Any) -> Array:
        """The score of the positive class, (N,), for two classes; else of every class, (N, K).

        "sign": the predicted target. "logistic": the log odds of `predict_proba`, before it is scaled.
        """
        X = self._checked(X)
        values = self._margin(X) if self.method == "sign" else self._log_odds(X)
        return np.asarray(values[:, 0] if len(self.classes_) == 2 else values)

    def predict(self, X: Any) -> Any:
        """The class of every row, (N,)."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self.classes_[self.decision_function(X).argmax(1)]
        # Averaging the sigmoid over the margin's distribution does not move it across 1/2.
        return self.classes_[(self._margin(self._checked(X))[:, 0] > 0).astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, (N, K).

        "sign": the probability that the Student t prediction of the regression is above 0, with one noise
        variance for all classes. "logistic": the sigmoid averaged over Laplace's posterior of the margin. For
        more than two classes they are scaled to sum to 1.
        """
        X = self._checked(X)
        positive = self._sign_proba(X) if self.method == "sign" else self._logistic_proba(X)
        if len(self.classes_) == 2:
            return np.column_stack([1 - positive[:, 0], positive[:, 0]])
        return np.asarray(positive / positive.sum(1, keepdims=True))

    def _margin(self, X: Any) -> Array:
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        with told_by(_OWNER, "X"):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        check_scale(_OWNER, "X", X, smallest=False)
        return X

    def _sign_proba(self, X: Any) -> Array:
        location, scale, freedom = self.regression_.predict_student(X)
        scale = np.sqrt(np.square(scale).mean(1, keepdims=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            z = location / scale
        # A perfect fit has scale 0: the sign is certain, and 0 / 0 counts as 1/2.
        return np.asarray(scipy.stats.t.cdf(np.nan_to_num(z, nan=0.0), freedom))

    def _log_odds(self, X: Any) -> Array:
        finfo = np.finfo(float)
        return np.asarray(logit(np.clip(self._logistic_proba(X), finfo.tiny, 1 - finfo.epsneg)))

    def _logistic_proba(self, X: Any) -> Array:
        mean = self._margin(X)
        rows = Rows(X, mean=self._mean)
        rows = rows if self._active.all() else rows.take(self._active)
        keep = 1 - np.broadcast_to(self.f_, self._active.shape)[self._active]
        columns = [
            expected_sigmoid(mean[:, index], laplace.variance(rows, keep))
            for index, laplace in enumerate(self.laplace_)
        ]
        return np.column_stack(columns)
