"""Rows of the fit, predicted by networks that have not seen them, and the intervals that these set."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop.estimators import DropoutClassifier, DropoutRegressor
from bayesdrop.stacked import Candidate, FitRecipe, Mixture, Settings, TrainingTable, fit_tables, grow
from bayesdrop.stacked.fit import TableFit
from bayesdrop.stacked.out_of_fold import central_shares, interval_levels, out_of_fold


def recipe(**options: Any) -> FitRecipe:
    settings = Settings(hidden=(8,), epochs=6, batch_size=16, p=0.05, noise="heteroscedastic")
    return FitRecipe(
        (Candidate(settings),), **{"folds": 4, "parts": 4, "blocks": 2, "tails": True, **options}
    )


def table(rows: int = 60, **options: Any) -> TrainingTable:
    source = np.random.default_rng(0)
    x = source.normal(size=(rows, 2))
    return TrainingTable(x, 3 + 2 * x[:, :1] + source.normal(size=(rows, 1)), **options)


@pytest.fixture(scope="module")
def fitted() -> tuple[TrainingTable, Mixture]:
    one = table()
    return one, fit_tables([one], recipe())[0]


def test_a_row_is_predicted_by_the_networks_that_have_not_seen_it(
    fitted: tuple[TrainingTable, Mixture],
) -> None:
    rows, mixture = fitted
    found = list(out_of_fold(mixture, rows.x))
    assert sorted(np.concatenate([places for places, _ in found]).tolist()) == list(range(60))
    places, prediction = found[0]
    row = int(places[7])
    own = [one for one in mixture.components if one.held is not None and row in one.held.tolist()]
    assert len(own) == 2
    # The same networks alone, without the others: the same distribution up to the noise of the draws.
    alone = replace(mixture, components=tuple(own)).predict(rows.x[row : row + 1], 2000)
    error = float(alone.std[0, 0]) * (1 / math.sqrt(2000) + 1 / math.sqrt(prediction.num_draws))
    assert abs(float(prediction.mean[7, 0]) - float(alone.mean[0, 0])) < 5 * error
    # Networks that have seen the row say something else.
    others = replace(mixture, components=tuple(one for one in mixture.components if one not in own))
    assert abs(float(others.predict(rows.x[row : row + 1], 2000).mean[0, 0] - alone.mean[0, 0])) > 1e-4


def test_networks_of_all_rows_have_no_rows_out_of_fold() -> None:
    one = table()
    mixture = fit_tables([one], recipe(refit=True))[0]
    assert list(out_of_fold(mixture, one.x)) == []
    assert mixture.shares is None


def test_of_many_rows_some_are_looked_at(fitted: tuple[TrainingTable, Mixture]) -> None:
    rows, mixture = fitted
    assert sum(len(places) for places, _ in out_of_fold(mixture, rows.x, most=17)) == 17


def test_shares_are_those_of_central_intervals(fitted: tuple[TrainingTable, Mixture]) -> None:
    rows, mixture = fitted
    assert mixture.shares is not None
    np.testing.assert_array_equal(mixture.shares, central_shares(mixture, rows.x, rows.y))
    at = 0
    for places, prediction in out_of_fold(mixture, rows.x):
        for place, row in enumerate(places):
            share = float(mixture.shares[at, 0])
            at += 1
            if 0.01 < share < 0.99:
                lower, upper = prediction.interval(share)
                near = min(abs(float(end[place, 0]) - rows.y[row, 0]) for end in (lower, upper))
                assert near < 1e-6


@pytest.mark.parametrize(("rows", "rank"), [(19, 19), (39, 38), (99, 95)])
def test_the_level_of_intervals_is_a_rank_of_the_shares(rows: int, rank: int) -> None:
    shares = np.linspace(0.01, 0.98, rows)[:, None]
    assert interval_levels(shares[::-1], 0.95)[0] == shares[rank - 1, 0]


def test_of_too_few_rows_nothing_follows() -> None:
    assert interval_levels(np.full((18, 1), 0.5), 0.95)[0] == 0.95


def test_of_several_targets_the_largest_share_of_a_row_counts_jointly() -> None:
    shares = np.random.default_rng(0).uniform(size=(99, 3))
    levels = interval_levels(shares, 0.9, joint=True)
    assert levels.shape == (3,)
    assert (shares <= levels).all(1).sum() == 90, "the rank of 99 rows"
    assert (shares <= interval_levels(shares, 0.9)).all(1).sum() < 85
    np.testing.assert_allclose(interval_levels(shares[:8], 0.9, joint=True), 1 - 0.1 / 3)
    np.testing.assert_array_equal(
        interval_levels(shares[:, :1], 0.9, joint=True), interval_levels(shares[:, :1], 0.9)
    )


def test_joint_intervals_hold_all_targets_of_a_new_row() -> None:
    source = np.random.default_rng(4)
    x = source.normal(size=(900, 2))
    y = np.stack([x[:, 0], x.sum(1), -x[:, 1]], 1) + 0.3 * source.normal(size=(900, 3))
    model = DropoutRegressor(preset="quick", epochs=30, random_state=0).fit(x[:200], y[:200])
    rates = []
    for joint in (False, True):
        lower, upper = model.predict_interval(x[200:], 0.8, joint=joint)
        rates.append(float(((lower <= y[200:]) & (y[200:] <= upper)).all(1).mean()))
    # Coverage given 200 scores is Beta(161, 40), of standard deviation 0.028; of 700 rows, 0.015 more.
    assert abs(rates[1] - 0.8) < 3.5 * math.hypot(0.028, 0.015)
    assert rates[0] < 0.7
    with pytest.raises(TypeError, match="`joint` must be"):
        model.predict_interval(x, joint="yes")


def test_intervals_grow_with_their_level_and_stay_finite() -> None:
    shares = np.concatenate([np.linspace(0, 0.9, 50), np.ones(50)])[:, None]
    levels = [float(interval_levels(shares, level)[0]) for level in (0.2, 0.4, 0.6, 0.9, 0.99)]
    assert levels == sorted(levels)
    assert levels[-1] < 1


def test_new_rows_set_the_intervals_too(fitted: tuple[TrainingTable, Mixture]) -> None:
    rows, mixture = fitted
    more = table(90)
    grown = grow(mixture, replace(more, x=np.concatenate([rows.x, more.x[60:]]), y=more.y), 60, epochs=1)
    assert grown.shares is not None
    assert 60 < len(grown.shares) <= 90


def test_intervals_hold_what_they_promise_for_small_tables() -> None:
    """Over many small tables of a known distribution, of skewed noise that no Gaussian has."""
    source = np.random.default_rng(1)
    tables, tests = [], []
    for seed in range(24):
        x = source.normal(size=(240, 1))
        y = np.sin(x) + (0.3 + 0.2 * np.abs(x)) * (source.exponential(size=(240, 1)) - 1)
        tables.append(TrainingTable(x[:40], y[:40], seed=seed))
        tests.append((x[40:], y[40:]))
    mixtures = fit_tables(tables, recipe(blocks=1, num_draws=40))
    rates = []
    for mixture, (x, y) in zip(mixtures, tests, strict=True):
        assert mixture.shares is not None
        level = float(interval_levels(mixture.shares, 0.8)[0])
        lower, upper = (end.numpy() for end in mixture.predict(x).interval(level))
        rates.append(float(((lower <= y) & (y <= upper)).mean()))
    # Of 40 rows the rank is 33 of 41: 0.805. Coverage of a table is Beta(33, 8), of standard deviation 0.061.
    error = float(np.std(rates, ddof=1)) / math.sqrt(len(rates))
    assert abs(np.mean(rates) - 33 / 41) < 3.5 * error + 0.02
    assert error < 0.03


# groups


def groups_of(rows: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(2).integers(0, count, rows)


def test_rows_of_a_group_are_held_out_together() -> None:
    own = groups_of(60, 9)
    fit = TableFit(table(groups=own), recipe())
    for block in range(3):
        _, held = fit.block_jobs(fit.tried[0], block, range(4))
        assert sorted(torch.cat(held).tolist()) == list(range(60))
        for rows in held:
            apart = set(own[rows.numpy()])
            assert not apart & set(np.delete(own, rows.numpy()))
    # Parts are of like size, and differ from block to block.
    sizes = np.bincount(fit._folds_of(0))
    assert sizes.max() - sizes.min() <= np.bincount(own).max()
    assert (fit._folds_of(0) != fit._folds_of(1)).any()


def test_groups_stay_together_as_a_table_grows() -> None:
    own = groups_of(90, 12)
    first = replace(table(90), x=table(90).x[:60], y=table(90).y[:60], groups=own[:60])
    grown = grow(fit_tables([first], recipe())[0], table(90, groups=own), 60, epochs=1)
    for component in grown.components:
        assert component.held is not None
        assert not set(own[component.held.numpy()]) & set(np.delete(own, component.held.numpy()))


def test_a_group_has_one_say_in_the_intervals() -> None:
    mixture = fit_tables([table(groups=groups_of(60, 9))], recipe())[0]
    assert mixture.shares is not None
    assert len(mixture.shares) == 9


def test_intervals_hold_for_rows_of_new_groups() -> None:
    """Every group has a level of its own, which no column tells: rows of a known group would be easy."""
    source = np.random.default_rng(3)
    level = source.normal(size=400)
    group = np.repeat(np.arange(60), 5)
    x = np.concatenate([source.normal(size=(300, 1)), (group + 0.0)[:, None]], 1)
    y = level[group] + 0.05 * source.normal(size=300)
    model = DropoutRegressor(preset="quick", hidden=(32,), epochs=150, random_state=0)
    new = np.stack([source.normal(size=300), source.uniform(0, 59, 300)], 1)
    target = level[60:360] + 0.05 * source.normal(size=300)
    lower, upper = model.fit(x, y, groups=[f"shop {one}" for one in group]).predict_interval(new, 0.8)
    assert 0.68 < np.mean((lower <= target) & (target <= upper)) < 0.95


@pytest.mark.parametrize("kind", [DropoutRegressor, DropoutClassifier])
def test_groups_that_make_no_sense_are_told_of(kind: type) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = (x[:, 0] > 0).astype(float) if kind is DropoutClassifier else x[:, 0]
    model = kind(preset="quick", hidden=(4,), epochs=1, random_state=0)
    with pytest.raises(ValueError, match=r"`groups` must be of shape \(30,\)"):
        model.fit(x, y, groups=[1, 2])
    with pytest.raises(ValueError, match="`groups` must be of at least 2 groups"):
        model.fit(x, y, groups=["a"] * 30)
    with pytest.raises(ValueError, match="`groups` must be known for every row"):
        model.fit(x, y, groups=["a"] * 29 + [None])
    with pytest.raises(ValueError, match="`groups` must be given where `fit` was given them"):
        model.fit(x, y, groups=np.arange(30) % 5).partial_fit(x[:3], y[:3])
    with pytest.raises(ValueError, match="which holds out the last rows"):
        kind(preset="gal2018", epochs=1).fit(x, y, groups=np.arange(30) % 5)


def test_an_estimator_keeps_its_intervals_in_its_file(tmp_path: Any) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = DropoutRegressor(preset="quick", hidden=(8,), epochs=5, random_state=0).fit(x, x[:, 0])
    model.save(tmp_path / "model.safetensors")
    again = DropoutRegressor.load(tmp_path / "model.safetensors")
    for one, other in zip(model.predict_interval(x, 0.7), again.predict_interval(x, 0.7), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="does not hold the rows"):
        again.out_of_fold()


def test_several_targets_have_intervals_of_their_own() -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(80, 1))
    y = np.concatenate([x + 0.1 * source.normal(size=(80, 1)), source.standard_t(2, size=(80, 1))], 1)
    model = DropoutRegressor(preset="quick", hidden=(16,), epochs=60, random_state=0).fit(x, y)
    assert model.mixture_.shares is not None
    levels = interval_levels(model.mixture_.shares, 0.9)
    lower, upper = model.predict_interval(x, 0.9)
    for column, level in enumerate(levels):
        ends = [end.numpy()[:, column] for end in model.predict_dist(x).interval(float(level))]
        np.testing.assert_allclose(lower[:, column], ends[0], rtol=1e-9)
        np.testing.assert_allclose(upper[:, column], ends[1], rtol=1e-9)
