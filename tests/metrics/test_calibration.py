"""Calibration of class probabilities, against torchmetrics, scikit-learn and loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve as sklearn_curve

from bayesdrop import Categorical, Prediction
from bayesdrop.metrics import (
    accuracy,
    class_calibration_error,
    class_reliability_curve,
    expected_calibration_error,
    reliability_curve,
    rms_calibration_error,
)


def _case(seed: int = 0, rows: int = 300, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (rows,), generator=generator)
    draws = 2 * torch.randn(4, rows, classes, dtype=torch.double, generator=generator)
    return draws + 2 * torch.nn.functional.one_hot(y, classes), y


def _given(probs: list[list[float]], dtype: torch.dtype = torch.double) -> Prediction:
    """A prediction with these probabilities, up to rounding."""
    return Prediction.from_draws(torch.tensor([probs], dtype=dtype).log(), Categorical())


@pytest.mark.parametrize("num_bins", [1, 10, 15])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_calibration_errors_are_those_of_torchmetrics(num_bins: int, norm: str) -> None:
    from torchmetrics.functional.classification import multiclass_calibration_error

    draws, y = _case()
    prediction = Prediction.from_draws(draws, Categorical())
    expected = multiclass_calibration_error(prediction.probs, y, num_classes=4, n_bins=num_bins, norm=norm)
    metric = expected_calibration_error if norm == "l1" else rms_calibration_error
    value = float(metric(prediction, y, num_bins=num_bins))
    assert value == pytest.approx(float(expected), rel=1e-5)  # theirs is in single precision


def test_the_reliability_curve_is_a_loop_over_bins() -> None:
    draws, y = _case()
    prediction = Prediction.from_draws(draws, Categorical())
    confidence, label = prediction.probs.max(1)
    curve = reliability_curve(prediction, y, num_bins=10)
    for b in range(10):
        inside = (confidence > b / 10) & (confidence <= (b + 1) / 10)
        assert int(curve.count[b]) == int(inside.sum())
        if inside.any():
            torch.testing.assert_close(curve.confidence[b], confidence[inside].mean())
            torch.testing.assert_close(curve.accuracy[b], (label == y)[inside].double().mean())
        else:
            assert math.isnan(curve.confidence[b])
            assert math.isnan(curve.accuracy[b])
    assert int(curve.count.min()) == 0  # four classes: no confidence is below 1/4
    assert int(curve.count.sum()) == len(y)


def test_a_confidence_on_an_edge_is_in_the_bin_below_and_1_is_in_the_last() -> None:
    prediction = Prediction.from_draws(torch.tensor([[[0.0, 0.0], [500.0, 0.0]]]), Categorical())
    curve = reliability_curve(prediction, torch.tensor([0, 0]), num_bins=4)
    assert curve.count.tolist() == [0, 1, 0, 1]
    assert curve.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    class_curve = class_reliability_curve(prediction, torch.tensor([0, 0]), num_bins=4)
    assert class_curve.count.tolist() == [1, 2, 0, 1]  # probability 0 is in the first


def test_edges_have_the_precision_of_the_probabilities() -> None:
    # The single-precision 0.6 is above the double 0.6, but not above 0.6 as a reader has it.
    probs = torch.tensor([[0.6, 0.4]])
    prediction = Prediction.from_draws(probs.log().unsqueeze(0), Categorical())
    assert float(prediction.probs[0, 0]) == float(torch.tensor(0.6))
    assert reliability_curve(prediction, torch.tensor([0]), num_bins=5).count.tolist() == [0, 0, 1, 0, 0]


def test_one_bin_compares_accuracy_with_mean_confidence() -> None:
    draws, y = _case()
    prediction = Prediction.from_draws(draws, Categorical())
    gap = (accuracy(prediction, y) - prediction.probs.amax(1).mean()).abs()
    torch.testing.assert_close(expected_calibration_error(prediction, y, num_bins=1), gap)


def test_frequencies_that_equal_probabilities_have_no_error() -> None:
    probs = [[0.75, 0.25]] * 4 + [[0.6, 0.4]] * 5
    y = torch.tensor([0, 0, 0, 1, 0, 0, 0, 1, 1])
    prediction = _given(probs)
    for metric in (expected_calibration_error, rms_calibration_error, class_calibration_error):
        assert float(metric(prediction, y, num_bins=10)) == pytest.approx(0, abs=1e-12)


def test_the_class_curve_is_scikit_learns_over_all_classes() -> None:
    draws, y = _case()
    prediction = Prediction.from_draws(draws, Categorical())
    truth = torch.nn.functional.one_hot(y, 4).flatten().numpy()
    frequency, probability = sklearn_curve(truth, prediction.probs.flatten().numpy(), n_bins=15)
    curve = class_reliability_curve(prediction, y)
    filled = curve.count > 0
    np.testing.assert_allclose(curve.accuracy[filled].numpy(), frequency, rtol=1e-12)
    np.testing.assert_allclose(curve.confidence[filled].numpy(), probability, rtol=1e-12)
    expected = np.sqrt(np.mean((frequency - probability) ** 2))
    assert float(class_calibration_error(prediction, y)) == pytest.approx(expected, rel=1e-10)
    share = curve.count[filled].numpy() / 1200
    expected = np.sqrt(np.sum(share * (frequency - probability) ** 2))
    assert float(class_calibration_error(prediction, y, weighted=True)) == pytest.approx(expected, rel=1e-10)


def test_empty_bins_do_not_count() -> None:
    # Two pairs of labels: half right at 0.9, all right at 0.6. Class errors are the same seen from below.
    prediction = _given([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    y = torch.tensor([0, 1, 0, 0])
    assert float(expected_calibration_error(prediction, y)) == pytest.approx(0.4)
    assert float(rms_calibration_error(prediction, y)) == pytest.approx(0.4)
    assert float(class_calibration_error(prediction, y)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    "metric", [expected_calibration_error, rms_calibration_error, class_calibration_error]
)
def test_images_and_void_are_flat_labels_that_count(metric: object) -> None:
    assert callable(metric)
    draws, y = _case(rows=60)
    keep = torch.arange(60) % 4 > 0
    expected = metric(Prediction.from_draws(draws[:, keep], Categorical()), y[keep])
    image = Prediction.from_draws(draws.reshape(4, 2, 5, 6, 4).movedim(-1, 2), Categorical())
    void = torch.where(keep, y, 11).reshape(2, 5, 6)
    torch.testing.assert_close(metric(image, void, ignore_index=11), expected)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 40), classes=st.integers(2, 6), bins=st.integers(1, 30)
)
def test_errors_are_bounded_ordered_and_blind_to_the_order_of_rows(
    seed: int, rows: int, classes: int, bins: int
) -> None:
    draws, y = _case(seed, rows, classes)
    prediction = Prediction.from_draws(draws, Categorical())
    ece = expected_calibration_error(prediction, y, num_bins=bins)
    rms = rms_calibration_error(prediction, y, num_bins=bins)
    assert 0 <= ece <= rms + 1e-12 <= 1 + 1e-12
    assert 0 <= class_calibration_error(prediction, y, num_bins=bins) <= 1
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    permuted = Prediction.from_draws(draws[:, order], Categorical())
    torch.testing.assert_close(expected_calibration_error(permuted, y[order], num_bins=bins), ece)


@pytest.mark.parametrize("num_bins", [0, -1, 2.0, True])
def test_bins_are_counted(num_bins: int) -> None:
    draws, y = _case(rows=5)
    with pytest.raises(ValueError, match="calibration_error: `num_bins` must be a positive int"):
        expected_calibration_error(Prediction.from_draws(draws, Categorical()), y, num_bins=num_bins)
