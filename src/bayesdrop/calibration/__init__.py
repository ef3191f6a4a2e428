"""Calibrated probabilities, prediction sets and intervals, fitted on a calibration set."""

from bayesdrop.calibration.adaptive import AdaptiveConformal, AdaptiveThreshold
from bayesdrop.calibration.classes import ConformalClassifier, PredictionSets
from bayesdrop.calibration.levels import QuantileRecalibration
from bayesdrop.calibration.numbers import ConformalRegressor
from bayesdrop.calibration.rank import CoverageLaw, conformal_quantile, coverage_law
from bayesdrop.calibration.temperature import TemperatureScaling

__all__ = [
    "AdaptiveConformal",
    "AdaptiveThreshold",
    "ConformalClassifier",
    "ConformalRegressor",
    "CoverageLaw",
    "PredictionSets",
    "QuantileRecalibration",
    "TemperatureScaling",
    "conformal_quantile",
    "coverage_law",
]
