"""Draws that are held for many predictions are the draws that are made anew in every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayesdrop.estimators import DropoutClassifier, DropoutRegressor
from bayesdrop.stacked.prepared import PreparedMixture

METHODS = ["bernoulli", "concrete", "gaussian", "dropconnect", "mixture", "variational", "meanfield"]


def rows(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(seed).normal(size=(60, 3))
    return x, x[:, 0] + np.sin(x[:, 1])


@pytest.mark.parametrize("method", METHODS)
def test_prepared_draws_are_those_of_the_mixture(method: str) -> None:
    x, y = rows()
    fitted = DropoutRegressor(
        preset="quick", method=method, hidden=(6, 5), epochs=2, num_draws=9, random_state=0
    ).fit(x, y)
    for draws, seed in ((9, 0), (5, 3), (1, 1)):
        whole = fitted.predict_dist(x, num_draws=draws, seed=seed)
        (ready,) = fitted.prepared(num_draws=draws, seed=seed).predictions(x)
        # The same products, of the same numbers, stacked otherwise.
        np.testing.assert_allclose(ready.draws, whole.draws, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ready.mean, whole.mean, rtol=1e-5, atol=1e-6)


def test_networks_of_different_shapes_and_classes_keep_their_order() -> None:
    x, y = rows()
    fitted = DropoutClassifier(
        preset="quick", search="grid", grid={"hidden": [(4,), (6, 5)], "bins": [0, 4]}, epochs=2,
        num_draws=11, random_state=0,
    ).fit(x, (y > 0).astype(int))  # fmt: skip
    whole = fitted.predict_dist(x, seed=2)
    (ready,) = fitted.prepared(seed=2).predictions(x)
    np.testing.assert_allclose(ready.draws, whole.draws, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ready.entropy, whole.entropy, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ready.mutual_information, whole.mutual_information, rtol=1e-4, atol=1e-6)


def test_draws_that_are_too_large_to_hold_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = rows()
    fitted = DropoutRegressor(preset="quick", hidden=(6,), epochs=2, num_draws=9, random_state=0).fit(x, y)
    assert PreparedMixture.bytes_needed(fitted.mixture_, 18) > PreparedMixture.bytes_needed(
        fitted.mixture_, 9
    )
    monkeypatch.setattr("bayesdrop.estimators.base._MOST_HELD", 0)
    (ready,) = fitted.prepared(seed=4).predictions(x)
    np.testing.assert_array_equal(ready.draws, fitted.predict_dist(x, seed=4).draws)
