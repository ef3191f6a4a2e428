"""DropoutClassifier: labels of any kind, probabilities, further rows, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bayesdrop.estimators import DropoutClassifier

SMALL: dict[str, Any] = {
    "preset": "quick",
    "hidden": (16,),
    "epochs": 40,
    "batch_size": 32,
    "num_draws": 40,
    "lr": 2e-2,
    "random_state": 0,
}


def blobs(rows: int = 240, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[Any]]:
    source = np.random.default_rng(seed)
    labels = np.array(["ant", "bee", "cat"])[source.integers(3, size=rows)]
    centres = {"ant": (0, 0), "bee": (3, 0), "cat": (0, 3)}
    return np.array([centres[label] for label in labels]) + source.normal(size=(rows, 2)), labels


def test_probabilities_are_of_the_labels() -> None:
    x, y = blobs()
    model = DropoutClassifier(**SMALL).fit(x, y)
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    test_x, test_y = blobs(seed=1)
    probs = model.predict_proba(test_x)
    np.testing.assert_allclose(probs.sum(1), 1)
    assert model.score(test_x, test_y) > 0.85
    np.testing.assert_array_equal(model.predict(test_x), model.classes_[probs.argmax(1)])
    own = probs[np.arange(len(test_y)), np.searchsorted(model.classes_, test_y)]
    np.testing.assert_allclose(model.log_likelihood(test_x, test_y), np.log(own), rtol=1e-5, atol=1e-6)
    # Probabilities mean what they say: the mean of the largest is the accuracy.
    accuracy = (probs.argmax(1) == np.searchsorted(model.classes_, test_y)).mean()
    error = (accuracy * (1 - accuracy) / len(test_y)) ** 0.5
    assert abs(probs.max(1).mean() - accuracy) < 5 * error
    prediction = model.predict_dist(test_x)
    assert (prediction.mutual_information <= prediction.entropy + 1e-6).all()


def test_new_labels_need_to_be_announced() -> None:
    x, y = blobs()
    some = y != "cat"
    model = DropoutClassifier(**SMALL).partial_fit(x[some], y[some], classes=["ant", "bee", "cat"])
    assert model.predict_proba(x).shape == (240, 3)
    before = model.log_likelihood(x, y).mean()
    model.partial_fit(x[~some], y[~some])
    assert model.log_likelihood(x, y).mean() > before
    narrow = DropoutClassifier(**SMALL).partial_fit(x[some], y[some])
    with pytest.raises(ValueError, match="among the classes"):
        narrow.partial_fit(x[~some], y[~some])


@pytest.mark.parametrize("labels", [[0, 1], [True, False], ["yes", "no"], [10, -3]])
def test_a_file_brings_the_classes_back(labels: list[Any], tmp_path: Path) -> None:
    x, y = blobs(90)
    two = np.array(labels)[(y == "ant").astype(int)]
    model = DropoutClassifier(**{**SMALL, "epochs": 5}).fit(x, two)
    model.save(tmp_path / "model.safetensors")
    loaded = DropoutClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    assert loaded.classes_.dtype == model.classes_.dtype


def test_the_temperature_is_set_by_rows_that_were_held_out() -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(150, 4))
    coin = source.integers(2, size=150)
    # Nothing to learn, and long training on few rows: without held-out rows it would be sure of itself.
    sure = DropoutClassifier(**{**SMALL, "epochs": 200, "search": "none", "p": 0.0}).fit(x, coin)
    honest = DropoutClassifier(**{**SMALL, "epochs": 200}).fit(x, coin)
    fresh = source.normal(size=(150, 4))
    outcome = source.integers(2, size=150)
    assert honest.log_likelihood(fresh, outcome).mean() > max(
        -0.8, sure.log_likelihood(fresh, outcome).mean()
    )
    assert torch.tensor(honest.predict_proba(fresh)).max() < 0.99


def tags(
    rows: int = 400, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Rows, three labels that do not exclude each other, and the true chances of yes."""
    source = np.random.default_rng(seed)
    x = source.normal(size=(rows, 3))
    chances = 1 / (1 + np.exp(-np.stack([2 * x[:, 0], x[:, 1] - x[:, 0], np.full(rows, -2.0)], 1)))
    return x, (source.random((rows, 3)) < chances).astype(np.int64), chances


def test_several_labels_a_row_have_a_probability_each(tmp_path: Path) -> None:
    x, y, _ = tags()
    model = DropoutClassifier(**SMALL).fit(x, y)
    test_x, test_y, chances = tags(seed=1)
    probs = model.predict_proba(test_x)
    assert probs.shape == (400, 3)
    assert model.classes_.tolist() == [0, 1, 2]
    # As near to the true chances as 400 rows allow: far nearer than how often each label occurs.
    constant = ((y.mean(0) - chances) ** 2).mean(0)
    np.testing.assert_array_less(((probs - chances) ** 2).mean(0)[:2], 0.2 * constant[:2])
    np.testing.assert_array_equal(model.predict(test_x), probs > 0.5)
    # All labels of a row at once: averaged over functions, not over labels.
    draws = model.predict_dist(test_x).draws
    per_label = torch.where(torch.from_numpy(test_y) == 1, draws, -draws).sigmoid().log()
    joint = per_label.sum(-1).logsumexp(0) - np.log(len(draws))
    np.testing.assert_allclose(model.log_likelihood(test_x, test_y), joint, rtol=1e-6)
    model.save(tmp_path / "model.safetensors")
    loaded = DropoutClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(test_x), probs)
    assert model.partial_fit(test_x, test_y).predict_proba(x).shape == (400, 3)


def test_labels_that_are_neither_yes_nor_no_are_refused() -> None:
    x, y, _ = tags(20)
    with pytest.raises(ValueError, match=r"`y` must be 0 or 1 in every column; got 2"):
        DropoutClassifier(**SMALL).fit(x, y + 1)
    model = DropoutClassifier(**SMALL).fit(x, y)
    with pytest.raises(ValueError, match=r"`y` must be of shape \(N, 3\), as in the fit; got \(20,\)"):
        model.partial_fit(x, y[:, 0])
    with pytest.raises(ValueError, match=r"`y` must be of shape \(N, 3\); got \(20, 2\)"):
        model.log_likelihood(x, y[:, :2])
    # The next fit may be of another kind.
    assert model.fit(x, y[:, 0]).predict(x).shape == (20,)
