"""Segmentations side by side: which panel shows what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayesdrop import Categorical, Gaussian, Prediction
from bayesdrop.plots import new_figure, plot_segmentation

VOID = 255
IMAGES = torch.rand(3, 3, 4, 6, generator=torch.Generator().manual_seed(1))


def axes(rows: int = 2, columns: int = 5) -> Any:
    return new_figure(8, 3).subplots(rows, columns, squeeze=False)


def make(draws: int = 6) -> tuple[Prediction, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (3, 4, 6), generator=generator)
    logits = torch.randn(draws, 3, 3, 4, 6, generator=generator) + 2 * torch.nn.functional.one_hot(
        y, 3
    ).movedim(-1, 1)
    y[:, 0, 0] = VOID
    return Prediction.from_draws(logits, Categorical()), y


def panel(ax: Any) -> Any:
    (image,) = ax.images
    return np.asarray(image.get_array())


def test_every_panel_shows_its_own() -> None:
    prediction, y = make()
    places = axes()
    colors = ["#ff0000", "#00ff00", "#0000ff"]
    given = plot_segmentation(places, IMAGES, prediction, targets=y, ignore_index=VOID, colors=colors)
    assert given is places
    for row in range(2):
        image, label, found, noise, spread = places[row]
        low, high = IMAGES.min(), IMAGES.max()
        np.testing.assert_allclose(
            panel(image), ((IMAGES - low) / (high - low))[row].movedim(0, -1), atol=1e-6
        )
        np.testing.assert_array_equal(panel(found).argmax(-1), prediction.label[row])
        truth = panel(label)
        is_void = (y[row] == VOID).numpy()
        np.testing.assert_array_equal(truth.argmax(-1)[~is_void], y[row].numpy()[~is_void])
        assert np.ptp(truth[is_void]) == 0  # grey
        np.testing.assert_allclose(panel(noise), prediction.expected_entropy[row])
        np.testing.assert_allclose(panel(spread), prediction.mutual_information[row])
    # one scale for all rows, and it is told
    scales = {places[row][3].images[0].get_clim() for row in range(2)}
    largest = float(prediction.expected_entropy[:2].max())
    assert scales == {(0.0, largest)}
    assert f"0 to {largest:.2f} nats" in places[0][3].get_title()
    assert [ax.get_title() for ax in places[0][:3]] == ["image", "label", "prediction"]
    assert not any(ax.get_title() for ax in places[1])


def test_the_classes_that_are_drawn_are_there_for_a_legend() -> None:
    prediction, y = make()
    places = axes()
    plot_segmentation(places, IMAGES, prediction, targets=y, ignore_index=VOID, names=["road", "sky", "tree"])
    handles, names = places[0, 2].get_legend_handles_labels()
    assert names == ["road", "sky", "tree"]
    painted = panel(places[0, 2])
    at = (prediction.label[0] == 1).nonzero()[0].tolist()
    np.testing.assert_allclose(handles[1].get_color(), painted[tuple(at)])


def test_without_targets_there_are_four_panels_and_one_row_may_be_flat() -> None:
    prediction, _ = make()
    places = axes(1, 4)[0]
    plot_segmentation(places, IMAGES[:, 0], prediction)
    np.testing.assert_allclose(panel(places[3]), prediction.mutual_information[0])
    assert places[1].get_title() == "prediction"


def test_more_classes_than_colours_are_painted() -> None:
    draws = torch.randn(2, 1, 25, 4, 6)
    plot_segmentation(axes(1, 4), IMAGES[:1], Prediction.from_draws(draws, Categorical()))


def test_what_cannot_be_drawn_is_refused_before_anything_is() -> None:
    prediction, y = make()
    rows = Prediction.from_draws(torch.randn(3, 3, 4), Categorical())
    numbers = Prediction.from_draws(torch.randn(3, 3, 4, 6), Gaussian(0.1))
    single, _ = make(draws=1)
    good: dict[str, Any] = {"targets": y, "ignore_index": VOID}
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((axes(2, 4), IMAGES, prediction), good, r"`axes` must be \(R, 5\)"),
        ((axes(4, 5), IMAGES, prediction), good, "at most 3 rows"),
        ((axes(), IMAGES, rows), good, "of classes of pixels"),
        ((axes(), IMAGES, numbers), good, "of classes of pixels"),
        ((axes(), IMAGES, 3), good, "a Prediction"),
        ((axes(), IMAGES, single), good, "at least 2 draws"),
        ((axes(), IMAGES[:2], prediction), good, "3 images"),
        ((axes(), IMAGES[..., :5], prediction), good, "pixels, as `prediction`"),
        ((axes(), IMAGES, prediction), {"targets": y}, "Pass ignore_index="),
        ((axes(), IMAGES, prediction), {**good, "targets": y[:2]}, "`targets` must be of shape"),
        ((axes(), IMAGES, prediction), {**good, "names": ["a"]}, "3 names"),
        ((axes(), IMAGES, prediction), {**good, "colors": ["red"]}, "3 colours"),
    ]
    for arguments, options, words in cases:
        with pytest.raises((TypeError, ValueError), match=words):
            plot_segmentation(*arguments, **options)
        assert not any(ax.images for ax in arguments[0].reshape(-1))
