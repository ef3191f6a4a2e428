"""Logistic regression by the rule of Bayesian dropout: the mode, and Laplace's approximation there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from bayesdrop.errors import must
from bayesdrop.linear.margin import MarginMoments, expected_log_sigmoid
from bayesdrop.linear.rows import Array, Rows

__all__ = ["LaplacePosterior", "LogisticObjective", "fit_logistic"]

_CHUNK = 512


@dataclass(eq=False)
class LogisticObjective:
    """Minus the log posterior of weights w and intercept b, up to a constant.

        lambda0/2 |w|^2 - sum_i s_i E log sigmoid(y_i m_i),   m_i ~ N(b + sum_d (1 - f_d) x_id w_d,
                                                                      sum_d f_d (1 - f_d) x_id^2 w_d^2)

    It is convex: E log sigmoid(u + t e) with e ~ N(0, 1) is concave in (u, t) and falls with t >= 0, which
    is a norm of w.
    """

    rows: Rows  #: X, centred if there is an intercept, not weighted
    signs: Array  #: y, -1 or 1, (N,)
    weights: Array  #: s, (N,)
    f: Array  #: (P,)
    lambda0: float
    intercept: bool
    _at: tuple[Array, Array, MarginMoments] | None = field(default=None, repr=False)

    @property
    def keep(self) -> Array:
        """1 - f."""
        return 1 - self.f

    def moments(self, point: Array) -> MarginMoments:
        """Expectations at the point (w, b), kept for derivatives at the same point."""
        if self._at is None or not np.array_equal(self._at[0], point):
            w, b = point[:-1], point[-1]
            mean = self.rows.times(self.keep * w) + b
            variance = np.maximum(self.rows.squared.times(self.f * self.keep * w**2), 0.0)
            found = expected_log_sigmoid(self.signs * mean, variance)
            self._at = (point.copy(), mean, found)
        return self._at[2]

    def value(self, point: Array) -> float:
        """The objective at (w, b)."""
        w = point[:-1]
        return float(0.5 * self.lambda0 * (w @ w) - self.weights @ self.moments(point).value)

    def gradient(self, point: Array) -> Array:
        """The gradient in (w, b)."""
        w, moments = point[:-1], self.moments(point)
        by_mean = -self.weights * self.signs * moments.first
        by_variance = -0.5 * self.weights * moments.second
        gradient = np.empty_like(point)
        gradient[:-1] = (
            self.keep * self.rows.transposed_times(by_mean)
            + 2 * self.f * self.keep * w * self.rows.squared.transposed_times(by_variance)
            + self.lambda0 * w
        )
        gradient[-1] = by_mean.sum() if self.intercept else 0.0
        return gradient

    def curvatures(self, point: Array) -> tuple[Array, Array, Array]:
        """Second derivatives in a margin's mean u and variance t: (u, u), (u, t) and (t, t), each (N,)."""
        moments = self.moments(point)
        return (
            -self.weights * moments.second,
            -0.5 * self.weights * self.signs * moments.third,
            -0.25 * self.weights * moments.fourth,
        )

    def diagonal(self, point: Array) -> Array:
        """D: the part of the second derivative in w that is a diagonal matrix, (P,)."""
        by_variance = -0.5 * self.weights * self.moments(point).second
        return self.lambda0 + 2 * self.f * self.keep * self.rows.squared.transposed_times(by_variance)

    def second_times(self, point: Array, direction: Array) -> Array:
        """The second derivative times a direction."""
        w, v, vb = point[:-1], direction[:-1], direction[-1] if self.intercept else 0.0
        uu, ut, tt = self.curvatures(point)
        slope = 2 * self.f * self.keep * w
        du = self.rows.times(self.keep * v) + vb
        dt = self.rows.squared.times(slope * v)
        hu, ht = uu * du + ut * dt, ut * du + tt * dt
        product = np.empty_like(direction)
        product[:-1] = self.keep * self.rows.transposed_times(hu) + self.diagonal(point) * v
        product[:-1] += slope * self.rows.squared.transposed_times(ht)
        product[-1] = hu.sum() if self.intercept else direction[-1]
        return product


def fit_logistic(objective: LogisticObjective, *, tol: float, max_iter: int, owner: str) -> tuple[Array, int]:
    """The mode (w, b) by Newton steps in a trust region, on weights scaled by their curvature.

    Returns: (P + 1,), and the number of steps.
    """
    squares = objective.rows.squared.transposed_times(objective.weights)
    scale = np.append(
        1 / np.sqrt(objective.lambda0 + 0.25 * objective.keep * squares),
        1 / np.sqrt(0.25 * objective.weights.sum()),
    )
    found = minimize(
        lambda point: objective.value(scale * point),
        np.zeros_like(scale),
        jac=lambda point: scale * objective.gradient(scale * point),
        hessp=lambda point, v: scale * objective.second_times(scale * point, scale * v),
        method="trust-ncg",
        options={"gtol": tol, "maxiter": max_iter},
    )
    steepness = float(np.linalg.norm(found.jac))
    # A trust region that shrinks to nothing has reached the rounding error of the objective.
    if steepness > max(tol, 1e-6 * (1 + abs(found.fun))):
        message = (
            f"{owner}: Newton's method stopped at a gradient of {steepness:.2g}, after {found.nit} steps"
        )
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return np.asarray(scale * found.x), int(found.nit)


