"""A start for networks: what boosted trees and a linear map predict of rows that they have not seen.

Trees find quickly what networks of few rows find late: which columns matter, and where the target jumps along
a column. Their predictions are further columns for a network, and they tell which columns to leave out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.errors import must, require
from bayesdrop.stacked.trees import Array, Places, Trees, joined_trees, read_trees
from bayesdrop.threads import thread_pool

__all__ = ["Guess", "Start", "guess_table"]

#: rows that a guess is fitted to, at most: more would gain little
_ROWS = 60_000
#: cells beyond which no start is made: neither their squares nor the middle of two can be trusted
_HUGE = 1e100
#: outputs (targets, labels, classes) for which trees are grown, at most
_OUTPUTS = 10
#: penalties of linear maps that are tried, divided by the number of rows
_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
#: a column matters if its harm is so many standard errors above 0
_SURE = 2.5
#: trees are grown so many at a time, until more of them do not help
_TREES = 40
#: rows below which trees are smaller and fewer
_FEW = 3000
#: rows from which on the trees of several parts grow in threads
_SHARED = 20_000
#: rows of a part, at most, that choose the number of trees and show what shuffling a column costs
_SOME = 1000
#: values of trees at rows that are held at a time
_CELLS = 2**18
#: numbers of rows with a shuffled column that are held at a time
_CHANGED = 2**22


@dataclass(frozen=True, eq=False)
class Guess:
    """What boosted trees and a linear map predict of a row: C numbers each.

    There is one number for each target or label; for classes the log-odds of the second of two, or one
    number for each of more.

    Attributes:
        trees: predict the first C numbers.
        slopes: (K, C) of the linear map, which predicts the other C.
        levels: (C,) of the linear map, which predicts x slopes + levels.
    """

    trees: Trees
    slopes: Array
    levels: Array

    @property
    def width(self) -> int:
        """How many numbers it gives: 2 C."""
        return 2 * len(self.levels)

    def __call__(self, x: Array) -> Array:
        """(N, K) columns to (N, 2 C) numbers: those of the trees, then those of the linear map."""
        linear = np.broadcast_to(self.levels, (len(x), len(self.levels))).copy()
        # Column by column: the last bits of a product of matrices depend on how many rows there are.
        for column, slopes in zip(x.T, self.slopes, strict=True):
            linear += column[:, None] * slopes
        return np.concatenate([self.trees(x), linear], 1)

    def as_dict(self) -> dict[str, NDArray[Any]]:
        """The arrays by name; `from_dict` is the way back."""
        return {**self.trees.as_dict(), "slopes": self.slopes, "levels": self.levels}

    @staticmethod
    def from_dict(arrays: dict[str, NDArray[Any]], columns: int) -> Guess:
        """From the arrays of `as_dict`; a `ValueError` if these make no sense for so many columns.

        Args:
            arrays: by name.
            columns: K of the table.
        """
        rest = dict(arrays)
        slopes, levels = (rest.pop(name, np.zeros(0)) for name in ("slopes", "levels"))
        trees = Trees.from_dict(rest, columns)
        shape = (columns, len(trees.base))
        whole = slopes.dtype == levels.dtype == np.float64 and np.isfinite(slopes).all()
        if slopes.shape != shape or levels.shape != shape[1:] or not whole or not np.isfinite(levels).all():
            raise ValueError(must("Guess", "slopes", f"finite and of shape {shape}", slopes.shape))
        return Guess(trees, slopes, levels)


@dataclass(frozen=True, eq=False)
class Start:
    """Guesses for a table: one for every part of the rows, fitted to the other parts.

    A row is therefore never predicted by a guess that has seen its target. A network that holds a part out
    does learn from what the guesses of other parts predict, and these have seen the targets of that part:
    the slight leak of all stacking.

    Attributes:
        parts: (N,) the part of every row.
        guesses: one for each part.
        harm: (parts, K) by how much the mean loss of a part's rows, predicted by the trees of its guess,
            grows when the values of a column are shuffled among them.
        doubt: (parts, K) standard errors of `harm`.
        predicted: (N, 2 C) predictions of every row, by the guess of its part.
    """

    parts: Places
    guesses: tuple[Guess, ...]
    harm: Array
    doubt: Array
    predicted: Array

    def telling(self, part: int, count: int) -> Places:
        """Places of the `count` columns that matter most to all parts but this one, in the table's order."""
        others = np.arange(len(self.guesses)) != part
        return np.sort(np.argsort(-self.harm[others].mean(0), kind="stable")[:count])

    def with_rows(self, x: Array) -> Start:
        """The start with further rows, which the mean of all guesses predicts: none has seen them.

        Args:
            x: (M, K) columns of the new rows.
        """
        new = np.mean([guess(x) for guess in self.guesses], 0)
        parts = np.concatenate([self.parts, np.arange(len(x)) % len(self.guesses)])
        predicted = np.concatenate([self.predicted, new])
        return Start(parts, self.guesses, self.harm, self.doubt, predicted)

    @property
    def columns(self) -> int:
        """How many columns matter: by more than chance, and by 1 % of what the most important one does."""
        harm, doubt = self.harm.mean(0), np.sqrt(np.square(self.doubt).sum(0)) / len(self.guesses)
        return max(1, int(((harm > _SURE * doubt) & (harm > 0.01 * harm.max())).sum()))


