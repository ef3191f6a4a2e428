"""IoU and accuracies over a data set, against torchmetrics, scikit-learn and sets of pixels."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, jaccard_score, precision_score
from torch import Tensor

from bayesdrop import Categorical, Prediction
from bayesdrop.metrics import (
    accuracy,
    class_calibration_error,
    class_reliability_curve,
    confusion,
    entropy_range,
    iou,
    mean_iou,
    pavpu,
)

VOID = 11


def _maps(
    seed: int = 0, rows: int = 6, classes: int = 5, top: int | None = None
) -> tuple[Prediction, Tensor]:
    """Labels of the first `top` classes, a tenth of them void."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(top or classes, (rows, 7, 9), generator=generator)
    draws = 2 * torch.randn(3, rows, classes, 7, 9, dtype=torch.double, generator=generator)
    draws += 2 * torch.nn.functional.one_hot(y, classes).movedim(-1, 1)
    y[torch.rand(y.shape, generator=generator) < 0.1] = VOID
    return Prediction.from_draws(draws, Categorical()), y


def _part(prediction: Prediction, rows: slice) -> Prediction:
    return Prediction.from_draws(prediction.draws[:, rows], prediction.likelihood)


def test_iou_is_that_of_scikit_learn() -> None:
    prediction, y = _maps()
    kept = y != VOID
    truth, found = y[kept].numpy(), prediction.label[kept].numpy()
    expected = jaccard_score(truth, found, labels=range(5), average=None)
    torch.testing.assert_close(iou(prediction, y, ignore_index=VOID), torch.from_numpy(expected))
    assert float(mean_iou(prediction, y, ignore_index=VOID)) == pytest.approx(expected.mean())
    counted = confusion(prediction, y, ignore_index=VOID)
    assert torch.equal(counted.counts, torch.from_numpy(confusion_matrix(truth, found, labels=range(5))))
    assert float(counted.pixel_accuracy) == float(accuracy(prediction, y, ignore_index=VOID))
    torch.testing.assert_close(
        counted.class_accuracy,
        torch.stack([(prediction.label[y == k] == k).double().mean() for k in range(5)]),
    )
    precision = precision_score(truth, found, labels=range(5), average=None)
    torch.testing.assert_close(counted.class_precision, torch.from_numpy(precision))
    assert float(counted.mean_class_accuracy) == pytest.approx(balanced_accuracy_score(truth, found))


def test_iou_is_that_of_torchmetrics_with_void_and_absent_classes() -> None:
    torchmetrics = pytest.importorskip("torchmetrics.classification")
    prediction, y = _maps(classes=6, top=4)
    draws = prediction.draws.clone()
    draws[:, :, 5] = -50.0  # neither in the labels nor predicted
    prediction = Prediction.from_draws(draws, Categorical())
    each, mean = (
        torchmetrics.MulticlassJaccardIndex(6, average=average, ignore_index=VOID)
        for average in ("none", "macro")
    )
    for metric in (each, mean):
        metric.update(prediction.label, y)
    ours = iou(prediction, y, ignore_index=VOID)
    assert math.isnan(ours[5])
    torch.testing.assert_close(ours[:5].float(), each.compute()[:5])
    assert ours[4] == 0  # predicted, never true: it counts
    torch.testing.assert_close(mean_iou(prediction, y, ignore_index=VOID).float(), mean.compute())


def test_a_void_label_that_is_a_class_has_no_iou() -> None:
    prediction, y = _maps()
    y[y == VOID] = 0
    ours = iou(prediction, y, ignore_index=0)
    pixels = {(n, i, j) for n, i, j in (y != 0).nonzero().tolist()}
    for k in range(1, 5):
        true = {at for at in pixels if y[at] == k}
        found = {at for at in pixels if prediction.label[at] == k}
        assert float(ours[k]) == pytest.approx(len(true & found) / len(true | found))
    assert math.isnan(ours[0])
    assert float(mean_iou(prediction, y, ignore_index=0)) == pytest.approx(float(ours[1:].mean()))


