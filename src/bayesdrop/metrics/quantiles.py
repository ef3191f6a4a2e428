"""Calibration of predictive quantiles: how often a target falls below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, must_be_tensor, real_numbers
from bayesdrop.likelihoods import NumberLikelihood
from bayesdrop.metrics.targets import regression_targets
from bayesdrop.predict import Prediction

__all__ = ["CalibrationCurve", "calibration_curve", "regression_calibration_error"]

_LEVELS = tuple(step / 20 for step in range(1, 20))


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Levels of quantiles, and the share of targets below each quantile."""

    nominal: Tensor  #: (L,)
    observed: Tensor  #: (L,) equal to `nominal` if calibrated

    @classmethod
    def from_ranks(cls, rank: Tensor, *, levels: Sequence[float] = _LEVELS) -> CalibrationCurve:
        """The curve from the values of the predictive distribution function at the targets.

        y <= quantile(q) is the same as F(y) <= q, F(y) being `Prediction.cdf(y)`. These numbers can be kept
        for a data set whose draws are too large to keep.

        Args:
            rank: F(y) of every target, of any shape.
            levels: q, each in (0, 1).
        """
        owner = "CalibrationCurve.from_ranks"
        must_be_tensor(owner, "rank", rank, floating=True)
        if not rank.numel():
            raise ValueError(must(owner, "rank", "at least one value", rank))
        nominal = _checked(owner, levels)
        ordered = rank.detach().to(torch.float64).flatten().sort().values
        below = torch.searchsorted(ordered, nominal.to(ordered.device), right=True)
        return cls(nominal, below.to(torch.float64) / rank.numel())

    def rms_error(self) -> Tensor:
        """Root mean square, over levels, of the distance of the curve from the diagonal. Shape ()."""
        return (self.observed - self.nominal).square().mean().sqrt()


def calibration_curve(
    prediction: Prediction, y: Tensor, *, levels: Sequence[float] = _LEVELS
) -> CalibrationCurve:
    """Share of targets at or below each predictive quantile, over all rows and outputs.

        observed(q) = (1/ND) sum_nd 1[y_nd <= quantile_nd(q)]

    Args:
        prediction: with its draws kept; a likelihood of numbers, as `Gaussian` or `Laplace`, or none.
        y: (N, D) targets.
        levels: q, each in (0, 1).

    Reference: Kuleshov, Fenner & Ermon (2018).
    """
    return _curve("calibration_curve", prediction, y, levels)


def regression_calibration_error(
    prediction: Prediction, y: Tensor, *, levels: Sequence[float] = _LEVELS
) -> Tensor:
    """Root mean square, over levels, of the distance of `calibration_curve` from the diagonal.

        sqrt (1/L) sum_l (observed(q_l) - q_l)^2

    Args:
        prediction: with its draws kept; a likelihood of numbers, as `Gaussian` or `Laplace`, or none.
        y: (N, D) targets.
        levels: q_l, each in (0, 1).

    Returns: shape (), in [0, 1]; lower is better.
    """
    return _curve("regression_calibration_error", prediction, y, levels).rms_error()


def _curve(owner: str, prediction: Prediction, y: Tensor, levels: Sequence[float]) -> CalibrationCurve:
    target = regression_targets(owner, prediction, y)
    nominal = _checked(owner, levels)
    likelihood = prediction.likelihood
    if likelihood is None:
        below = target.unsqueeze(0) <= prediction.quantile(nominal.tolist())
        observed = below.flatten(1).to(torch.float64).mean(1)
    elif isinstance(likelihood, NumberLikelihood):
        must_be_finite(owner, "prediction.aleatoric", prediction.aleatoric)
        # F(y) needs no search for the quantile.
        observed = CalibrationCurve.from_ranks(prediction.cdf(target), levels=levels).observed
    else:
        raise TypeError(
            must(owner, "prediction", "one with a likelihood of numbers, as Gaussian(), or none", prediction)
        )
    dtype = prediction.mean.dtype
    return CalibrationCurve(nominal.to(dtype), observed.to(dtype))


def _checked(owner: str, levels: Sequence[float]) -> Tensor:
    """The levels as a tensor of doubles."""
    nominal = real_numbers(owner, "levels", levels, "one or more numbers in (0, 1)")
    if nominal.dim() != 1 or not nominal.numel() or not bool(((nominal > 0) & (nominal < 1)).all()):
        raise ValueError(must(owner, "levels", "one or more numbers in (0, 1)", levels))
    return nominal