def guess_table(
    x: Array,
    y: NDArray[Any],
    parts: Places,
    *,
    classes: int | None = None,
    weight: Array | None = None,
    seed: int = 0,
) -> Start | None:
    """The start of a table: for each part, trees and a linear map are fitted to all other parts.

    The number of trees and the penalty of the linear maps are those that suit unseen rows best.

    Args:
        x: (N, K) columns.
        y: (N, D) targets, standardised; (N,) classes 0, 1, ...; or (N, D) labels as bool.
        parts: (N,) the part of every row: 0, 1, ...
        classes: how many classes there are.
        weight: (N,) of the rows.
        seed: of everything random.

    Returns: None where there cannot be one: without some part, a class or a value of a label is missing; or
        there are more than 10 outputs; or cells too large to be squared.
    """
    problems = _problems(y, classes)
    count = int(parts.max()) + 1
    if np.abs(x).max() > _HUGE:
        return None
    if len(problems) > _OUTPUTS or (classes is not None and classes > _OUTPUTS):
        return None
    others = [np.flatnonzero(parts != part) for part in range(count)]
    if any(one.kind != "number" and not one.is_complete(rows) for one in problems for rows in others):
        return None
    source = np.random.default_rng(seed)
    fitted = [np.sort(source.permutation(rows)[:_ROWS]) if len(rows) > _ROWS else rows for rows in others]
    unseen = [np.sort(source.permutation(np.flatnonzero(parts == part))[:_SOME]) for part in range(count)]
    grown, best = _grown(x, fitted, unseen, problems, weight, seed=seed)
    short = tuple(trees.first(best) for trees in grown)
    maps = _linear_maps(x, fitted, unseen, problems, weight)
    guesses = tuple(Guess(trees, *one) for trees, one in zip(short, maps, strict=True))
    predicted = np.empty((len(x), guesses[0].width))
    for part, guess in enumerate(guesses):
        own = parts == part
        predicted[own] = guess(x[own])
    found = [_shuffled(x, *one, problems, source) for one in zip(short, unseen, strict=True)]
    harm, doubt = (np.stack(values) for values in zip(*found, strict=True))
    return Start(parts, guesses, harm, doubt, predicted)