def test_batches_add_up_to_the_data_set() -> None:
    prediction, y = _maps()
    y[2] = VOID  # a whole image of nothing
    parts = [(_part(prediction, slice(n, n + 1)), y[n : n + 1]) for n in range(6)]
    total = sum(confusion(part, labels, ignore_index=VOID) for part, labels in parts)
    assert torch.equal(total.counts, confusion(prediction, y, ignore_index=VOID).counts)
    assert total.num_labels == int((y != VOID).sum())
    # the mean of the images' IoU is another number
    means = [
        float(mean_iou(part, labels, ignore_index=VOID)) for part, labels in parts if labels.min() < VOID
    ]
    assert abs(sum(means) / 5 - float(total.mean_iou)) > 1e-3
    assert math.isnan(confusion(*parts[2], ignore_index=VOID).mean_iou)


def test_the_calibration_plot_adds_up_to_the_data_set() -> None:
    prediction, y = _maps()
    whole = class_reliability_curve(prediction, y, num_bins=10, ignore_index=VOID)
    added = sum(
        class_reliability_curve(_part(prediction, rows), y[rows], num_bins=10, ignore_index=VOID)
        for rows in (slice(0, 1), slice(1, 2), slice(2, 6))
    )
    assert torch.equal(added.count, whole.count)
    torch.testing.assert_close(added.confidence, whole.confidence, equal_nan=True)
    torch.testing.assert_close(added.accuracy, whole.accuracy, equal_nan=True)
    error = class_calibration_error(prediction, y, num_bins=10, ignore_index=VOID)
    torch.testing.assert_close(added.rms_error(), error)


def test_the_calibration_plot_is_all_pixels_and_all_classes() -> None:
    prediction, y = _maps()
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for n, i, j in (y != VOID).nonzero().tolist():
        for k in range(5):
            p = float(prediction.probs[n, k, i, j])
            bins[max(0, math.ceil(10 * p) - 1)].append((p, int(y[n, i, j]) == k))
    gaps = [sum(p - true for p, true in some) / len(some) for some in bins if some]
    expected = math.sqrt(sum(gap**2 for gap in gaps) / len(gaps))
    curve = class_reliability_curve(prediction, y, num_bins=10, ignore_index=VOID)
    assert float(curve.rms_error()) == pytest.approx(expected)
    assert curve.count.tolist() == [len(some) for some in bins]


def test_pavpu_adds_up_over_batches_with_one_range() -> None:
    prediction, y = _maps()
    validation, labels = _maps(seed=1)
    ends = entropy_range(validation, labels, ignore_index=VOID)
    kept = validation.entropy[labels != VOID]
    assert ends == (float(kept.min()), float(kept.max()))
    options = {"patch": 2, "ignore_index": VOID}
    whole = pavpu(prediction, y, entropy_range=ends, **options)
    parts = [
        pavpu(_part(prediction, rows), y[rows], entropy_range=ends, **options)
        for rows in (slice(0, 2), slice(2, 6))
    ]
    assert torch.equal(sum(parts).counts, whole.counts)
    torch.testing.assert_close(sum(parts).mean, whole.mean)
    other = pavpu(prediction, y, entropy_range=(0.0, 1.0), **options)
    with pytest.raises(ValueError, match="entropy_range"):
        _ = whole + other


def test_void_pixels_do_not_stretch_the_range() -> None:
    prediction, y = _maps()
    at = tuple((prediction.entropy == prediction.entropy.max()).nonzero()[0].tolist())
    y[at] = VOID
    assert entropy_range(prediction, y, ignore_index=VOID)[1] < entropy_range(prediction)[1]
    with pytest.raises(ValueError, match="ignore_index"):
        entropy_range(prediction, ignore_index=VOID)


def test_parts_of_other_classes_do_not_add_up() -> None:
    ours, theirs = (confusion(*_maps(classes=k), ignore_index=VOID) for k in (5, 6))
    with pytest.raises(ValueError, match="Confusion"):
        _ = ours + theirs
    curves = [class_reliability_curve(*_maps(), num_bins=b, ignore_index=VOID) for b in (5, 6)]
    with pytest.raises(ValueError, match="5 bins"):
        _ = curves[0] + curves[1]
