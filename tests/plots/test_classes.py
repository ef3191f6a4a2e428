"""Draws of classes over an ordered quantity, and images at their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop import Categorical, Gaussian, Prediction
from bayesdrop.plots import (
    new_figure,
    plot_class_draws,
    plot_class_uncertainty,
    plot_image_grid,
    plot_images,
    plot_spread,
)

ANGLES = torch.tensor([0.0, 20.0, 10.0])
IMAGES = torch.rand(3, 1, 4, 5, generator=torch.Generator().manual_seed(5))


def axes(rows: int = 1, columns: int = 1) -> Any:
    return new_figure(4, 3).subplots(rows, columns)


@pytest.fixture
def prediction() -> Prediction:
    return make()


def make(draws: int = 6) -> Prediction:
    logits = torch.randn(draws, 3, 4, generator=torch.Generator().manual_seed(0))
    return Prediction.from_draws(logits + torch.tensor([0.0, 3.0, -9.0, 2.0]), Categorical())


def test_a_spread_is_a_dot_a_draw_within_its_row() -> None:
    ax = axes()
    values = torch.arange(12.0).reshape(2, 3, 2)
    assert plot_spread(ax, ANGLES, values, names=["a", "b"], width=0.5) is ax
    first, second = ax.lines
    assert [first.get_label(), second.get_label()] == ["a", "b"]
    assert first.get_linestyle() == "None"
    # The rows lie 10 apart: the two draws are 5 apart.
    np.testing.assert_allclose(first.get_xdata(), [-2.5, 17.5, 7.5, 2.5, 22.5, 12.5])
    np.testing.assert_array_equal(second.get_ydata(), values[..., 1].flatten().numpy())


def test_a_spread_of_one_value_a_row_has_one_colour() -> None:
    ax = axes()
    plot_spread(ax, [0, 1], np.array([[1, 2]]))
    (dots,) = ax.lines
    np.testing.assert_array_equal(dots.get_xdata(), [0, 1])


def test_class_draws_are_logits_above_and_probabilities_below(prediction: Prediction) -> None:
    both = axes(2)
    assert plot_class_draws(both, ANGLES, prediction, classes=2) is both
    for ax, values in zip(both, (prediction.draws, prediction.draws.softmax(-1)), strict=True):
        # Classes 1 and 3 have most of the probability.
        assert [line.get_label() for line in ax.lines] == ["class 1", "class 3"]
        for line, k in zip(ax.lines, (1, 3), strict=True):
            np.testing.assert_allclose(line.get_ydata(), values[..., k].flatten().numpy(), rtol=1e-6)
    assert [ax.get_ylabel() for ax in both] == ["softmax input", "softmax output"]


def test_classes_may_be_named(prediction: Prediction) -> None:
    both = axes(2)
    plot_class_draws(list(both), ANGLES, prediction, classes=[2, 0], names=list("abcd"))
    assert [line.get_label() for line in both[1].lines] == ["c", "a"]


def test_uncertainty_lines_are_the_scores_in_order_of_x(prediction: Prediction) -> None:
    ax = axes()
    assert plot_class_uncertainty(ax, ANGLES, prediction) is ax
    names = ["entropy", "mutual_information", "variation_ratio"]
    assert [line.get_label() for line in ax.lines] == [name.replace("_", " ") for name in names]
    for line, name in zip(ax.lines, names, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20])
        np.testing.assert_array_equal(line.get_ydata(), getattr(prediction, name)[[0, 2, 1]].numpy())


def test_uncertainty_may_come_as_numbers() -> None:
    ax = axes()
    plot_class_uncertainty(ax, ANGLES, {"mine": [1, 2, 3]}, scores=["mine"])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1, 3, 2])


def test_images_lie_at_their_places_over_their_texts() -> None:
    ax = axes()
    assert plot_images(ax, ANGLES, IMAGES, texts=torch.tensor([7, 8, 9])) is ax
    assert len(ax.images) == 3
    for image, place, picture in zip(ax.images, ANGLES.tolist(), IMAGES, strict=True):
        left, right, _, _ = image.get_extent()
        assert (left + right) / 2 == pytest.approx(place)
        assert right - left < 10
        np.testing.assert_array_equal(np.asarray(image.get_array()), picture[0].double().numpy())
        # One scale of greys for all.
        np.testing.assert_allclose(image.get_clim(), [IMAGES.min(), IMAGES.max()])
    assert [(text.get_text(), text.get_position()[0]) for text in ax.texts] == [
        ("7", 0),
        ("8", 20),
        ("9", 10),
    ]
    np.testing.assert_allclose(ax.get_xlim(), [-6, 26])


def test_images_with_colours_are_brought_between_0_and_1() -> None:
    ax = axes()
    images = torch.arange(3 * 3 * 2 * 2).reshape(3, 3, 2, 2)
    plot_images(ax, ANGLES, images)
    np.testing.assert_allclose(np.asarray(ax.images[1].get_array()), images[1].movedim(0, -1) / 35.0)
    assert not ax.texts


def test_the_grid_begins_with_the_least_sure_image(prediction: Prediction) -> None:
    grid = axes(2, 2)
    wrong = prediction.label.clone()
    order = prediction.entropy.argsort(descending=True)
    wrong[order[1]] = 2
    assert plot_image_grid(grid, IMAGES, prediction, targets=wrong) is grid
    flat = list(grid.flat)
    for place, row in enumerate(order.tolist()):
        np.testing.assert_array_equal(np.asarray(flat[place].images[0].get_array()), IMAGES[row, 0].double())
        label = f"{int(prediction.label[row])}" + (", is 2" if place == 1 else "")
        assert flat[place].get_title() == f"{label}\n{float(prediction.entropy[row]):.2f}"
    assert flat[0].title.get_color() != flat[1].title.get_color()
    assert not flat[3].images
    assert not flat[3].axison


def test_the_grid_may_begin_with_the_surest_by_a_score_of_ones_own(prediction: Prediction) -> None:
    (left, right) = axes(1, 2)
    plot_image_grid([left, right], IMAGES[:, 0], prediction, score=[3, 1, 2], surest=True, names=list("abcd"))
    np.testing.assert_array_equal(np.asarray(left.images[0].get_array()), IMAGES[1, 0].double())
    assert left.get_title() == f"{'abcd'[int(prediction.label[1])]}\n1.00"


NUMBERS = Prediction.from_draws(torch.randn(3, 3, 2), Gaussian(0.1))
PIXELS = Prediction.from_draws(torch.randn(3, 3, 2, 5), Categorical(class_axis=1))
BAD_CALLS: dict[str, tuple[type[Exception], str, Any]] = {
    "spread": (ValueError, r"\(T, 3, K\)", lambda ax: plot_spread(ax, ANGLES, torch.ones(3, 2))),
    "spread names": (
        ValueError,
        "1 names",
        lambda ax: plot_spread(ax, ANGLES, torch.ones(2, 3), names=["a", "b"]),
    ),
    "width": (ValueError, r"in \[0, 1\]", lambda ax: plot_spread(ax, ANGLES, torch.ones(2, 3), width=2)),
    "nan": (
        ValueError,
        "1 of 3 values NaN",
        lambda ax: plot_spread(ax, [0, 1, float("nan")], torch.ones(2, 3)),
    ),
    "one axis": (ValueError, "2 axes; got 1", lambda ax: plot_class_draws(ax, ANGLES, make())),
    "numbers": (TypeError, "Categorical", lambda ax: plot_class_draws([ax, ax], ANGLES, NUMBERS)),
    "pixels": (ValueError, "one label a row", lambda ax: plot_class_draws([ax, ax], ANGLES, PIXELS)),
    "rows": (ValueError, "3 rows", lambda ax: plot_class_draws([ax, ax], ANGLES[:2], make())),
    "class": (ValueError, "0 to 3", lambda ax: plot_class_draws([ax, ax], ANGLES, make(), classes=[4])),
    "no class": (ValueError, "0 to 3", lambda ax: plot_class_draws([ax, ax], ANGLES, make(), classes=0)),
    "names": (ValueError, "4 names", lambda ax: plot_class_draws([ax, ax], ANGLES, make(), names=["a"])),
    "one draw": (ValueError, "at least 2 draws", lambda ax: plot_class_uncertainty(ax, ANGLES, make(1))),
    "score": (
        ValueError,
        "one of entropy",
        lambda ax: plot_class_uncertainty(ax, ANGLES, make(), scores=["std"]),
    ),
    "mapping": (
        ValueError,
        "of a",
        lambda ax: plot_class_uncertainty(ax, ANGLES, {"a": ANGLES}, scores=["b"]),
    ),
    "images": (ValueError, "3 images", lambda ax: plot_images(ax, ANGLES, IMAGES[:2])),
    "channels": (ValueError, "1 or 3 channels", lambda ax: plot_images(ax, ANGLES, torch.ones(3, 2, 4, 5))),
    "texts": (ValueError, "3 of them", lambda ax: plot_images(ax, ANGLES, IMAGES, texts=["a"])),
    "targets": (ValueError, "0 to 3", lambda ax: plot_image_grid(ax, IMAGES, make(), targets=[0, 1, 4])),
    "grid": (ValueError, "one or more axes", lambda ax: plot_image_grid([], IMAGES, make())),
    "grid score": (
        ValueError,
        "numbers, or one of",
        lambda ax: plot_image_grid(ax, IMAGES, make(), score="bald"),
    ),
    "grid names": (ValueError, "4 names", lambda ax: plot_image_grid(ax, IMAGES, make(), names=["a"])),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_named_and_leave_the_axes_empty(name: str) -> None:
    kind, message, call = BAD_CALLS[name]
    ax = axes()
    with pytest.raises(kind, match=message):
        call(ax)
    assert not ax.has_data()
    assert ax.axison
