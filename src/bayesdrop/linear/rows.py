"""The rows of a design, centred and weighted. No other file depends on whether they are dense or sparse."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = ["Array", "Mask", "Rows", "SparseEntries"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class SparseEntries(NamedTuple):
    """The positions of the entries of sparse rows; columns with one entry are listed apart."""

    row: Any  #: of every stored entry
    alone: Any  #: which entries are the only ones of their column
    alone_row: Any  #: their rows
    alone_column: Any  #: their columns
    kept: Mask  #: columns with more than one entry, (P,)
    rest: Any  #: the entries of those
    indices: Any  #: their columns, among the columns kept
    indptr: Any  #: where their rows begin


class Rows:
    """diag(r) (X - 1 m'), the design in all formulas of the closed form.

    A sparse X stays sparse: the mean is subtracted in the products. A dense X is centred once.

    Args:
        X: (N, P), dense or `scipy.sparse`, float64.
        mean: m (P,), or None for rows that are not centred.
        weights: r^2 (N,), or None for ones.
    """

    def __init__(self, X: Any, *, mean: Array | None = None, weights: Array | None = None) -> None:
        self.sparse = bool(scipy.sparse.issparse(X))
        self.mean = mean
        self.root: Array = np.ones(X.shape[0]) if weights is None else np.sqrt(weights)
        if self.sparse:
            self.X = scipy.sparse.csr_array(X)
            self.X.sum_duplicates()
            if weights is not None:
                self.X = (scipy.sparse.diags_array(self.root) @ self.X).tocsr()
        else:
            self.X = X if mean is None else X - mean
            if weights is not None:
                self.X = self.X * self.root[:, None]

    @property
    def shape(self) -> tuple[int, int]:
        """(N, P)."""
        rows, columns = self.X.shape
        return int(rows), int(columns)

    def take(self, columns: Mask) -> Rows:
        """The same rows with some of their columns, by a mask."""
        taken = object.__new__(Rows)
        taken.sparse, taken.root = self.sparse, self.root
        taken.mean = None if self.mean is None else self.mean[columns]
        taken.X = self.X[:, columns]
        return taken

    @property
    def _later(self) -> Array | None:
        """The mean if it is subtracted in the products, that is, for sparse rows."""
        return self.mean if self.sparse else None

    def times(self, w: Array) -> Array:
        """X w, of a vector (P,) or a matrix (P, K)."""
        product: Array = self.X @ w
        if self._later is not None:
            product -= np.multiply.outer(self.root, self._later @ w)
        return product

    def transposed_times(self, u: Array) -> Array:
        """X' u, of a vector (N,) or a matrix (N, K)."""
        product: Array = self.X.T @ u
        if self._later is not None:
            product -= np.multiply.outer(self._later, self.root @ u)
        return product

    def squares(self) -> Array:
        """diag(X'X), shape (P,); a column that is constant but for rounding has 0 when rows are centred."""
        if not self.sparse:
            total: Array = np.einsum("np,np->p", self.X, self.X)
        elif self.mean is None:
            total = np.bincount(self.X.indices, self.X.data**2, minlength=self.X.shape[1]).astype(float)
        else:
            total = self._centred_squares(self.mean)
        if self.mean is not None:
            rounding = self.shape[0] * (8 * np.finfo(float).eps * np.max(self.root) * self.mean) ** 2
            total[total <= rounding] = 0.0
        return total

    def _centred_squares(self, mean: Array) -> Array:
        # Stored entries and zeros apart: sum x^2 - n m^2 would lose digits for columns far from 0.
        X, width = self.X, self.X.shape[1]
        root = np.repeat(self.root, np.diff(X.indptr))
        stored = np.bincount(X.indices, (X.data - root * mean[X.indices]) ** 2, minlength=width)
        absent = np.sum(self.root**2) - np.bincount(X.indices, root**2, minlength=width)
        total: Array = stored + np.maximum(absent, 0.0) * mean**2
        return total

    def gram(self) -> Array:
        """X'X, shape (P, P)."""
        if not self.sparse:
            product: Array = self.X.T @ self.X
            return product
        product = (self.X.T @ self.X).toarray()
        if self.mean is not None:
            pull = self.X.T @ self.root
            product -= np.outer(pull, self.mean) + np.outer(self.mean, pull)
            product += np.sum(self.root**2) * np.outer(self.mean, self.mean)
        return product

    def products(self, d: Array, other: Rows | None = None) -> Array:
        """X diag(d) Z' for other rows Z of the same columns (X itself if None), shape (N, M)."""
        other = self if other is None else other
        if not self.sparse and not other.sparse:
            if other is self and np.all(d >= 0):
                scaled = self.X * np.sqrt(d)
                product: Array = scaled @ scaled.T
            else:
                product = (self.X * d) @ other.X.T
            return product
        left, right = (rows.X if rows.sparse else scipy.sparse.csr_array(rows.X) for rows in (self, other))
        product = (left @ (right * d[None, :]).tocsr().T).toarray()
        # (X - r m') d (Z - s k')' = X d Z' - (X d k) s' - r (Z d m)' + (m'd k) r s'
        own, their = self._later, other._later
        if their is not None:
            product -= np.outer(left @ (d * their), other.root)
        if own is not None:
            product -= np.outer(self.root, right @ (d * own))
        if own is not None and their is not None:
            product += np.dot(own, d * their) * np.outer(self.root, other.root)
        return product

    def columns(self, start: int, stop: int) -> Array:
        """Some columns as a dense matrix (N, stop - start)."""
        if not self.sparse:
            part: Array = self.X[:, start:stop]
            return part
        part = self.X[:, start:stop].toarray()
        if self.mean is not None:
            part -= np.outer(self.root, self.mean[start:stop])
        return part

    @cached_property
    def entries(self) -> SparseEntries:
        """The positions of the entries of sparse rows."""
        X = self.X
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        stored = np.bincount(X.indices, minlength=X.shape[1])
        single, kept = stored[X.indices] == 1, stored > 1
        alone, rest = np.flatnonzero(single), np.flatnonzero(~single)
        index = (np.cumsum(kept) - 1).astype(X.indices.dtype)
        ends = np.append(0, np.cumsum(np.bincount(row[rest], minlength=X.shape[0]))).astype(X.indptr.dtype)
        return SparseEntries(
            row, alone, row[alone], X.indices[alone], kept, rest, index[X.indices[rest]], ends
        )

    @cached_property
    def squared(self) -> Rows:
        """The rows with every entry squared."""
        squared = object.__new__(Rows)
        squared.sparse, squared.root, squared.mean = self.sparse, self.root**2, None
        if not self.sparse:
            squared.X = np.square(self.X)
            return squared
        squared.X = self.X.power(2)
        if self.mean is not None:
            # r^2 (x - m)^2 is sparse but for r^2 m^2: rows with the mean -m^2.
            cross = scipy.sparse.diags_array(self.root) @ self.X * self.mean[None, :]
            squared.X = (squared.X - 2 * cross).tocsr()
            squared.mean = -(self.mean**2)
        return squared