def _grown(
    x: Array,
    fitted: Sequence[Places],
    unseen: Sequence[Places],
    problems: Sequence[_Problem],
    weight: Array | None,
    *,
    seed: int,
) -> tuple[list[Trees], int]:
    """Trees of every part, and how many of them suit unseen rows best: they grow until more do not help."""
    libraries = require("threadpoolctl", extra="sklearn", owner="boosted trees").ThreadpoolController()
    models = [
        [one.trees(len(some), x.shape[1], seed=seed + part) for one in problems]
        for part, some in enumerate(fitted)
    ]
    most = 120 if x.shape[1] > 50 or len(x) < _FEW else 250

    def grow(part: int, count: int) -> None:
        some = fitted[part]
        given = None if weight is None else weight[some]
        # One thread a model: sums over several threads are rounded differently from machine to machine, and
        # a tree may then split elsewhere. OpenMP's number is this thread's own.
        with libraries.limit(limits=1, user_api="openmp"):
            for model, one in zip(models[part], problems, strict=True):
                model.set_params(max_iter=count).fit(x[some], one.y[some], given)

    # Trees of few rows are mostly Python, which threads do not share.
    workers = min(torch.get_num_threads(), len(models)) if len(fitted[0]) >= _SHARED else 1
    for count in range(_TREES, most + _TREES, _TREES):
        with thread_pool(workers) as pool:
            list(pool.map(grow, range(len(models)), [min(count, most)] * len(models)))
        grown = [joined_trees([read_trees(model) for model in own]) for own in models]
        best = _best_count(x, grown, unseen, problems, weight)
        if best < 0.7 * count:
            break
    return grown, best


def _linear_maps(
    x: Array,
    fitted: Sequence[Places],
    unseen: Sequence[Places],
    problems: Sequence[_Problem],
    weight: Array | None,
) -> list[tuple[Array, Array]]:
    """Slopes and levels for every part, with the penalty that suits unseen rows best."""
    mean, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, np.inf)
    z = (x - mean) / scale
    best: tuple[float, list[tuple[Array, Array]]] | None = None
    for strength in _STRENGTHS:
        made, loss = [], 0.0
        for rows, apart in zip(fitted, unseen, strict=True):
            fits = [one.linear(z[rows], rows, weight, strength) for one in problems]
            slopes = np.concatenate([slope for slope, _ in fits], 1)
            levels = np.concatenate([level for _, level in fits])
            loss += float(_loss(z[apart] @ slopes + levels, apart, problems).sum())
            made.append((slopes, levels))
        if best is None or loss < best[0]:
            best = (loss, made)
    assert best is not None
    # In the columns' own units.
    return [(slopes / scale[:, None], levels - (mean / scale) @ slopes) for slopes, levels in best[1]]