class LaplacePosterior:
    """N(mode, H^-1) with H the second derivative at the mode; the intercept is integrated out.

    H = D + J' M J, where J stacks (1 - f) x and 2 f (1 - f) w x^2 of every row, and M their curvatures. The
    smaller of P x P and 2N x 2N is factorised.
    """

    def __init__(self, objective: LogisticObjective, mode: Array, *, owner: str) -> None:
        self.objective, self.mode = objective, mode
        w = mode[:-1]
        self.slope: Array = 2 * objective.f * objective.keep * w
        self.diagonal: Array = objective.diagonal(mode)
        uu, ut, tt = objective.curvatures(mode)
        rows = objective.rows
        # With v = H_wb / H_bb, the weights' precision is H_ww - H_bb v v', and b depends on w by -v'w.
        self.base = float(uu.sum()) if objective.intercept else np.inf
        pull = objective.keep * rows.transposed_times(uu) + self.slope * rows.squared.transposed_times(ut)
        self.pull: Array = pull / self.base
        self.dual = rows.shape[1] > 2 * rows.shape[0]
        if self.dual and not np.all(self.diagonal > 0):
            raise ValueError(must(owner, "lambda0", "above 0 where f is 0", objective.lambda0))
        if self.dual:
            self._inner = self._dual_inner(np.append(uu, 0 * uu), ut, tt)
        else:
            self._lower = self._primal_lower(uu, ut, tt, owner)

    def _primal_lower(self, uu: Array, ut: Array, tt: Array, owner: str) -> Array:
        width = self.objective.rows.shape[1]
        a = self.objective.rows.columns(0, width) * self.objective.keep
        c = self.objective.rows.squared.columns(0, width) * self.slope
        cross = (a.T * ut) @ c
        matrix = (a.T * uu) @ a + cross + cross.T + (c.T * tt) @ c
        matrix[np.diag_indices_from(matrix)] += self.diagonal
        if self.objective.intercept:
            matrix -= self.base * np.outer(self.pull, self.pull)
        try:
            lower: Array = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            hint = "Take lambda0 > 0, or f > 0 for every feature."
            raise ValueError(
                must(owner, "X", "such that the second derivative has an inverse", "a singular one", hint)
            ) from None
        return lower

    def _stacked(self, d: Array, other: Rows) -> Array:
        """J diag(d) Z' for rows Z, (2N, M)."""
        rows, keep = self.objective.rows, self.objective.keep
        return np.vstack([rows.products(keep * d, other), rows.squared.products(self.slope * d, other)])

    def _dual_inner(self, uu: Array, ut: Array, tt: Array) -> Array:
        """S in H^-1 = D^-1 - D^-1 J' S J D^-1: S = (I + M K)^-1 M with K = J D^-1 J'."""
        rows, keep, size = self.objective.rows, self.objective.keep, len(ut)
        kernel = np.hstack(
            [
                self._stacked(keep / self.diagonal, rows),
                self._stacked(self.slope / self.diagonal, rows.squared),
            ]
        )
        middle = np.diag(uu)
        index = np.arange(size)
        middle[index, size + index] = middle[size + index, index] = ut
        middle[size + index, size + index] = tt
        if self.objective.intercept:
            sums = np.append(uu[:size], ut)
            middle -= np.outer(sums, sums) / self.base
        solved: Array = scipy.linalg.solve(np.eye(2 * size) + middle @ kernel, middle, check_finite=False)
        return 0.5 * (solved + solved.T)

    def variance(self, rows: Rows, keep: Array) -> Array:
        """Variance of b + sum_d keep_d x_d w_d at new rows, (N,)."""
        if not self.dual:
            z = rows.columns(0, rows.shape[1]) * keep - self.pull
            white = scipy.linalg.solve_triangular(self._lower, z.T, lower=True, check_finite=False)
            return np.asarray(np.square(white).sum(0) + 1 / self.base)
        alone = (
            rows.squared.times(keep**2 / self.diagonal)
            - 2 * rows.times(keep * self.pull / self.diagonal)
            + np.sum(self.pull**2 / self.diagonal)
        )
        own = self.objective.rows
        shifted = self.pull / self.diagonal
        shift = np.append(own.times(self.objective.keep * shifted), own.squared.times(self.slope * shifted))
        t = self._stacked(keep / self.diagonal, rows) - shift[:, None]
        known = np.einsum("im,im->m", t, self._inner @ t)
        return np.asarray(np.maximum(alone - known, 0.0) + 1 / self.base)

    def covariance(self) -> Array:
        """Posterior covariance of the weights, (P, P)."""
        width = len(self.diagonal)
        if not self.dual:
            inverse: Array = scipy.linalg.cho_solve((self._lower, True), np.eye(width), check_finite=False)
            return inverse
        rows = self.objective.rows
        j = (
            np.vstack(
                [rows.columns(0, width) * self.objective.keep, rows.squared.columns(0, width) * self.slope]
            )
            / self.diagonal
        )
        covariance = -j.T @ self._inner @ j
        covariance[np.diag_indices_from(covariance)] += 1 / self.diagonal
        return np.asarray(covariance)
