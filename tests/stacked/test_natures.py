"""Skewed targets, shares and whole numbers are seen for what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray

from bayesdrop.estimators import DropoutRegressor
from bayesdrop.likelihoods import Warp
from bayesdrop.stacked import Candidate, FitRecipe, Settings, TrainingTable
from bayesdrop.stacked.natures import natures_of, with_natures

Array = NDArray[np.float64]
ROWS = 240


def columns(rows: int = ROWS) -> tuple[np.random.Generator, Array]:
    source = np.random.default_rng(0)
    return source, source.normal(size=(rows, 2))


def made(y: Array) -> Warp:
    """The map that is taken for a target."""
    _, x = columns(len(y))
    return with_natures([TrainingTable(x, y[:, None])], [True])[0].warp


def test_a_gaussian_stays_one() -> None:
    source, x = columns()
    assert made(x[:, 0] + source.normal(size=ROWS)).is_plain


def test_a_skewed_target_is_seen_through_a_logarithm_if_that_suits_unseen_rows() -> None:
    source, x = columns()
    skewed = np.exp(3 + x[:, 0] + 0.3 * source.normal(size=ROWS))
    assert made(skewed).kind == "asinh"
    # As skewed, but with noise that has one size everywhere: the plain Gaussian is right.
    plain = 100 + np.exp(2 * x[:, 0]) + source.normal(size=ROWS)
    assert [one.kind for one in natures_of(plain)] == ["none", "asinh"]


def test_shares_have_their_bounds() -> None:
    source, x = columns()
    share = 1 / (1 + np.exp(-3 * x[:, 0] - source.normal(size=ROWS)))
    found = made(share)
    assert (found.low, found.high) == (0.0, 1.0)


def test_counts_are_whole_numbers_from_zero_on() -> None:
    source, x = columns()
    counts = natures_of(source.poisson(np.exp(0.5 + x[:, 0])).astype(float))
    assert [one.whole for one in counts] == [True, True]
    assert {one.low for one in counts} == {0.0}
    # Ratings from 3 to 8 may be 9 tomorrow, and large numbers have no cells that matter.
    ratings = natures_of(np.tile([3.0, 4, 5, 6, 7, 8], 40))
    assert ratings == [Warp(whole=True)]
    assert not any(one.whole for one in natures_of(np.round(1000 * x[:, 0])))


def test_numbers_between_whole_ones_are_always_the_same() -> None:
    _, x = columns()
    table = TrainingTable(x, np.round(x[:, :1]), warp=Warp(whole=True), seed=3)
    again = TrainingTable(x, np.round(x[:, :1]), warp=Warp(whole=True), seed=3)
    np.testing.assert_array_equal(table.continuous, again.continuous)
    assert 0.2 < np.abs(table.continuous - table.y).mean() < 0.3
    assert np.abs(table.continuous - table.y).max() <= 0.5


def test_log_densities_come_in_the_units_of_the_target() -> None:
    _, x = columns()
    y = np.exp(x[:, :1])
    table = TrainingTable(x, y, warp=Warp("asinh", scale=0.1))
    assert table.target is not None
    z = (np.arcsinh(y / 0.1) - table.target.mean) / table.target.scale
    # dz / dy, by differences.
    step = 1e-6
    slope = (np.arcsinh((y + step) / 0.1) - np.arcsinh((y - step) / 0.1)) / (2 * step * table.target.scale)
    np.testing.assert_allclose(table.log_units, np.log(slope)[:, 0], atol=1e-6)
    np.testing.assert_allclose(table.targets.numpy(), z, atol=1e-5)


@pytest.fixture(scope="module")
def counted() -> tuple[DropoutRegressor, Array, Array, Array]:
    """A model of Poisson counts, new rows, their rates and their counts."""
    source, x = columns(2 * ROWS)
    rate = np.exp(0.3 + 0.8 * x[:, 0])
    y = source.poisson(rate).astype(float)
    model = DropoutRegressor(preset="quick", hidden=(32, 32), random_state=0).fit(x[:ROWS], y[:ROWS])
    return model, x[ROWS:], rate[ROWS:], y[ROWS:]


def test_counts_are_predicted_nearly_as_their_own_law_does(
    counted: tuple[DropoutRegressor, Array, Array, Array],
) -> None:
    model, x, rate, y = counted
    truth = float(scipy.stats.poisson.logpmf(y, rate).mean())
    assert truth - 0.2 < float(model.log_likelihood(x, y).mean()) < truth + 0.1
    lower, upper = model.predict_interval(x)
    assert (lower == np.round(lower)).all()
    assert (upper == np.round(upper)).all()
    assert lower.min() >= 0
    assert model.predict(x).min() >= 0
    assert 0.9 < np.mean((lower <= y) & (y <= upper)) <= 1


def test_a_nature_is_kept_in_the_file(
    counted: tuple[DropoutRegressor, Array, Array, Array], tmp_path: Any
) -> None:
    model, x, _, y = counted
    model.save(tmp_path / "model.safetensors")
    again = DropoutRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(model.log_likelihood(x, y), again.log_likelihood(x, y))
    assert again.mixture_.target is not None
    assert again.mixture_.target.warp.whole


def test_rows_that_come_later_are_seen_in_the_same_way(
    counted: tuple[DropoutRegressor, Array, Array, Array],
) -> None:
    _, x, _, y = counted
    model = DropoutRegressor(preset="quick", hidden=(8,), epochs=3, random_state=0).fit(x[:150], y[:150])
    before = model.mixture_.target
    model.partial_fit(x[150:], y[150:])
    after = model.mixture_.target
    assert before is not None
    assert after is not None
    assert (after.mean, after.scale, after.warp) == (before.mean, before.scale, before.warp)
    assert torch.isfinite(model.predict_dist(x).mean).all()


def test_one_noise_level_for_all_rows_has_no_nature() -> None:
    one = Candidate(Settings(hidden=(4,), noise="learned"))
    with pytest.raises(ValueError, match="`natures` must be False"):
        FitRecipe((one,), natures=True)
