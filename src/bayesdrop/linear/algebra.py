"""The precision of the weights, Lambda, and its two factorisations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from bayesdrop.errors import must
from bayesdrop.linear.rows import Array, Rows

__all__ = ["DualFactor", "Factor", "Precision", "PrimalFactor", "precision_of"]

_CHUNK = 512  # columns that are dense at a time
_SINGULAR = "Take lambda0 > 0, or f > 0 for every feature, or leave out features that others determine."


@dataclass(frozen=True, eq=False)
class Precision:
    """Lambda = diag(D) + Q X'X Q, with Q = diag(1 - f) and D = lambda0 + f (1 - f) diag(X'X).

    The posterior of the weights is N(mu, sigma^2 Lambda^-1). With one f for all features this is
    lambda0 I + f (1 - f) diag(X'X) + (1 - f)^2 X'X.

    Reference: Herlau, Morup & Schmidt (2022), Eq. 14.
    """

    rows: Rows  #: X, weighted and centred
    keep: Array  #: 1 - f, shape (P,)
    diagonal: Array  #: D, shape (P,)
    lambda0: float
    owner: str = "BayesianDropoutRegression"

    def design_times(self, w: Array) -> Array:
        """A w with A = X Q."""
        return self.rows.times((self.keep * w.T).T)

    def design_transposed_times(self, u: Array) -> Array:
        """A' u with A = X Q."""
        return (self.keep * self.rows.transposed_times(u).T).T

    def times(self, w: Array) -> Array:
        """Lambda w."""
        return (self.diagonal * w.T).T + self.design_transposed_times(self.design_times(w))


def precision_of(
    rows: Rows,
    f: Array,
    lambda0: float,
    squares: Array | None = None,
    owner: str = "BayesianDropoutRegression",
) -> Precision:
    """The precision for drop rates f (P,) and prior lambda0; `squares` is diag(X'X) where it is known."""
    squares = rows.squares() if squares is None else squares
    return Precision(rows, 1 - f, lambda0 + f * (1 - f) * squares, lambda0, owner)


class Factor(Protocol):
    """A factorised Lambda."""

    log_det: float

    def solve(self, b: Array) -> Array:
        """Lambda^-1 b, of a vector (P,) or a matrix (P, K)."""

    def fit(self, y: Array) -> tuple[Array, Array]:
        """mu = Lambda^-1 A'y and R = y'y - mu'Lambda mu, one for each column of y."""

    def leverage(self, rows: Rows, scale: Array | None = None) -> Array:
        """a' Lambda^-1 a for every row x, with a = scale * x; scale is 1 - f if None."""

    def hat(self) -> Array:
        """a' Lambda^-1 a of the rows that Lambda was made from, (N,)."""

    def inverse_diagonal(self) -> Array:
        """diag(Lambda^-1)."""

    def inverse(self) -> Array:
        """Lambda^-1, (P, P)."""

    def sample(self, num_draws: int, generator: np.random.Generator) -> Array:
        """Draws of N(0, Lambda^-1), shape (P, T)."""


class PrimalFactor:
    """Cholesky factor of Lambda, P x P: for P up to a few thousand.

    Lambda is scaled to a unit diagonal first, so that columns of very different sizes lose no accuracy.

    Args:
        precision: Lambda.
        gram: X'X if it is known.
    """

    def __init__(self, precision: Precision, gram: Array | None = None) -> None:
        self.precision = precision
        gram = precision.rows.gram() if gram is None else gram
        diagonal = precision.keep**2 * np.diagonal(gram) + precision.diagonal
        self.scale: Array = 1 / np.sqrt(diagonal)
        matrix = gram * (self.scale * precision.keep)
        matrix *= (self.scale * precision.keep)[:, None]
        matrix[np.diag_indices_from(matrix)] = 1.0
        # The transpose is the same matrix in LAPACK's memory layout.
        self.lower = _cholesky(matrix.T, precision.owner)
        self.log_det = float(2 * np.sum(np.log(np.diagonal(self.lower)) - np.log(self.scale)))

    def solve(self, b: Array) -> Array:
        """Lambda^-1 b."""
        scaled = (self.scale * b.T).T
        solved = scipy.linalg.cho_solve((self.lower, True), scaled, overwrite_b=True, check_finite=False)
        return np.asarray((self.scale * solved.T).T)

    def fit(self, y: Array) -> tuple[Array, Array]:
        """Posterior mean and residual."""
        mean = self.solve(self.precision.design_transposed_times(y))
        # With e = y - A mu, R = e'e + mu'D mu: a sum of squares; y'y - mu'Lambda mu would lose digits.
        error = y - self.precision.design_times(mean)
        penalty = (self.precision.diagonal * np.square(mean).T).T.sum(0)
        residual: Array = np.square(error).sum(0) + penalty
        return mean, residual

    def _whitened(self, b: Array) -> Array:
        solved: Array = scipy.linalg.solve_triangular(
            self.lower, (self.scale * b.T).T, lower=True, check_finite=False
        )
        return solved

    def leverage(self, rows: Rows, scale: Array | None = None) -> Array:
        """a' Lambda^-1 a for every row."""
        scale = self.precision.keep if scale is None else scale
        parts = []
        for start in range(0, rows.shape[0], _CHUNK):
            dense = _dense_rows(rows, start, start + _CHUNK)
            parts.append(np.square(self._whitened((dense * scale).T)).sum(0))
        return np.concatenate(parts)

    def hat(self) -> Array:
        """a' Lambda^-1 a of the training rows."""
        return self.leverage(self.precision.rows)

    def inverse(self) -> Array:
        """Lambda^-1."""
        # L over the scale is the factor of Lambda itself, and its copy becomes the inverse.
        lower = np.multiply(self.lower, 1 / self.scale[:, None], order="F")
        inverse, info = lapack.dpotri(lower, lower=1, overwrite_c=1)
        if info != 0:
            raise ValueError(must(self.precision.owner, "X", "of full column rank here", "a singular system"))
        whole: Array = inverse
        for start in range(0, len(whole), _CHUNK):
            stop = start + _CHUNK
            block = whole[start:stop, start:stop]
            block += np.tril(block, -1).T
            whole[start:stop, stop:] = whole[stop:, start:stop].T
        return whole

    def inverse_diagonal(self) -> Array:
        """diag(Lambda^-1)."""
        inverse, _ = lapack.dtrtri(self.lower, lower=1)
        return np.asarray(np.einsum("ij,ij->j", inverse, inverse) * self.scale**2)

    def sample(self, num_draws: int, generator: np.random.Generator) -> Array:
        """Draws of N(0, Lambda^-1), shape (P, T)."""
        noise = generator.standard_normal((self.lower.shape[0], num_draws))
        solved = scipy.linalg.solve_triangular(self.lower, noise, lower=True, trans="T", check_finite=False)
        return np.asarray(self.scale[:, None] * solved)


class DualFactor:
    """Cholesky factor of G = I + A D^-1 A', N x N: for many more features than rows (Woodbury).

    Lambda^-1 = D^-1 - D^-1 A' G^-1 A D^-1, log |Lambda| = sum log D + log |G|, mu = D^-1 A' G^-1 y and
    R = y' G^-1 y.

    Args:
        precision: Lambda; its D must be positive.
        kernel: A D^-1 A' if it is known; it is overwritten.
    """

    def __init__(self, precision: Precision, kernel: Array | None = None) -> None:
        self.precision = precision
        if not np.all(precision.diagonal > 0):
            got = f"lambda0 = {precision.lambda0} and f = 0 for some features"
            hint = "Or take solver='primal', which can do without, if no feature is determined by others."
            raise ValueError(must(precision.owner, "lambda0", "above 0 where f is 0 (dual)", got, hint))
        self.inner: Array = precision.keep**2 / precision.diagonal
        matrix = precision.rows.products(self.inner) if kernel is None else kernel
        matrix[np.diag_indices_from(matrix)] += 1.0
        self.lower = _cholesky(matrix, precision.owner, scaled=False)
        self.log_det = float(np.sum(np.log(precision.diagonal)) + 2 * np.sum(np.log(np.diagonal(self.lower))))

    def solve_rows(self, u: Array) -> Array:
        """G^-1 u."""
        solved: Array = scipy.linalg.cho_solve((self.lower, True), u, check_finite=False)
        return solved

    def solve(self, b: Array) -> Array:
        """Lambda^-1 b."""
        scaled = (b.T / self.precision.diagonal).T
        inner = self.solve_rows(self.precision.design_times(scaled))
        correction = self.precision.design_transposed_times(inner)
        return scaled - (correction.T / self.precision.diagonal).T

    def fit(self, y: Array) -> tuple[Array, Array]:
        """Posterior mean and residual."""
        dual = self.solve_rows(y)
        mean = (self.precision.design_transposed_times(dual).T / self.precision.diagonal).T
        return mean, np.sum(y * dual, axis=0)

    def leverage(self, rows: Rows, scale: Array | None = None) -> Array:
        """a' Lambda^-1 a for every row."""
        scale = self.precision.keep if scale is None else scale
        cross = self.precision.rows.products(self.precision.keep * scale / self.precision.diagonal, rows)
        white = scipy.linalg.solve_triangular(self.lower, cross, lower=True, check_finite=False)
        alone = rows.squared.times(scale**2 / self.precision.diagonal)
        return np.asarray(np.maximum(alone - np.square(white).sum(0), 0.0))

    def hat(self) -> Array:
        """a' Lambda^-1 a of the training rows: the diagonal of I - G^-1."""
        inverse, _ = lapack.dtrtri(self.lower, lower=1)
        return np.asarray(1 - np.einsum("ij,ij->j", inverse, inverse))

    def low_rank_factor(self, start: int, stop: int) -> Array:
        """Some rows of U in Lambda^-1 = D^-1 - U U', U = D^-1 A' L^-T, shape (stop - start, N)."""
        part = slice(start, stop)
        columns = self.precision.rows.columns(start, stop) * (
            self.precision.keep[part] / self.precision.diagonal[part]
        )
        white = scipy.linalg.solve_triangular(self.lower, columns, lower=True, check_finite=False)
        return np.asarray(white.T)

    def inverse_diagonal(self) -> Array:
        """diag(Lambda^-1), a few columns of X at a time."""
        inverse: Array = 1 / self.precision.diagonal
        for start in range(0, len(inverse), _CHUNK):
            stop = min(start + _CHUNK, len(inverse))
            inverse[start:stop] -= np.square(self.low_rank_factor(start, stop)).sum(1)
        return inverse

    def inverse(self) -> Array:
        """Lambda^-1."""
        factor = self.low_rank_factor(0, len(self.inner))
        inverse = -factor @ factor.T
        inverse[np.diag_indices_from(inverse)] += 1 / self.precision.diagonal
        return inverse

    def sample(self, num_draws: int, generator: np.random.Generator) -> Array:
        """Draws of N(0, Lambda^-1), shape (P, T), without a P x P matrix (Bhattacharya et al. 2016)."""
        root = np.sqrt(self.precision.diagonal)[:, None]
        prior = generator.standard_normal((len(root), num_draws)) / root
        noise = generator.standard_normal((self.lower.shape[0], num_draws))
        inner = self.solve_rows(self.precision.design_times(prior) + noise)
        return np.asarray(prior - self.precision.design_transposed_times(inner) / root**2)


def _dense_rows(rows: Rows, start: int, stop: int) -> Array:
    part = rows.X[start:stop]
    if not rows.sparse:
        return np.asarray(part)
    dense = part.toarray()
    if rows.mean is not None:
        dense -= np.outer(rows.root[start:stop], rows.mean)
    return np.asarray(dense)


def _cholesky(matrix: Array, owner: str, *, scaled: bool = True) -> Array:
    """The lower factor; raise if the matrix (of unit diagonal if `scaled`) is singular."""
    size = matrix.shape[0]
    try:
        lower: Array = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        singular = True
    else:
        # With a unit diagonal, the squares on L's diagonal are shares of variance that no earlier
        # column explains: at rounding level the column is a combination of the others.
        singular = scaled and bool(np.min(np.diagonal(lower)) ** 2 <= 4 * size * np.finfo(float).eps)
    if singular:
        raise ValueError(must(owner, "X", "such that Lambda has an inverse", "a singular system", _SINGULAR))
    return lower
