"""Conjugate gradients with the diagonal D as preconditioner: the posterior mean without a factorisation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from bayesdrop.linear.algebra import Precision
from bayesdrop.linear.rows import Array

__all__ = ["MeanFit", "conjugate_gradients", "fit_by_conjugate_gradients"]


class MeanFit(NamedTuple):
    """A posterior mean found by iteration."""

    mean: Array  #: mu, (P,) or (P, M)
    residual: Array  #: R, () or (M,)
    iterations: int
    state: Array  #: the solution of the linear system; a start for a similar system


def conjugate_gradients(
    operator: Callable[[Array], Array],
    b: Array,
    *,
    tol: float,
    max_iter: int,
    precondition: Array | None = None,
    start: Array | None = None,
    owner: str = "conjugate_gradients",
) -> tuple[Array, Array, int]:
    """Solve K x = b for a symmetric positive definite K, all columns of b at once.

    Stops when |b - K x| <= tol |b| for every column, with a `ConvergenceWarning` if that is not reached.

    Args:
        operator: x -> K x, shape (n, m) -> (n, m).
        b: (n, m).
        tol: relative size of the residual.
        max_iter: most products with K.
        precondition: the inverse of a diagonal close to K, (n,).
        start: first guess, zeros if None.
        owner: the name in the warning.

    Returns: x, the residual b - K x, and the number of iterations.
    """
    x = np.zeros_like(b) if start is None else start.copy()
    residual = b.copy() if start is None else b - operator(x)
    goal = tol * np.linalg.norm(b, axis=0)
    inverse = None if precondition is None else precondition[:, None]
    z = residual if inverse is None else inverse * residual
    direction = z.copy()
    power = np.einsum("nm,nm->m", residual, z)
    for iteration in range(max_iter + 1):
        if np.all(np.linalg.norm(residual, axis=0) <= goal):
            return x, residual, iteration
        if iteration == max_iter:
            break
        image = operator(direction)
        curvature = np.einsum("nm,nm->m", direction, image)
        # A column that is solved exactly has the direction 0.
        step = np.divide(power, curvature, out=np.zeros_like(power), where=curvature > 0)
        x += step * direction
        residual -= step * image
        z = residual if inverse is None else inverse * residual
        before, power = power, np.einsum("nm,nm->m", residual, z)
        direction *= np.divide(power, before, out=np.zeros_like(power), where=before > 0)
        direction += z
    message = f"{owner}: conjugate gradients did not reach tol={tol:g} in {max_iter} iterations."
    warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return x, residual, max_iter


def fit_by_conjugate_gradients(
    precision: Precision,
    y: Array,
    *,
    tol: float,
    max_iter: int | None = None,
    start: Array | None = None,
) -> MeanFit:
    """mu = Lambda^-1 A'y and R, by products with X alone.

    With many more features than rows the unknown is G^-1 y, G = I + A D^-1 A'. D^-1/2 Lambda D^-1/2 and G
    have the same eigenvalues apart from ones, so these are the iterations of the system in the weights
    with preconditioner D, on vectors of length N instead of P. They are preconditioned again by the diagonal
    of G: rows of a bag of words are far from each other, so that G is nearly diagonal.

    Args:
        precision: Lambda.
        y: (N,) or (N, M), weighted and centred as the rows are.
        tol: relative size of the residual.
        max_iter: most iterations; ten times the size of the system if None.
        start: the `state` of a similar system.
    """
    targets = y[:, None] if y.ndim == 1 else y
    rows, columns = precision.rows.shape
    dual = columns > 2 * rows and bool(np.all(precision.diagonal > 0))
    max_iter = 10 * min(rows, columns) + 10 if max_iter is None else max_iter
    solve = _dual if dual else _primal
    if start is not None and start.shape != (rows if dual else columns, targets.shape[1]):
        start = None
    mean, residual, iterations, state = solve(precision, targets, tol, max_iter, start)
    if y.ndim == 1:
        return MeanFit(mean[:, 0], residual[0], iterations, state)
    return MeanFit(mean, residual, iterations, state)


def _dual(
    precision: Precision, y: Array, tol: float, max_iter: int, start: Array | None
) -> tuple[Array, Array, int, Array]:
    kernel, diagonal = _kernel(precision)
    dual, left, iterations = conjugate_gradients(
        kernel,
        y,
        tol=tol,
        max_iter=max_iter,
        precondition=1 / diagonal,
        start=start,
        owner=precision.owner,
    )
    mean = precision.design_transposed_times(dual) / precision.diagonal[:, None]
    # A lower bound of y'G^-1 y, with an error of second order in the remaining residual.
    return mean, np.sum(dual * (y + left), axis=0), iterations, dual


def _kernel(precision: Precision) -> tuple[Callable[[Array], Array], Array]:
    """u -> G u, with the scaling by D done once, and the diagonal of G, (N,)."""
    rows = precision.rows
    inner = precision.keep / np.sqrt(precision.diagonal)
    if not rows.sparse:
        scaled = rows.X * inner
        turned = scaled.T
        return lambda u: u + scaled @ (turned @ u), 1 + np.einsum("np,np->n", scaled, scaled)
    X, root = rows.X, rows.root
    mean = np.zeros(X.shape[1]) if rows.mean is None else rows.mean * inner
    data = X.data * inner[X.indices]
    # In a bag of words most columns have one entry, x in row i: (x e_i - m r)(x e_i - m r)' needs no product,
    # and what remains is a matrix of few columns, which stays in cache.
    entries, size = rows.entries, X.shape[0]
    single = data[entries.alone]
    diagonal = 1 + np.bincount(entries.alone_row, single**2, minlength=size)[:, None]
    cross = np.bincount(entries.alone_row, single * mean[entries.alone_column], minlength=size)
    constant = float(np.sum(mean[~entries.kept] ** 2))
    stored = (data[entries.rest], entries.indices, entries.indptr)
    rest = scipy.sparse.csr_array(stored, shape=(size, int(np.count_nonzero(entries.kept))))
    turned, centre = rest.T, mean[entries.kept]

    def plain(u: Array) -> Array:
        image: Array = diagonal * u
        image += rest @ (turned @ u)
        return image

    def centred(u: Array) -> Array:
        total = root @ u
        w = turned @ u - np.multiply.outer(centre, total)
        image: Array = diagonal * u
        image += rest @ w
        image -= np.multiply.outer(cross, total)
        image += np.multiply.outer(root, constant * total - cross @ u - centre @ w)
        return image

    # r^2 (x - m)^2, summed over stored entries and zeros.
    sizes: Array = np.bincount(entries.row, data**2, minlength=size).astype(float)
    sizes += 1 + root**2 * float(np.sum(mean**2))
    if rows.mean is not None:
        sizes -= 2 * root * np.bincount(entries.row, data * mean[X.indices], minlength=size)
    return (plain if rows.mean is None else centred), sizes


def _primal(
    precision: Precision, y: Array, tol: float, max_iter: int, start: Array | None
) -> tuple[Array, Array, int, Array]:
    diagonal = precision.diagonal
    if np.all(precision.keep == 1) or not np.all(diagonal > 0):
        # If nothing is dropped, D is lambda0 everywhere; the diagonal of Lambda is a better preconditioner.
        diagonal = diagonal + precision.keep**2 * precision.rows.squares()
    b = precision.design_transposed_times(y)
    mean, _, iterations = conjugate_gradients(
        precision.times,
        b,
        tol=tol,
        max_iter=max_iter,
        precondition=1 / diagonal,
        start=start,
        owner=precision.owner,
    )
    error = y - precision.design_times(mean)
    residual = np.square(error).sum(0) + np.sum(precision.diagonal[:, None] * mean**2, axis=0)
    return mean, residual, iterations, mean
