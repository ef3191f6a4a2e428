"""Measures of predictions and their uncertainty: functions of (Prediction, y)."""

from bayesdrop.metrics.auroc import misclassification_auroc, ood_auroc, ood_fpr
from bayesdrop.metrics.calibration import (
    ReliabilityCurve,
    class_calibration_error,
    class_reliability_curve,
    expected_calibration_error,
    reliability_curve,
    rms_calibration_error,
)
from bayesdrop.metrics.classification import accuracy, brier
from bayesdrop.metrics.information import (
    expected_entropy,
    mutual_information,
    predictive_entropy,
    variation_ratio,
)
from bayesdrop.metrics.likelihood import joint_log_likelihood, mean_log_likelihood
from bayesdrop.metrics.patches import PAvPU, entropy_range, pavpu
from bayesdrop.metrics.quantiles import CalibrationCurve, calibration_curve, regression_calibration_error
from bayesdrop.metrics.ranked import crps
from bayesdrop.metrics.ranking import (
    Ranked,
    UserMean,
    coverage_at,
    ndcg_at,
    novelty_at,
    precision_at,
    recall_at,
)
from bayesdrop.metrics.regression import interval_coverage, interval_width, mean_absolute_error, r2, rmse
from bayesdrop.metrics.scores import uncertainty
from bayesdrop.metrics.segmentation import Confusion, confusion, iou, mean_iou
from bayesdrop.metrics.selective import RiskCoverage, area_under_risk_coverage, risk_coverage

__all__ = [
    "CalibrationCurve",
    "Confusion",
    "PAvPU",
    "Ranked",
    "ReliabilityCurve",
    "RiskCoverage",
    "UserMean",
    "accuracy",
    "area_under_risk_coverage",
    "brier",
    "calibration_curve",
    "class_calibration_error",
    "class_reliability_curve",
    "confusion",
    "coverage_at",
    "crps",
    "entropy_range",
    "expected_calibration_error",
    "expected_entropy",
    "interval_coverage",
    "interval_width",
    "iou",
    "joint_log_likelihood",
    "mean_absolute_error",
    "mean_iou",
    "mean_log_likelihood",
    "misclassification_auroc",
    "mutual_information",
    "ndcg_at",
    "novelty_at",
    "ood_auroc",
    "ood_fpr",
    "pavpu",
    "precision_at",
    "predictive_entropy",
    "r2",
    "recall_at",
    "regression_calibration_error",
    "reliability_curve",
    "risk_coverage",
    "rms_calibration_error",
    "rmse",
    "uncertainty",
    "variation_ratio",
]
