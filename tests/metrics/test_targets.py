"""Every metric checks its targets and its prediction, and says which of them is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from bayesdrop import Categorical, Gaussian, Prediction, metrics

Metric = Callable[[Prediction, torch.Tensor], object]

LIKELIHOODS = ["mean_log_likelihood", "joint_log_likelihood"]
NUMBERS = ["rmse", "mean_absolute_error", "r2", "crps", "interval_coverage", "calibration_curve"]
NUMBERS += ["regression_calibration_error"]
LABELS = [
    "accuracy",
    "brier",
    "reliability_curve",
    "expected_calibration_error",
    "rms_calibration_error",
    "class_reliability_curve",
    "class_calibration_error",
    "pavpu",
    "iou",
    "mean_iou",
    "misclassification_auroc",
]
BOTH = ["risk_coverage", "area_under_risk_coverage"]
ALONE = ["predictive_entropy", "expected_entropy", "mutual_information", "variation_ratio"]


def _metric(name: str) -> Metric:
    metric: Metric = getattr(metrics, name)
    return metric


def _numbers(rows: int = 4) -> Prediction:
    return Prediction.from_draws(torch.randn(3, rows, 2), Gaussian(0.5))


def _labels(rows: int = 4) -> Prediction:
    return Prediction.from_draws(torch.randn(3, rows, 3), Categorical())


def test_every_public_metric_is_held_by_this_file() -> None:
    others = {"ood_auroc", "ood_fpr", "interval_width", "uncertainty"}
    # See test_segmentation.py: all labels may be void, or none be given.
    others |= {"confusion", "entropy_range"}
    # Of lists, not of predictions: see test_ranking.py.
    ranking = {"recall_at", "precision_at", "ndcg_at", "coverage_at", "novelty_at"}
    listed = {*LIKELIHOODS, *NUMBERS, *LABELS, *BOTH, *ALONE, *others, *ranking}
    functions = {name for name in metrics.__all__ if name[0].islower()}
    assert functions == listed


@pytest.mark.parametrize("name", [*NUMBERS, *BOTH, *LIKELIHOODS])
def test_numbers_have_the_shape_of_the_mean(name: str) -> None:
    for shape in ((4,), (4, 1), (5, 2), (0, 2), ()):
        with pytest.raises(ValueError, match="`y` must be"):
            _metric(name)(_numbers(), torch.zeros(shape))


@pytest.mark.parametrize("name", [*LABELS, *BOTH, *LIKELIHOODS])
def test_labels_have_the_shape_of_the_rows(name: str) -> None:
    for shape in ((4, 1), (4, 3), (5,), (0,), ()):
        with pytest.raises(ValueError, match=f"{name}: `y` must be labels of shape"):
            _metric(name)(_labels(), torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("name", [*NUMBERS, *BOTH, *LIKELIHOODS])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_are_finite(name: str, bad: float) -> None:
    y = torch.zeros(4, 2)
    y[2, 1] = bad
    message = rf"{name}: `y` must be finite; got 1 of 8 values NaN or infinite, the first at \(2, 1\)"
    with pytest.raises(ValueError, match=message):
        _metric(name)(_numbers(), y)


@pytest.mark.parametrize("name", [*LABELS, *BOTH, *LIKELIHOODS])
def test_labels_are_integers(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: `y` must be integer labels; got torch.float32"):
        _metric(name)(_labels(), torch.zeros(4))


@pytest.mark.parametrize("name", [*LABELS, *BOTH, *LIKELIHOODS])
@pytest.mark.parametrize("bad", [-1, 3])
def test_labels_are_classes_of_the_model(name: str, bad: int) -> None:
    with pytest.raises(ValueError, match=f"{name}: `y` must be in 0 to 2; got .*ignore_index"):
        _metric(name)(_labels(), torch.tensor([0, 1, 2, bad]))


@pytest.mark.parametrize("name", [*LABELS, *BOTH, "mean_log_likelihood"])
def test_some_label_is_not_void(name: str) -> None:
    metric: Callable[..., object] = getattr(metrics, name)
    with pytest.raises(ValueError, match=f"{name}: `y` must be at least one label that is not ignored"):
        metric(_labels(), torch.full((4,), 7), ignore_index=7)


@pytest.mark.parametrize("name", [*NUMBERS, *LABELS, *BOTH, *LIKELIHOODS])
def test_targets_are_real_tensors(name: str) -> None:
    prediction = _numbers() if name in NUMBERS else _labels()
    with pytest.raises(TypeError, match=f"{name}: `y` must be a tensor; got ndarray"):
        _metric(name)(prediction, np.zeros(4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{name}: `y` must be real; got torch.complex64"):
        _metric(name)(prediction, torch.zeros(4, dtype=torch.complex64))


@pytest.mark.parametrize("name", [*NUMBERS, *BOTH, *LIKELIHOODS])
def test_a_prediction_of_numbers_is_finite(name: str) -> None:
    draws = torch.randn(3, 4, 2)
    draws[1, 2, 0] = float("nan")
    prediction = Prediction.from_draws(draws, Gaussian(0.5))
    with pytest.raises(ValueError, match=f"{name}: `prediction.mean` must be finite; got 1 of 8"):
        _metric(name)(prediction, torch.zeros(4, 2))


@pytest.mark.parametrize("name", [*LABELS, *BOTH, *LIKELIHOODS])
def test_a_prediction_of_classes_is_finite(name: str) -> None:
    draws = torch.randn(3, 4, 3)
    draws[1, 2, 0] = float("inf")  # the softmax of an infinite logit is NaN
    prediction = Prediction.from_draws(draws, Categorical())
    with pytest.raises(ValueError, match=f"{name}: `prediction.mean` must be finite; got 3 of 12"):
        _metric(name)(prediction, torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("name", [*ALONE, "interval_width", "uncertainty"])
def test_metrics_without_targets_check_their_prediction(name: str) -> None:
    metric: Callable[..., object] = getattr(metrics, name)
    likelihood = Gaussian(0.5) if name == "interval_width" else Categorical()
    prediction = Prediction.from_draws(torch.full((2, 3, 2), float("nan")), likelihood)
    with pytest.raises(ValueError, match=f"{name}: `prediction.mean` must be finite"):
        metric(prediction)
    with pytest.raises(TypeError, match=f"{name}: `prediction` must be a Prediction; got Tensor"):
        metric(torch.zeros(3, 2))


@pytest.mark.parametrize("name", ["ood_auroc", "ood_fpr"])
def test_the_prediction_that_is_not_finite_is_named(name: str) -> None:
    metric: Callable[..., object] = getattr(metrics, name)
    broken = Prediction.from_draws(torch.full((2, 3, 2), float("nan")), Gaussian(1.0))
    with pytest.raises(ValueError, match=f"{name}: `outside.mean` must be finite"):
        metric(_numbers(), broken)
    with pytest.raises(ValueError, match=f"{name}: `inside.mean` must be finite"):
        metric(broken, _numbers())
    with pytest.raises(TypeError, match=f"{name}: `outside` must be a Prediction"):
        metric(_numbers(), None)


@pytest.mark.parametrize("name", [*NUMBERS, *LABELS])
def test_metrics_name_the_kind_of_prediction_they_are_for(name: str) -> None:
    prediction = _labels() if name in NUMBERS else _numbers()
    with pytest.raises(TypeError, match=f"{name}: `prediction` must be a prediction of"):
        _metric(name)(prediction, torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("name", [*NUMBERS, *BOTH])
def test_rows_without_any_output_are_not_scored(name: str) -> None:
    prediction = Prediction.from_draws(torch.zeros(2, 3, 0), Gaussian(1.0))
    with pytest.raises(ValueError, match=f"{name}: `y` must be at least one value; got an empty tensor"):
        _metric(name)(prediction, torch.zeros(3, 0))


def test_labels_without_any_position_are_not_scored() -> None:
    prediction = Prediction.from_draws(torch.zeros(2, 3, 4, 0, 5), Categorical())
    with pytest.raises(ValueError, match="accuracy: `y` must be at least one label"):
        metrics.accuracy(prediction, torch.zeros(3, 0, 5, dtype=torch.long))


@pytest.mark.parametrize("name", [*NUMBERS, *LABELS, *BOTH, *LIKELIHOODS, *ALONE])
def test_values_have_the_precision_of_the_prediction(name: str) -> None:
    metric: Callable[..., object] = getattr(metrics, name)
    for dtype in (torch.float32, torch.float64):
        if name in NUMBERS:
            prediction = Prediction.from_draws(torch.randn(3, 8, 2, dtype=dtype), Gaussian(0.5))
            value = metric(prediction, torch.zeros(8, 2))
        else:
            prediction = Prediction.from_draws(torch.randn(3, 8, 2, dtype=dtype), Categorical())
            wrong = torch.arange(8) < 4
            y = torch.where(wrong, 1 - prediction.label, prediction.label)
            value = metric(prediction) if name in ALONE else metric(prediction, y)
        if isinstance(value, torch.Tensor):
            assert value.dtype == dtype
            assert value.shape == ((2,) if name == "iou" else ())  # a number a class
        else:
            floats = [part for part in vars(value).values() if part.is_floating_point()]
            assert floats
            assert all(part.dtype == dtype for part in floats)


def test_targets_that_want_a_gradient_leave_none_behind() -> None:
    y = torch.zeros(4, 2, requires_grad=True)
    for name in [*NUMBERS, *LIKELIHOODS, *BOTH]:
        value = _metric(name)(_numbers(), y)
        tensors = [value] if isinstance(value, torch.Tensor) else list(vars(value).values())
        assert not any(part.requires_grad for part in tensors)
