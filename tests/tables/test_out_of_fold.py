"""All rows are fitted, and each is measured by networks that have not seen it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV

from bayesdrop.tables import FitOptions, fit_table, load_table_model, predict_frame, save_table_model
from bayesdrop.tables.baselines import fit_baselines
from bayesdrop.tables.evaluate import fit_evaluation
from bayesdrop.tables.fitting import FittedTable, split_rows
from bayesdrop.tables.judge import Intervals
from bayesdrop.tables.rows import TrainingRows

SMALL = {"preset": "quick", "hidden": (16,), "epochs": 40, "num_draws": 40}


def houses(rows: int = 200) -> Any:
    source = np.random.default_rng(0)
    size, shop = source.uniform(30, 200, rows), source.integers(0, 25, rows)
    price = 2 * size + 20 * source.normal(size=25)[shop] + 10 * source.normal(size=rows)
    return pd.DataFrame({"size": size, "shop": [f"shop {one}" for one in shop], "price": price.round(2)})


@pytest.fixture(scope="module")
def fitted() -> FittedTable:
    return fit_table(houses(), FitOptions("price", estimator=SMALL, ignore=("shop",)))


def test_all_rows_are_fitted_and_those_held_out_in_turn_are_measured(fitted: FittedTable) -> None:
    about = fitted.model.about
    assert about["rows_fitted"] == 200
    # The quick preset holds out two of five parts.
    assert about["rows_held_out"] == len(fitted.judged.target) == len(fitted.frame) == 80
    np.testing.assert_array_equal(fitted.frame["price"], fitted.judged.target)
    assert fitted.numbers is not None
    np.testing.assert_array_equal(
        houses()["price"].iloc[(fitted.numbers - 1).astype(int)], fitted.judged.target
    )
    # What is measured is not what networks say that have seen the rows.
    seen = fitted.model.estimator.predict(fitted.model.prepare(fitted.frame).x)
    assert np.abs(seen - fitted.judged.scores["mean"]).max() > 1e-3
    assert 0.85 <= about["measures"]["coverage"] <= 1


def test_intervals_are_those_of_the_estimator(fitted: FittedTable) -> None:
    new = houses(40)
    told = predict_frame(fitted.model, new)
    lower, upper = fitted.model.estimator.predict_interval(fitted.model.prepare(new).x)
    np.testing.assert_allclose(told["lower"], lower)
    np.testing.assert_allclose(told["upper"], upper)
    assert "shares" not in fitted.model.held_out


def test_a_share_can_still_be_kept_from_all_networks(tmp_path: Any) -> None:
    found = fit_table(houses(), FitOptions("price", estimator=SMALL, held_out=0.2))
    assert found.model.about["rows_fitted"] == 160
    shares = found.model.held_out["shares"]
    assert shares.shape == (40,)
    save_table_model(found.model, tmp_path / "model", report="")
    again = load_table_model(tmp_path / "model")
    for name in ("lower", "upper"):
        np.testing.assert_array_equal(
            predict_frame(again, houses(30))[name], predict_frame(found.model, houses(30))[name]
        )


def test_folders_of_before_keep_their_intervals(fitted: FittedTable) -> None:
    scaled = np.linspace(0, 3, 40)
    old = dataclasses.replace(fitted.model, held_out={**fitted.model.held_out, "scaled": scaled})
    told = predict_frame(old, houses(30))
    # The rank of 0.95 among 40 is 39.
    np.testing.assert_allclose(told["upper"], told["mean"] + scaled[38] * told["std"])
    own = Intervals(0.95, scaled=scaled[:5])
    prediction = old.estimator.predict_dist(old.prepare(houses(30)).x)
    np.testing.assert_array_equal(own(old.estimator, prediction)[0], prediction.interval(0.95)[0][:, 0])


def test_networks_that_see_all_rows_are_measured_by_others() -> None:
    options = FitOptions("price", estimator={**SMALL, "search": "none"})
    assert fit_table(houses(), options).model.about["rows_held_out"] == 30
    options = FitOptions("price", estimator=SMALL, refit=True)
    assert fit_table(houses(), options).model.about["rows_held_out"] == 30


def test_the_report_says_how_rows_were_held_out(fitted: FittedTable) -> None:
    found = fit_evaluation(fitted)
    assert "200 rows were fitted, and every network held out a part of them" in found.about_rows
    assert "each as the networks see it that were not fitted to it" in found.report()


def test_baselines_do_not_see_the_rows_that_they_are_scored_on() -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(60, 30))
    y = x[:, 0] + source.normal(size=60)
    rows = TrainingRows(x, y, np.arange(1.0, 61), 60)
    asked: dict[str, Any] = {"classes": 0, "standardise": lambda part: part}
    cheating = fit_baselines(rows, x, y, **asked)
    honest = fit_baselines(rows, x, y, numbers=rows.numbers, **asked)
    for one, other in zip(honest, cheating, strict=True):
        assert one.measures["rmse"] > other.measures["rmse"]
    # The first fifth is scored by what the rest teaches.
    part = np.random.default_rng(0).permutation(60) % 5 == 0
    said = RidgeCV(np.logspace(-2, 4, 13)).fit(x[~part], y[~part]).predict(x[part])
    np.testing.assert_allclose(honest[1].loss[part], (y[part] - said) ** 2, rtol=0.05)


# groups


def test_baselines_are_scored_on_groups_that_they_have_not_seen() -> None:
    source = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 5)
    # A column that names the group, and a target that is the group's own: trees would know it by heart.
    x, y = group[:, None] + 0.0, source.normal(size=20)[group]
    rows = TrainingRows(x, y, np.arange(1.0, 101), 100)
    asked: dict[str, Any] = {"classes": 0, "standardise": lambda part: part, "numbers": rows.numbers}
    alone, together = (fit_baselines(rows, x, y, groups=own, **asked)[2] for own in (None, group))
    assert together.measures["rmse"] > 1.2 * alone.measures["rmse"]


def test_groups_are_no_input_and_are_held_out_together() -> None:
    found = fit_table(houses(), FitOptions("price", estimator=SMALL, groups="shop"))
    assert [column.name for column in found.model.schema.used] == ["size"]
    shops = houses()["shop"]
    for component in found.model.estimator.mixture_.components:
        held = component.held.numpy()
        assert not set(shops.iloc[held]) & set(shops.drop(index=held))
    assert "Rows of one shop were held out together." in fit_evaluation(found).about_rows


def test_a_column_of_groups_may_be_an_input() -> None:
    found = fit_table(houses(), FitOptions("price", estimator=SMALL, groups="shop", keep=("shop",)))
    assert [column.name for column in found.model.schema.used] == ["size", "shop"]


def test_groups_aresplit_rows_whole() -> None:
    groups = np.random.default_rng(0).integers(0, 25, 200)
    fitted, held = split_rows(np.arange(200.0), 0.2, 0, "regression", groups)
    assert not set(groups[fitted]) & set(groups[held])
    assert sorted([*fitted, *held]) == list(range(200))
    assert 20 <= len(held) <= 40


def test_groups_that_make_no_sense_are_told_of() -> None:
    frame = houses(60)
    with pytest.raises(ValueError, match="there is no column 'shopp'"):
        fit_table(frame, FitOptions("price", groups="shopp"))
    with pytest.raises(ValueError, match="`groups` must be another column than the target"):
        FitOptions("price", groups="price")
    with pytest.raises(ValueError, match="must be known in every row; row 4 has none"):
        fit_table(
            frame.assign(shop=frame["shop"].where(frame.index != 3)), FitOptions("price", groups="shop")
        )
    with pytest.raises(ValueError, match="must have at least 2 values"):
        fit_table(frame.assign(shop="one"), FitOptions("price", groups="shop"))
