"""Intervals that contain the target with a guaranteed probability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from bayesdrop.calibration.rank import check_level, conformal_quantile
from bayesdrop.calibration.saved import Calibrator
from bayesdrop.calibration.targets import check_numbers, check_targets
from bayesdrop.errors import is_one_of, must, must_be_finite, must_be_flag
from bayesdrop.predict import Prediction

__all__ = ["ConformalRegressor"]

Score = Literal["scaled", "quantile", "absolute"]


class ConformalRegressor(Calibrator):
    """Split conformal prediction on top of a predictive distribution.

    For rows that are exchangeable with the calibration set, whatever the model,

        P(lower <= y <= upper) >= level,    and at most level + 1 / (n + 1) for scores without ties.

    With c the ceil((n + 1) level)-th smallest score of the calibration set:

        scaled     |y - mean| / std                mean +- c std: as wide as the prediction is unsure
        quantile   max(lower - y, y - upper)       [lower - c, upper + c] around `prediction.interval(level)`
        absolute   |y - mean|                      mean +- c: the same width everywhere

    Args:
        level: coverage, as 0.9.
        score: "scaled", "quantile" (conformalised quantile regression) or "absolute".
        joint: cover all outputs of a row at once; otherwise each output has its own threshold and coverage.

    Reference: Lei et al. (2018) (absolute, scaled); Romano, Patterson & Candes (2019) (quantile).

    >>> from bayesdrop import Gaussian, Prediction
    >>> _ = torch.manual_seed(0)
    >>> y = torch.randn(200, 1)
    >>> too_sure = Prediction.from_draws(0.1 * torch.randn(50, 200, 1), Gaussian(0.1))
    >>> lower, upper = ConformalRegressor(0.9).fit(too_sure, y).intervals(too_sure)
    >>> 0.9 <= float(((lower <= y) & (y <= upper)).float().mean()) <= 0.91
    True
    """

    def __init__(self, level: float = 0.9, *, score: Score = "scaled", joint: bool = False) -> None:
        owner = "ConformalRegressor"
        self.level = check_level(owner, level)
        if not is_one_of(score, get_args(Score)):
            raise ValueError(must(owner, "score", f"one of {', '.join(get_args(Score))}", score))
        must_be_flag(owner, joint=joint)
        self.score: Score = score
        self.joint = joint
        self._threshold: Tensor | None = None
        self._num_calibration = 0

    @property
    def threshold(self) -> Tensor:
        """c: one number an output, shape (D,) or as a row of the mean; shape () if `joint`."""
        self.must_be_fitted("threshold")
        assert self._threshold is not None
        return self._threshold

    @property
    def num_calibration(self) -> int:
        """n, rows of the calibration set."""
        return self._num_calibration

    def fit(self, prediction: Prediction, y: Tensor) -> Self:
        """Find the threshold on a calibration set that neither training nor another calibrator has seen.

        Args:
            prediction: of numbers, mean (N, D).
            y: (N, D) targets.

        Returns: itself.
        """
        scores = self._scores("ConformalRegressor.fit", prediction, y)
        self._threshold = conformal_quantile(scores, self.level)
        self._num_calibration = len(scores)
        return self

    def scores(self, prediction: Prediction, y: Tensor) -> Tensor:
        """How far targets are from predictions, as the table above says; nothing is fitted.

        Args:
            prediction: of numbers, mean (N, D).
            y: (N, D) targets.

        Returns: (N, D), or (N,) if `joint`: the largest of a row.
        """
        return self._scores("ConformalRegressor.scores", prediction, y)

    def _scores(self, owner: str, prediction: Prediction, y: Tensor) -> Tensor:
        lower, upper, width = self._band(owner, prediction)
        target = check_targets(owner, prediction, y)
        scores = torch.maximum(lower - target, target - upper) / width
        return scores.reshape(len(scores), -1).amax(1) if self.joint else scores

    def intervals(self, prediction: Prediction) -> tuple[Tensor, Tensor]:
        """Lower and upper ends, each of the shape of the prediction's mean."""
        self.must_be_fitted("intervals")
        return self._around("ConformalRegressor.intervals", prediction, self.threshold.unsqueeze(0))

    def intervals_at(self, prediction: Prediction, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper ends at thresholds from elsewhere, as one that moves with time; nothing is fitted.

        Args:
            prediction: of numbers, mean (N, D).
            threshold: (N, D), or (N,) if `joint`.
        """
        return self._around("ConformalRegressor.intervals_at", prediction, threshold)

    def _around(self, owner: str, prediction: Prediction, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """The intervals at thresholds (N or 1, D), or (N or 1,) if `joint`."""
        lower, upper, width = self._band(owner, prediction)
        places = () if self.joint else tuple(prediction.mean.shape[1:])
        if tuple(threshold.shape[1:]) != places or threshold.shape[0] not in (1, len(lower)):
            want = f"of outputs {tuple(threshold.shape[1:])}, as the calibration set's"
            raise ValueError(must(owner, "prediction", want, tuple(prediction.mean.shape[1:])))
        threshold = threshold.reshape(-1, *[1] * (lower.dim() - 1)) if self.joint else threshold
        low, high = lower - threshold * width, upper + threshold * width
        # A negative threshold may reverse the ends of a narrow interval: both are then its middle.
        middle = (lower + upper) / 2
        crossed = low > high
        low, high = torch.where(crossed, middle, low), torch.where(crossed, middle, high)
        return low.to(prediction.mean.dtype), high.to(prediction.mean.dtype)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {"level": self.level, "score": self.score, "joint": self.joint}

    def fitted(self) -> dict[str, Any] | None:
        """The thresholds (None: infinite), the shape of a row, and n."""
        if self._threshold is None:
            return None
        values = self._threshold.reshape(-1).tolist()
        return {
            "threshold": [value if math.isfinite(value) else None for value in values],
            "shape": list(self._threshold.shape),
            "num_calibration": self._num_calibration,
        }

    def put(self, fitted: Mapping[str, Any]) -> None:
        """Set the thresholds and n."""
        values = [math.inf if value is None else float(value) for value in fitted["threshold"]]
        self._threshold = torch.tensor(values, dtype=torch.float64).reshape(fitted["shape"])
        self._num_calibration = int(fitted["num_calibration"])

    def _band(self, owner: str, prediction: Prediction) -> tuple[Tensor, Tensor, Tensor]:
        """The interval at threshold 0, and by how much a threshold of 1 widens it at each end."""
        check_numbers(owner, prediction)
        mean = prediction.mean.to(torch.float64)
        if self.score == "quantile":
            lower, upper = (end.to(torch.float64) for end in prediction.interval(self.level))
            return lower, upper, torch.ones_like(mean)
        if self.score == "absolute":
            return mean, mean, torch.ones_like(mean)
        std = prediction.std.to(torch.float64)
        must_be_finite(owner, "prediction.std", std)
        if not bool((std > 0).all()):
            hint = "Use score='absolute', or a likelihood with noise."
            raise ValueError(must(owner, "prediction.std", "above 0", float(std.min()), hint))
        return mean, mean, std
