"""Baselines: what simpler models make of the same rows, and whether a model is better than they are.

The mean or the commonest label, a linear model (ridge or logistic regression) and gradient boosting, all of
scikit-learn and with its usual settings: what somebody would have tried first.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import Array
from bayesdrop.tables.judge import Judged, plain_measures
from bayesdrop.tables.rows import TrainingRows
from bayesdrop.tables.written import written

__all__ = ["CLEAR", "Baseline", "Comparison", "compare", "fit_baselines"]

#: trees that boosting grows at most, over all classes
_MOST_TREES = 600
#: standard errors that the difference from the best of three baselines exceeds by chance once in twenty times
CLEAR = 2.4
#: rows below which nothing can be compared
_LEAST_ROWS = 10
#: parts that rows are cut into when they are both learned from and scored
_FIFTHS = 5


@dataclass(frozen=True, eq=False)
class Baseline:
    """A simple model, scored on rows that it has not seen.

    Attributes:
        name: for a person.
        measures: by name, as `plain_measures` gives them.
        loss: (N,) squared errors, or minus the log of the label's probability.
    """

    name: str
    measures: dict[str, float]
    loss: Array


def fit_baselines(
    rows: TrainingRows,
    x: Array,
    y: NDArray[Any],
    *,
    classes: int,
    standardise: Callable[[Array], Array],
    numbers: Array | None = None,
    groups: NDArray[np.int64] | None = None,
) -> list[Baseline]:
    """Fit every baseline to `rows`, and score it on others.

    If rows to score are among those to learn from, each fifth of them is scored by a baseline that has not
    learned from that fifth.

    Args:
        rows: to learn from; those without a target are left out.
        x: (N, K) inputs of the rows to score.
        y: (N,) their numbers, or places of their labels.
        classes: how many labels there are; 0 for numbers.
        standardise: (N, K) inputs to (N, K) of mean 0 and variance 1, as the model's own are.
        numbers: (N,) numbers of the rows to score in the table of `rows`; None if they are of another table.
        groups: (N,) the group of each of them; rows of one group are scored together.
    """
    known = ~np.isnan(rows.y)
    train, new, target = standardise(rows.x[known]), standardise(x), rows.y[known]
    make, predict = (_label_models, _probabilities) if classes else (_number_models, _numbers)
    fifths = [(np.ones(len(y), dtype=bool), np.ones(len(target), dtype=bool))]
    if numbers is not None and np.isin(rows.numbers[known], numbers).any():
        units = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
        count = int(units.max()) + 1
        part = (np.random.default_rng(0).permutation(count) % min(_FIFTHS, max(2, count)))[units]
        fifths = [
            (part == one, ~np.isin(rows.numbers[known], numbers[part == one])) for one in np.unique(part)
        ]
    made = []
    for name, model in make(len(target), classes):
        said = np.empty((len(y), classes) if classes else len(y))
        for scored, learned in fifths:
            said[scored] = predict(model, train[learned], target[learned], new[scored], classes)
        scores = {"probs": said} if classes else {"mean": said}
        loss = -np.log(np.maximum(said[np.arange(len(y)), y], 1e-15)) if classes else (y - said) ** 2
        judged = Judged(y, scores, np.empty(0), None if classes else np.empty(0))
        made.append(Baseline(name, plain_measures(judged), loss))
    return made


def _number_models(rows: int, classes: int) -> list[tuple[str, Any]]:
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    return [
        ("mean of the target", DummyRegressor()),
        ("ridge regression", RidgeCV(np.logspace(-2, 4, 13))),
        ("gradient boosting", HistGradientBoostingRegressor(random_state=0)),
    ]


def _label_models(rows: int, classes: int) -> list[tuple[str, Any]]:
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    steps = 100 if classes == 2 else max(5, min(100, _MOST_TREES // classes))
    name = "gradient boosting" if steps == 100 else f"gradient boosting, {steps} steps"
    return [
        ("commonest label", DummyClassifier(strategy="prior")),
        ("logistic regression", LogisticRegression(max_iter=300)),
        (name, HistGradientBoostingClassifier(random_state=0, max_iter=steps)),
    ]


def _numbers(model: Any, x: Array, y: Array, new: Array, classes: int) -> Array:
    """(N,) predictions; targets are standardised, so that the solvers can take them in any unit."""
    middle = 2 * float(np.mean(0.5 * y))
    scale = float(np.std(y - middle)) or 1.0
    found = np.asarray(model.fit(x, (y - middle) / scale).predict(new), dtype=np.float64)
    numbers: Array = found * scale + middle
    return numbers


def _probabilities(model: Any, x: Array, y: Array, new: Array, classes: int) -> Array:
    """(N, classes) probabilities; at least 1e-6, before they are scaled to sum to 1, for every label."""
    probs = np.full((len(new), classes), 1e-6)
    labels = y.astype(np.int64)
    if len(np.unique(labels)) == 1:
        probs[:, labels[0]] = 1
    else:
        with warnings.catch_warnings():
            # A linear model that has not quite converged is a baseline all the same.
            warnings.simplefilter("ignore")
            probs[:, np.unique(labels)] = np.maximum(model.fit(x, labels).predict_proba(new), 1e-6)
    shares: Array = probs / probs.sum(1, keepdims=True)
    return shares


# a model beside the baselines


@dataclass(frozen=True)
class Comparison:
    """A model and the best of the baselines, on the same rows.

    Attributes:
        best: the baseline's name.
        z: how many standard errors the model's mean loss lies below the baseline's, by the differences row by
            row; above 0 if the model is better, and 0 for fewer than 10 rows, which tell nothing.
        sentence: what that means, for a person.
    """

    best: str
    z: float
    sentence: str

    @property
    def verdict(self) -> str:
        """Whether the model is "better" or "worse", or "as good" as far as these rows can tell."""
        return _verdict(self.z)


def _verdict(z: float) -> str:
    return "better" if z > CLEAR else "worse" if z < -CLEAR else "as good"


def compare(baselines: Sequence[Baseline], loss: Array, measures: dict[str, float]) -> Comparison:
    """Whether a model is better than the best baseline, or worse, or whether that cannot be told.

    Args:
        baselines: at least one.
        loss: (N,) of the model, as those of the baselines are.
        measures: of the model.
    """
    best = min(baselines, key=lambda one: float(one.loss.mean()))
    gain = best.loss - loss
    z = 0.0
    if len(gain) >= _LEAST_ROWS and gain.any():
        error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
        z = float(gain.mean()) / error if error > 0 else math.copysign(math.inf, float(gain.mean()))
    name, unit = ("log_loss", "log-loss") if "log_loss" in measures else ("rmse", "RMSE")
    pair = f"{unit} {written(measures[name])} against {written(best.measures[name])}"
    apart = f"{abs(z):.1f} standard errors" if math.isfinite(z) else "on all rows"
    verdict = _verdict(z)
    if verdict == "better":
        said = f"The model is better than the best baseline, {best.name}: {pair}, {apart} apart."
    elif verdict == "worse":
        said = (
            f"The model loses to {best.name}: {pair}, {apart} apart. Where predictions alone count, use that."
        )
    else:
        said = (
            f"The model and the best baseline, {best.name}, cannot be told apart on these rows: {pair}, "
            f"{apart} apart, which may be chance."
        )
    return Comparison(best.name, z, said)
