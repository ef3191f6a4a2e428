"""Seen: what lies outside a table, and that it is bounded before it meets a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from bayesdrop.data import DataNotFound, from_table, load_uci
from bayesdrop.stacked import Encoder, Seen


def test_the_margin_is_the_width_between_the_outer_percents() -> None:
    x = np.linspace(0, 100, 1001)[:, None]
    seen = Seen.of(x)
    assert (seen.low[0], seen.high[0], seen.margin[0]) == pytest.approx((0, 100, 98))
    values = np.array([-98.1, -97.9, 50.0, 197.9, 198.1, np.inf, -np.inf, np.nan])[:, None]
    assert seen.outside(values)[:, 0].tolist() == [True, False, False, False, True, True, True, True]
    assert seen.bounded(values[:-1])[:, 0].tolist() == pytest.approx([-98, -97.9, 50, 197.9, 198, 198, -98])


def test_one_stray_value_does_not_widen_the_margin() -> None:
    x = np.append(np.linspace(0, 1, 999), 1e6)[:, None]
    seen = Seen.of(x)
    assert seen.margin[0] < 1.01
    assert not seen.outside(x).any()


def test_a_column_that_is_nearly_always_the_same_has_its_whole_range_for_a_margin() -> None:
    x = np.zeros((500, 1))
    x[7] = 3
    assert Seen.of(x).margin.tolist() == [3.0]
    assert Seen.of(np.full((5, 1), 2.0)).outside(np.array([[2.0], [2.1]])).tolist() == [[False], [True]]


@pytest.mark.parametrize("size", [1e-165, 1.0, 1e200, 1.7e308])
def test_numbers_of_any_size_become_inputs_of_size_one(size: float) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (50, 2)) * size
    encoder = Encoder.of(x, bins=5)
    inputs = encoder(x)
    np.testing.assert_allclose(inputs[:, :2].std(0, correction=0), 1, rtol=1e-5)
    far = encoder(np.array([[1.79e308, -1.79e308]]))
    assert float(far.abs().max()) < 10
    assert inputs.isfinite().all()


SCIKIT_LEARN: dict[str, Any] = {
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "diabetes": load_diabetes,
    "digits": load_digits,
}


@pytest.mark.parametrize("name", [*SCIKIT_LEARN, "boston", "concrete", "power", "protein", "yacht"])
def test_rows_that_come_as_the_table_did_are_hardly_ever_outside(name: str) -> None:
    try:
        x = SCIKIT_LEARN[name]().data if name in SCIKIT_LEARN else load_uci(name).x.numpy()
    except DataNotFound:
        pytest.skip("not at hand")
    table = from_table(x, np.arange(len(x)), splits=10, test_fraction=0.1)
    shares = []
    for train, test in zip(table.train, table.test, strict=True):
        shares.append(Seen.of(x[train.numpy()]).outside(x[test.numpy()]).any(1).mean())
    assert np.mean(shares) < 0.004
