"""Recalibration of predictive quantiles by their observed levels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bayesdrop.calibration.saved import Calibrator
from bayesdrop.calibration.targets import check_numbers, check_targets
from bayesdrop.errors import must, real_number, real_numbers
from bayesdrop.predict import Prediction

__all__ = ["QuantileRecalibration"]


class QuantileRecalibration(Calibrator):
    """A monotone map of levels that makes the whole predictive distribution calibrated, output by output.

    With r_(1) <= ... <= r_(n) the ordered ranks r_i = F_i(y_i) of the targets of a calibration set, the map R
    goes through (0, 0), (r_(k), k / (n + 1)) and (1, 1) and is linear between. Then

        F*(y) = R(F(y)),    quantile*(q) = quantile(R^-1(q)),

    and for rows that are exchangeable with the calibration set and ranks without ties, whatever the model,

        P(y <= quantile*(k / (n + 1))) = k / (n + 1).

    `ConformalRegressor` guarantees one interval; this gives every quantile, and so intervals of all levels
    and a distribution function. Levels nearer to 0 or 1 than 1 / (n + 1) depend on the tails of the model.

    Reference: Kuleshov, Fenner & Ermon (2018), with k / (n + 1) for their k / n.

    >>> from bayesdrop import Gaussian, Prediction
    >>> _ = torch.manual_seed(0)
    >>> y = torch.randn(999, 1)
    >>> too_sure = Prediction.from_draws(torch.zeros(2, 999, 1), Gaussian(0.2))
    >>> median, high = QuantileRecalibration().fit(too_sure, y).quantile(too_sure, [0.5, 0.9])
    >>> int((y <= median).sum()), int((y <= high).sum())
    (500, 900)
    """

    def __init__(self) -> None:
        self._ranks: Tensor | None = None

    @property
    def num_calibration(self) -> int:
        """n, rows of the calibration set."""
        self.must_be_fitted("num_calibration")
        assert self._ranks is not None
        return len(self._ranks)

    def fit(self, prediction: Prediction, y: Tensor) -> Self:
        """Find the map on a calibration set that neither training nor another calibrator has seen.

        Args:
            prediction: of numbers, mean (N, D), with its draws kept.
            y: (N, D) targets.

        Returns: itself.
        """
        owner = "QuantileRecalibration.fit"
        check_numbers(owner, prediction)
        target = check_targets(owner, prediction, y)
        self._ranks = prediction.cdf(target).to(torch.float64).sort(0).values
        return self

    def levels(self, q: float | Sequence[float]) -> Tensor:
        """R^-1(q): the level of the model's quantile to use for q. Shape (D,), or (len(q), D).

        Args:
            q: one level or several, each in (0, 1).
        """
        self.must_be_fitted("levels")
        wanted = real_numbers("QuantileRecalibration", "q", q, "in (0, 1)")
        if wanted.dim() > 1 or not wanted.numel() or not bool(((wanted > 0) & (wanted < 1)).all()):
            raise ValueError(must("QuantileRecalibration", "q", "in (0, 1)", q))
        ranks, known = self._knots()
        found = [np.interp(wanted.numpy(), known, column) for column in ranks.reshape(len(ranks), -1).T]
        assert self._ranks is not None
        return torch.from_numpy(np.stack(found, -1)).reshape(*wanted.shape, *self._ranks.shape[1:])

    def quantile(self, prediction: Prediction, q: float | Sequence[float]) -> Tensor:
        """Calibrated quantiles: (N, D), or (len(q), N, D). Infinite at the levels 0 and 1 of the model.

        Args:
            prediction: of new rows, from the same model as that of the calibration set.
            q: one level or several, each in (0, 1).
        """
        levels = self.levels(q)
        self._check("QuantileRecalibration.quantile", prediction)
        rows = prediction.mean.shape[1:]
        found = [_at_levels(prediction, one) for one in levels.reshape(-1, *rows)]
        return torch.stack(found) if levels.dim() > len(rows) else found[0]

    def interval(self, prediction: Prediction, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Lower and upper end, each (N, D), of the central interval that contains `level` of new targets."""
        self.must_be_fitted("interval")
        owner = "QuantileRecalibration.interval"
        self._check(owner, prediction)
        level = real_number(owner, "level", level, "in (0, 1)", above=0, below=1)
        lower, upper = self.quantile(prediction, [(1 - level) / 2, (1 + level) / 2])
        return lower, upper

    def cdf(self, prediction: Prediction, y: Tensor) -> Tensor:
        """R(F(y)): probabilities that targets of new rows are at most y. Shape (N, D)."""
        self.must_be_fitted("cdf")
        owner = "QuantileRecalibration.cdf"
        self._check(owner, prediction)
        rank = prediction.cdf(check_targets(owner, prediction, y)).to(torch.float64)
        ranks, known = self._knots()
        columns = zip(rank.reshape(len(rank), -1).T.numpy(), ranks.reshape(len(ranks), -1).T, strict=True)
        found = [np.interp(values, column, known) for values, column in columns]
        return torch.from_numpy(np.stack(found, -1)).reshape(rank.shape).to(prediction.mean.dtype)

    def options(self) -> dict[str, Any]:
        """No arguments."""
        return {}

    def fitted(self) -> dict[str, Any] | None:
        """The ranks of the calibration set, in order, and the shape of a row."""
        if self._ranks is None:
            return None
        return {"ranks": self._ranks.reshape(-1).tolist(), "shape": list(self._ranks.shape)}

    def put(self, fitted: Mapping[str, Any]) -> None:
        """Set the ranks."""
        ranks = torch.tensor([float(value) for value in fitted["ranks"]], dtype=torch.float64)
        ranks = ranks.reshape([int(size) for size in fitted["shape"]])
        inside = bool(((ranks >= 0) & (ranks <= 1)).all())
        if ranks.dim() < 1 or not ranks.numel() or not inside or not torch.equal(ranks, ranks.sort(0).values):
            raise ValueError(
                must("QuantileRecalibration", "ranks", "in [0, 1] and in order", list(ranks.shape))
            )
        self._ranks = ranks

    def _knots(self) -> tuple[Any, Any]:
        """Ranks (n + 2, D) with both ends, and the chances that belong to them, (n + 2,)."""
        assert self._ranks is not None
        inner = self._ranks.numpy()
        ends = np.zeros_like(inner[:1]), np.ones_like(inner[:1])
        return np.concatenate([ends[0], inner, ends[1]]), np.linspace(0, 1, len(inner) + 2)

    def _check(self, owner: str, prediction: Prediction) -> None:
        check_numbers(owner, prediction)
        assert self._ranks is not None
        if prediction.mean.shape[1:] != self._ranks.shape[1:]:
            want = f"of outputs {tuple(self._ranks.shape[1:])}, as the calibration set's"
            raise ValueError(must(owner, "prediction", want, tuple(prediction.mean.shape[1:])))


def _at_levels(prediction: Prediction, levels: Tensor) -> Tensor:
    """The quantile of every output at its own level; infinite at 0 and 1. Shape of the mean."""
    wanted = levels.reshape(-1)
    flat = torch.empty((len(prediction), len(wanted)), dtype=prediction.mean.dtype)
    for level in set(wanted.tolist()):
        here = wanted == level
        if 0 < level < 1:
            flat[:, here] = prediction.quantile(level).reshape(len(prediction), -1)[:, here]
        else:
            flat[:, here] = math.inf if level >= 1 else -math.inf
    return flat.reshape(prediction.mean.shape)
