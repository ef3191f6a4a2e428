"""What a model says about rows, how that compares with known targets, and where it compares worst."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics import (
    CalibrationCurve,
    accuracy,
    brier,
    confusion,
    expected_calibration_error,
    interval_coverage,
    interval_width,
    mean_absolute_error,
    mean_log_likelihood,
    misclassification_auroc,
    r2,
    rmse,
)
from bayesdrop.predict import Prediction
from bayesdrop.stacked.out_of_fold import interval_levels
from bayesdrop.tables.cells import Array, Flags, as_labels
from bayesdrop.tables.deferral import conformal_threshold
from bayesdrop.tables.schema import Schema

__all__ = [
    "Intervals",
    "Judged",
    "Slice",
    "judge",
    "judge_out_of_fold",
    "measures",
    "plain_measures",
    "row_scores",
    "scores_of",
    "worst_slices",
]

#: rows that a slice must have
_LEAST_ROWS = 15


def row_scores(prediction: Prediction) -> dict[str, Array]:
    """What a prediction says about its rows, (N,) by name: scores that rows can be ranked by, and the mean.

    Of numbers: "mean", "std", "epistemic" and "aleatoric". Of classes: "probs" (N, classes), "entropy",
    "mutual_information" and "max_prob", which is 1 less the largest probability.
    """
    if isinstance(prediction.likelihood, Categorical):
        probs = prediction.probs.double().numpy()
        return {
            "probs": probs / probs.sum(1, keepdims=True),
            "entropy": prediction.entropy.double().numpy(),
            "mutual_information": prediction.mutual_information.double().numpy(),
            "max_prob": 1 - probs.max(1),
        }
    names = ("mean", "std", "epistemic", "aleatoric")
    return {name: getattr(prediction, name).double().numpy()[:, 0] for name in names}


def scores_of(
    estimator: Any,
    x: Array,
    y: NDArray[Any] | None = None,
    *,
    intervals: Intervals | None = None,
    **drawing: Any,
) -> dict[str, Array]:
    """`row_scores` of all rows; with targets also their "log_prob" and, of numbers, "rank" and "share".

    Args:
        estimator: a fitted DropoutRegressor or DropoutClassifier.
        x: (N, K) inputs, N at least 1.
        y: (N,) numbers, or places of the labels; None with `blocks`.
        intervals: makes "lower" and "upper" of numbers, if they are wanted.
        drawing: options of `estimator.predictions`: `num_draws`, `seed`, `blocks`.
    """
    parts: list[dict[str, Array]] = []
    done = 0
    for prediction in estimator.predictions(x, **drawing):
        part = row_scores(prediction)
        if y is not None:
            part |= _target_scores(prediction, y[done : done + len(prediction)])
        if intervals is not None and "probs" not in part:
            part["lower"], part["upper"] = intervals(estimator, prediction)
        done += len(prediction)
        parts.append(part)
    return {name: np.concatenate([part[name] for part in parts])[: len(x)] for name in parts[0]}


def _target_scores(prediction: Prediction, y: NDArray[Any]) -> dict[str, Array]:
    """The "log_prob" of targets, and the "rank" and "share" of numbers, as `Judged` has them."""
    target = torch.from_numpy(y)
    if isinstance(prediction.likelihood, Categorical):
        return {"log_prob": prediction.log_prob(target).double().numpy()}
    target = target[:, None]
    rank, share = (
        found.numpy()[:, 0] for found in (prediction.cdf(target), prediction.central_level(target))
    )
    share = np.where(np.isfinite(share), share, 1.0)
    return {"log_prob": prediction.log_prob(target).double().numpy(), "rank": rank, "share": share}


@dataclass(frozen=True, eq=False)
class Intervals:
    """How intervals of numbers are made of predictions, so that a share `level` of targets is inside.

    Attributes:
        level: coverage.
        shares: (n,) of held-out rows: the probability of the narrowest central interval that holds the
            target; those of the estimator's own networks, out of fold, if None.
        scaled: (n,) |y - mean| / std of held-out rows, in models of earlier versions: intervals are then mean
            plus and minus a multiple of std.
    """

    level: float
    shares: Array | None = None
    scaled: Array | None = None

    def probability(self, estimator: Any) -> float:
        """The probability of the central interval that holds a share `level` of targets, without `scaled`."""
        shares = estimator.mixture_.shares if self.shares is None else self.shares[:, None]
        return self.level if shares is None else float(interval_levels(shares, self.level)[0])

    def __call__(self, estimator: Any, prediction: Prediction) -> tuple[Array, Array]:
        """(N,) lower and upper ends; of `prediction.interval(level)` if there are too few held-out rows."""
        if self.scaled is not None:
            away = conformal_threshold(self.scaled, self.level)
            if math.isinf(away):
                low, high = prediction.interval(self.level)
                return low.double().numpy()[:, 0], high.double().numpy()[:, 0]
            mean, std = (part.double().numpy()[:, 0] for part in (prediction.mean, prediction.std))
            with np.errstate(invalid="ignore"):
                return mean - away * std, mean + away * std
        lower, upper = prediction.interval(self.probability(estimator))
        return lower.double().numpy()[:, 0], upper.double().numpy()[:, 0]


@dataclass(frozen=True, eq=False)
class Judged:
    """N rows, with what was predicted and what was true.

    Attributes:
        target: (N,) numbers, or places of the labels.
        scores: by name, as `row_scores` gives them; "lower" and "upper" besides for numbers.
        log_prob: (N,) log density, or log-probability, of the targets.
        rank: (N,) F(y), the predictive distribution function at the target; None for labels.
        shares: (N,) the probability of the narrowest central interval that holds the target; None for labels.
    """

    target: NDArray[Any]
    scores: dict[str, Array]
    log_prob: Array
    rank: Array | None
    shares: Array | None = None

    @property
    def classes(self) -> bool:
        """Whether the targets are labels."""
        return self.rank is None

    @property
    def loss(self) -> Array:
        """(N,) squared errors, or 1 for a wrong label."""
        if self.classes:
            wrong: Array = (self.scores["probs"].argmax(1) != self.target).astype(np.float64)
            return wrong
        squared: Array = (self.target - self.scores["mean"]) ** 2
        return squared

    def of_rows(self, rows: NDArray[np.int64]) -> Judged:
        """Some of the rows, in the order of `rows`.

        Args:
            rows: places.
        """
        scores = {name: values[rows] for name, values in self.scores.items()}
        rank, shares = (None if one is None else one[rows] for one in (self.rank, self.shares))
        return Judged(self.target[rows], scores, self.log_prob[rows], rank, shares)

    @property
    def covered(self) -> Flags:
        """(N,) whether the interval holds the target; of numbers."""
        inside: Flags = (self.scores["lower"] <= self.target) & (self.target <= self.scores["upper"])
        return inside

    def as_prediction(self) -> tuple[Prediction, torch.Tensor]:
        """Means or probabilities as a Prediction of one draw, and the targets, for `bayesdrop.metrics`."""
        target = torch.from_numpy(self.target)
        if self.classes:
            logits = torch.from_numpy(self.scores["probs"]).log()
            return Prediction.from_draws(logits[None], Categorical()), target
        return Prediction.from_draws(torch.from_numpy(self.scores["mean"])[None, :, None]), target[:, None]

    @property
    def calibration(self) -> CalibrationCurve:
        """How often targets fell below predictive quantiles; of numbers."""
        return CalibrationCurve.from_ranks(torch.from_numpy(np.asarray(self.rank)))


def judge(
    estimator: Any, x: Array, y: NDArray[Any], *, intervals: Intervals | None = None, level: float
) -> Judged:
    """What an estimator says about rows whose targets are known.

    Args:
        estimator: a fitted DropoutRegressor or DropoutClassifier.
        x: (N, K) inputs.
        y: (N,) numbers, or places of the labels.
        intervals: how intervals are made; if None, by these rows: each half's by the other half.
        level: coverage of the intervals.
    """
    scores = scores_of(estimator, x, y, intervals=intervals)
    judged = _judged(y, scores)
    if not judged.classes and intervals is None:
        _by_halves(judged, estimator, _with_places(estimator.predictions(x)), level)
    return judged


def judge_out_of_fold(estimator: Any, y: NDArray[Any], *, level: float) -> tuple[NDArray[np.int64], Judged]:
    """What an estimator's networks say about rows of the fit that they were not fitted to.

    Args:
        estimator: fitted, by networks that held rows out.
        y: (N,) numbers of the fit, or places of the labels.
        level: coverage of the intervals; each half of the rows has those that the other half sets.

    Returns: (n,) places of the rows among those of the fit, and what was predicted and true.
    """
    found = list(estimator.out_of_fold())
    rows = np.concatenate([places for places, _ in found])
    parts = [row_scores(one) | _target_scores(one, y[places]) for places, one in found]
    scores = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    judged = _judged(y[rows], scores)
    if not judged.classes:
        _by_halves(judged, estimator, _with_places(one for _, one in found), level)
    order = np.argsort(rows)
    return rows[order], judged.of_rows(order)


def _with_places(predictions: Iterable[Prediction]) -> Iterator[tuple[slice, Prediction]]:
    """Predictions of consecutive rows, each with the places of its rows."""
    done = 0
    for prediction in predictions:
        yield slice(done, done + len(prediction)), prediction
        done += len(prediction)


def _judged(y: NDArray[Any], scores: dict[str, Array]) -> Judged:
    """`Judged` of what `scores_of` says about rows; the scores of targets are taken out of `scores`."""
    log_prob = scores.pop("log_prob")
    return Judged(y, scores, log_prob, scores.pop("rank", None), scores.pop("share", None))


def _by_halves(
    judged: Judged, estimator: Any, predictions: Iterable[tuple[slice, Prediction]], level: float
) -> None:
    """Add "lower" and "upper", each half's set by the other half: no row helps to set its own interval."""
    half = np.random.default_rng(1).permutation(len(judged.target)) % 2 == 0
    assert judged.shares is not None
    makers = [Intervals(level, judged.shares[~part]) for part in (half, ~half)]
    lower, upper = np.empty(len(half)), np.empty(len(half))
    for where, prediction in predictions:
        (low, high), (other_low, other_high) = (make(estimator, prediction) for make in makers)
        lower[where] = np.where(half[where], low, other_low)
        upper[where] = np.where(half[where], high, other_high)
    judged.scores["lower"], judged.scores["upper"] = lower, upper