def _shuffled(
    x: Array, trees: Trees, rows: Places, problems: Sequence[_Problem], source: np.random.Generator
) -> tuple[Array, Array]:
    """(K,) by how much the mean loss of rows grows when a column is shuffled, and (K,) standard errors."""
    here = x[rows]
    before = _loss(trees(here), rows, problems)
    harm, doubt = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    # Shuffling a column that no tree asks for changes nothing.
    asked = np.unique(trees.feature[trees.left != np.arange(len(trees.left))])
    # Several columns at a time: each row costs less if there are many.
    together = max(1, _CHANGED // here.size)
    for first in range(0, len(asked), together):
        columns = asked[first : first + together]
        changed = np.tile(here, (len(columns), 1, 1))
        for part, column in zip(changed, columns, strict=True):
            part[:, column] = source.permutation(part[:, column])
        scores = trees(changed.reshape(-1, here.shape[1])).reshape(len(columns), len(rows), -1)
        for column, score in zip(columns, scores, strict=True):
            grows = _loss(score, rows, problems) - before
            harm[column], doubt[column] = grows.mean(), grows.std() / np.sqrt(len(rows))
    return harm, doubt


def _loss(scores: Array, rows: Places, problems: Sequence[_Problem]) -> Array:
    """(n, ...) loss of scores (n, ..., C) of some rows, summed over problems."""
    outputs = np.split(scores, len(problems), -1)
    total: Array = np.sum([one.loss(own, rows) for one, own in zip(problems, outputs, strict=True)], 0)
    return total


def _problems(y: NDArray[Any], classes: int | None) -> list[_Problem]:
    if classes is not None:
        return [_Problem("classes", y, classes)]
    kind = "label" if y.dtype == np.bool_ else "number"
    return [_Problem(kind, y[:, column], 2) for column in range(y.shape[1])]


@dataclass(frozen=True, eq=False)
class _Problem:
    """One target, one label, or the classes of a table."""

    kind: str  #: "number", "label" or "classes"
    y: NDArray[Any]
    classes: int

    def is_complete(self, rows: Places) -> bool:
        """Whether every class has one of these rows."""
        return len(np.unique(self.y[rows])) == self.classes

    def trees(self, rows: int, columns: int, *, seed: int) -> Any:
        """A boosting model of scikit-learn for so many rows and columns; further fits add trees to it."""
        ensemble = require("sklearn.ensemble", extra="sklearn", owner="boosted trees")
        number = self.kind == "number"
        kind = ensemble.HistGradientBoostingRegressor if number else ensemble.HistGradientBoostingClassifier
        return kind(
            learning_rate=0.12 if rows < _FEW else 0.07,
            max_leaf_nodes=16 if rows < _FEW else 31,
            min_samples_leaf=max(4, min(20, rows // 40)),
            l2_regularization=1.0,
            max_features=0.6 if columns <= 50 else 0.3,
            early_stopping=False,
            warm_start=True,
            random_state=seed % 2**32,
        )

    def linear(self, z: Array, rows: Places, weight: Array | None, strength: float) -> tuple[Array, Array]:
        """(K, C) slopes and (C,) levels for standardised columns: ridge or logistic regression.

        Args:
            z: (n, K) standardised columns of some rows.
            rows: (n,) their places.
            weight: of all rows.
            strength: of the penalty, divided by the number of rows.
        """
        models = require("sklearn.linear_model", extra="sklearn", owner="boosted trees")
        own = None if weight is None else weight[rows]
        if self.kind == "number":
            model = models.Ridge(alpha=strength * len(rows)).fit(z, self.y[rows], own)
        else:
            model = models.LogisticRegression(C=1 / (strength * len(rows)), max_iter=200)
            with warnings.catch_warnings():
                # That it has not quite converged does not matter for a guess.
                warnings.simplefilter("ignore")
                model.fit(z, self.y[rows], own)
        slopes = np.atleast_2d(model.coef_).T
        return slopes, np.atleast_1d(model.intercept_)

    def loss(self, scores: Array, rows: Places) -> Array:
        """(n, ...) loss of scores (n, ..., C) of some rows."""
        y = self.y[rows]
        if self.kind == "number":
            value: Array = np.square(scores[..., 0] - y.reshape(-1, *[1] * (scores.ndim - 2)))
            return value
        if scores.shape[-1] == 1:
            sign = np.where(y.astype(bool), -1.0, 1.0).reshape(-1, *[1] * (scores.ndim - 2))
            return np.logaddexp(0, sign * scores[..., 0])
        largest = scores.max(-1, keepdims=True)
        total = np.log(np.exp(scores - largest).sum(-1)) + largest[..., 0]
        own = np.take_along_axis(scores, y.reshape(-1, *[1] * (scores.ndim - 1)), -1)[..., 0]
        value = total - own
        return value


def _best_count(
    x: Array,
    grown: Sequence[Trees],
    unseen: Sequence[Places],
    problems: Sequence[_Problem],
    weight: Array | None,
) -> int:
    """The number of trees with which unseen rows have the least loss."""
    total = np.zeros(len(grown[0].roots))
    for trees, rows in zip(grown, unseen, strict=True):
        step = max(1, _CELLS // max(1, trees.roots.size))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            loss = _loss(trees.leaves(x[some]).cumsum(1) + trees.base, some, problems)
            total += (loss if weight is None else loss * weight[some, None]).sum(0)
    return int(total.argmin()) + 1
