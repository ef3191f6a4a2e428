"""What a model says about rows, block by block, and how that compares with targets that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.calibration import conformal_quantile
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics import (
    accuracy,
    brier,
    expected_calibration_error,
    misclassification_auroc,
)
from bayesdrop.predict import Prediction
from bayesdrop.tables.cells import Array

__all__ = ["Judged", "interval_of", "judge", "measures", "predictions", "row_scores"]

#: numbers of draws that are held at a time
_NUMBERS = 2**22


def predictions(estimator: Any, x: Array) -> Iterator[tuple[slice, Prediction]]:
    """Predictions of some rows at a time; draws are functions, so that the cuts change nothing.

    Args:
        estimator: a fitted DropoutRegressor or DropoutClassifier.
        x: (N, K).
    """
    classes = len(getattr(estimator, "classes_", ())) or 2
    rows = max(1, _NUMBERS // (estimator.mixture_.num_draws * classes))
    for start in range(0, len(x), rows):
        part = slice(start, min(start + rows, len(x)))
        yield part, estimator.predict_dist(x[part])


def row_scores(prediction: Prediction) -> dict[str, Array]:
    """Mean, std and the two variances of numbers; probabilities, entropy and information of classes."""
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


def interval_of(scaled: Array, level: float) -> Callable[[Prediction], tuple[Array, Array]]:
    """The function that gives lower and upper ends: split conformal where held-out rows are enough for it.

    Below level / (1 - level) rows nothing is guaranteed, and the predictive distribution's own interval is
    taken.

    Args:
        scaled: |y - mean| / std of held-out rows.
        level: coverage.
    """
    threshold = float(conformal_quantile(torch.from_numpy(scaled), level)) if len(scaled) else np.inf

    def ends(prediction: Prediction) -> tuple[Array, Array]:
        if np.isfinite(threshold):
            # As ConformalRegressor has it, but row by row: one that is not finite spoils no other.
            mean, std = prediction.mean.double().numpy()[:, 0], prediction.std.double().numpy()[:, 0]
            return mean - threshold * std, mean + threshold * std
        lower, upper = prediction.interval(level)
        return lower.double().numpy()[:, 0], upper.double().numpy()[:, 0]

    return ends


@dataclass(frozen=True, eq=False)
class Judged:
    """N rows with what was said about them and what came true.

    Attributes:
        target: (N,) numbers, or places of the labels.
        scores: by name, as `row_scores` gives them; "lower" and "upper" besides for numbers.
        log_prob: (N,) of the targets.
        rank: (N,) predictive distribution function at the target, for numbers.
    """

    target: NDArray[Any]
    scores: dict[str, Array]
    log_prob: Array
    rank: Array | None

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

    @property
    def scaled(self) -> Array:
        """(N,) |y - mean| / std; without any for labels."""
        if self.classes:
            return np.empty(0)
        return _away(self.target, self.scores)

    @property
    def covered(self) -> NDArray[np.bool_]:
        """(N,) whether the interval holds the target."""
        inside: NDArray[np.bool_] = (self.scores["lower"] <= self.target) & (
            self.target <= self.scores["upper"]
        )
        return inside

    def as_prediction(self) -> Prediction:
        """Class probabilities as a Prediction of one draw, for `bayesdrop.metrics`."""
        return Prediction.from_draws(torch.from_numpy(self.scores["probs"]).log()[None], Categorical())


def judge(estimator: Any, x: Array, y: NDArray[Any], *, scaled: Array | None, level: float) -> Judged:
    """What an estimator says about rows whose targets are known.

    Args:
        estimator: a fitted DropoutRegressor or DropoutClassifier.
        x: (N, K).
        y: (N,) numbers, or places of the labels.
        scaled: |y - mean| / std of held-out rows, for intervals; those of these rows if None.
        level: coverage of the intervals.
    """
    parts: list[dict[str, Array]] = []
    logs, ranks, kept = [], [], []
    classes = hasattr(estimator, "classes_")
    for part, prediction in predictions(estimator, x):
        parts.append(row_scores(prediction))
        targets = torch.from_numpy(y[part]) if classes else torch.from_numpy(y[part])[:, None]
        logs.append(prediction.log_prob(targets).double().numpy())
        if not classes:
            cdf: Any = prediction.likelihood
            ranks.append(cdf.cdf(prediction.draws, targets).double().mean(0).numpy()[:, 0])
            if scaled is not None:
                kept.append(interval_of(scaled, level)(prediction))
    scores = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if classes:
        return Judged(y, scores, np.concatenate(logs), None)
    if scaled is None:
        # Each half by the other half's threshold: no row has a say in its own interval.
        away = _away(y, scores)
        half = np.random.default_rng(1).permutation(len(y)) % 2 == 0
        for part, prediction in predictions(estimator, x):
            one, two = interval_of(away[half], level)(prediction), interval_of(away[~half], level)(prediction)
            choice = half[part]
            kept.append((np.where(choice, two[0], one[0]), np.where(choice, two[1], one[1])))
    scores["lower"] = np.concatenate([lower for lower, _ in kept])
    scores["upper"] = np.concatenate([upper for _, upper in kept])
    return Judged(y, scores, np.concatenate(logs), np.concatenate(ranks))


def _away(y: NDArray[Any], scores: dict[str, Array]) -> Array:
    """(N,) |y - mean| / std, infinite where a prediction is none."""
    with np.errstate(all="ignore"):
        away = np.abs(y - scores["mean"]) / scores["std"]
    return np.where(np.isfinite(away), away, np.inf)


def measures(judged: Judged, level: float) -> dict[str, float]:
    """How good the predictions are, by name.

    Args:
        judged: rows.
        level: coverage that was asked of the intervals.
    """
    found = {"rows": float(len(judged.target)), "log_likelihood": float(judged.log_prob.mean())}
    if judged.classes:
        prediction, labels = judged.as_prediction(), torch.from_numpy(judged.target)
        found["accuracy"] = float(accuracy(prediction, labels))
        found["brier"] = float(brier(prediction, labels))
        found["calibration_error"] = float(expected_calibration_error(prediction, labels))
        if 0 < judged.loss.mean() < 1:
            found["misclassification_auroc"] = float(misclassification_auroc(prediction, labels))
        return found
    assert judged.rank is not None
    error = judged.target - judged.scores["mean"]
    spread = float(np.sum((judged.target - judged.target.mean()) ** 2))
    nominal = np.arange(1, 20) / 20
    observed = np.array([(judged.rank <= q).mean() for q in nominal])
    found["rmse"] = float(np.sqrt(np.mean(error**2)))
    found["mean_absolute_error"] = float(np.abs(error).mean())
    if spread > 0:
        found["r2"] = 1 - float(np.sum(error**2)) / spread
    found["coverage"] = float(judged.covered.mean())
    found["interval_level"] = level
    found["interval_width"] = float(np.mean(judged.scores["upper"] - judged.scores["lower"]))
    found["calibration_error"] = float(np.sqrt(np.mean((observed - nominal) ** 2)))
    return found