def plain_measures(judged: Judged) -> dict[str, float]:
    """How good means or probabilities are, by name of measure: measures that any model has.

    Args:
        judged: rows; of the scores, "mean" or "probs" are enough.
    """
    prediction, y = judged.as_prediction()
    found: dict[str, Any] = {}
    if judged.classes:
        found["accuracy"] = accuracy(prediction, y)
        found["balanced_accuracy"] = confusion(prediction, y).mean_class_accuracy
        found["log_loss"] = -mean_log_likelihood(prediction, y)
        found["brier"] = brier(prediction, y)
    else:
        found["rmse"] = rmse(prediction, y)
        found["mean_absolute_error"] = mean_absolute_error(prediction, y)
        if not (explained := r2(prediction, y)).isnan():
            found["r2"] = explained
    return {name: float(value) for name, value in found.items()}


def measures(judged: Judged, level: float) -> dict[str, float]:
    """How good the predictions are, by name of measure.

    Args:
        judged: rows.
        level: coverage that was asked of the intervals.
    """
    prediction, y = judged.as_prediction()
    found: dict[str, Any] = {"rows": len(judged.target), "log_likelihood": judged.log_prob.mean()}
    found |= plain_measures(judged)
    if judged.classes:
        found["calibration_error"] = expected_calibration_error(prediction, y)
        if 0 < judged.loss.mean() < 1:
            found["misclassification_auroc"] = misclassification_auroc(prediction, y)
    else:
        lower, upper = (torch.from_numpy(judged.scores[name])[:, None] for name in ("lower", "upper"))
        found["coverage"] = interval_coverage(prediction, y, interval=(lower, upper))
        found["interval_level"] = level
        found["interval_width"] = interval_width(prediction, interval=(lower, upper))
        found["calibration_error"] = judged.calibration.rms_error()
    return {name: float(value) for name, value in found.items()}


