"""Accuracy and Brier score, against scikit-learn."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss

from bayesdrop import Categorical, Multinomial, Prediction
from bayesdrop.metrics import accuracy, brier


def _case(classes: int = 4, rows: int = 150) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(classes)
    y = torch.randint(classes, (rows,), generator=generator)
    draws = 2 * torch.randn(6, rows, classes, dtype=torch.double, generator=generator)
    return draws + 2 * torch.nn.functional.one_hot(y, classes), y


def test_accuracy_is_scikit_learns() -> None:
    draws, y = _case()
    prediction = Prediction.from_draws(draws, Categorical())
    expected = accuracy_score(y.numpy(), draws.softmax(-1).mean(0).argmax(-1).numpy())
    assert 0.3 < expected < 1
    assert float(accuracy(prediction, y)) == pytest.approx(expected, rel=1e-14)


def test_accuracy_is_that_of_the_mean_probabilities_and_not_of_the_mean_logits() -> None:
    # One draw is very sure of class 0; three prefer class 1.
    draws = torch.tensor([[[20.0, 0.0]], [[0.0, 1.5]], [[0.0, 1.5]], [[0.0, 1.5]]])
    assert float(accuracy(Prediction.from_draws(draws, Categorical()), torch.tensor([1]))) == 1
    assert draws.mean(0).argmax() == 0


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_brier_is_scikit_learns_sum_over_classes(classes: int) -> None:
    draws, y = _case(classes)
    probs = draws.softmax(-1).mean(0).numpy()
    expected = brier_score_loss(y.numpy(), probs, labels=range(classes), scale_by_half=False)
    assert float(brier(Prediction.from_draws(draws, Categorical()), y)) == pytest.approx(expected, rel=1e-12)


def test_brier_runs_from_0_to_2() -> None:
    sure = Prediction.from_draws(torch.tensor([[[200.0, 0.0]]]).expand(2, 3, 2), Categorical())
    assert float(brier(sure, torch.zeros(3, dtype=torch.long))) == 0
    assert float(brier(sure, torch.ones(3, dtype=torch.long))) == 2


@pytest.mark.parametrize("axis", [1, -1])
def test_images_are_their_labels_with_classes_on_any_axis(axis: int) -> None:
    draws, y = _case(rows=60)
    flat = Prediction.from_draws(draws, Categorical())
    image = draws.reshape(6, 2, 5, 6, 4).movedim(-1, 2 if axis == 1 else -1)
    positions = Prediction.from_draws(image, Categorical(class_axis=axis))
    for metric in (accuracy, brier):
        torch.testing.assert_close(metric(positions, y.reshape(2, 5, 6)), metric(flat, y))


@pytest.mark.parametrize("metric", [accuracy, brier])
def test_void_labels_do_not_count(metric: object) -> None:
    assert callable(metric)
    draws, y = _case()
    keep = torch.arange(len(y)) % 4 > 0
    expected = metric(Prediction.from_draws(draws[:, keep], Categorical()), y[keep])
    void = torch.where(keep, y, 255)
    value = metric(Prediction.from_draws(draws, Categorical()), void, ignore_index=255)
    torch.testing.assert_close(value, expected)


def test_one_trial_of_a_multinomial_is_a_label() -> None:
    draws, y = _case()
    for metric in (accuracy, brier):
        assert metric(Prediction.from_draws(draws, Multinomial()), y) == metric(
            Prediction.from_draws(draws, Categorical()), y
        )


def test_labels_may_be_of_any_integer_dtype() -> None:
    draws, y = _case(2)
    prediction = Prediction.from_draws(draws, Categorical())
    for dtype in (torch.uint8, torch.int32, torch.bool):
        assert accuracy(prediction, y.to(dtype)) == accuracy(prediction, y)