# slices of a table, cut by one column


@dataclass(frozen=True)
class Slice:
    """Rows with like values of one column, what was promised for them, and what was observed."""

    column: str
    values: str  #: which values of the column: " = red", " 3 to 5", " missing"
    rows: int
    promised: float  #: coverage of the intervals, or mean probability of the label given
    observed: float  #: share of targets inside, or of labels that were right
    z: float  #: their distance in standard errors, below 0 for too sure

    @property
    def name(self) -> str:
        """The column and its values."""
        return self.column + self.values


def worst_slices(judged: Judged, frame: Any, schema: Schema, level: float) -> list[Slice]:
    """Slices of at least 15 rows, those first whose coverage or accuracy is farthest from the promise.

    Args:
        judged: rows.
        frame: the same rows, as they were read.
        schema: of the model.
        level: coverage that was asked of the intervals.
    """
    given = judged.scores["probs"].max(1) if judged.classes else np.full(len(judged.target), level)
    kept = judged.loss == 0 if judged.classes else judged.covered
    slices = []
    for column, values, rows in _cuts(frame, schema):
        count = int(rows.sum())
        if _LEAST_ROWS <= count < len(rows):
            error = math.sqrt(float(np.sum(given[rows] * (1 - given[rows])))) / count
            promised, observed = float(given[rows].mean()), float(kept[rows].mean())
            z = (observed - promised) / max(error, 0.5 / count)
            slices.append(Slice(column, values, count, promised, observed, z))
    return sorted(slices, key=lambda part: -abs(part.z))


def _cuts(frame: Any, schema: Schema) -> Iterator[tuple[str, str, Flags]]:
    """Column, values and rows, (N,), of slices: quarters of numbers, values of others, missing cells."""
    marks = schema.missing_marks
    for column in schema.used:
        series = frame[column.name]
        if column.kind == "category":
            labels = as_labels(series, marks, numbers=column.numbers)
            for label in column.categories:
                yield column.name, f" = {label}", labels == label
            continue
        values, _ = column.read(series, marks)
        yield column.name, " missing", np.isnan(values)
        finite = values[np.isfinite(values)]
        distinct = np.unique(finite)
        if len(distinct) <= 6:
            for value in distinct:
                yield column.name, f" = {column.shown(value)}", values == value
            continue
        # Halves, since the largest double may be less than the distance of two numbers.
        edges = 2 * np.unique(np.quantile(0.5 * finite, [0, 0.25, 0.5, 0.75, 1]))
        # No row changes its slice: of dates without times, an edge at noon is an edge at midnight.
        if column.kind == "date" and (finite == np.floor(finite)).all():
            edges = np.unique(np.floor(edges))
        for place, (low, high) in enumerate(itertools.pairwise(edges)):
            above = values >= low if place == 0 else values > low
            ends = " to ".join(map(column.shown, (low, high)))
            yield column.name, f" {ends}", above & (values <= high)
