"""Recipes: nothing outside the table is looked at, and nothing is judged by rows it has seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import bayesdrop.stacked
from bayesdrop.errors import Diverged
from bayesdrop.stacked import (
    PRESETS,
    Candidate,
    FitRecipe,
    Mixture,
    Settings,
    TrainingTable,
    fit_tables,
    grow,
    preset_recipe,
)
from bayesdrop.stacked.fit import TableFit, Tried


def table(rows: int = 60, seed: int = 0, **options: Any) -> TrainingTable:
    source = np.random.default_rng(seed)
    x = source.normal(size=(rows, 2))
    y = 30 + 5 * (np.sin(2 * x[:, :1]) + 0.2 * source.normal(size=(rows, 1)))
    return TrainingTable(x, y, seed=seed, **options)


def candidate(p: float = 0.05, bins: int = 0, **options: Any) -> Candidate:
    return Candidate(Settings(**{"hidden": (8,), "epochs": 5, "batch_size": 16, "p": p, **options}), bins)


def recipe(*candidates: Candidate, **options: Any) -> FitRecipe:
    return FitRecipe(
        candidates or (candidate(), candidate(0.5)), **{"folds": 5, "parts": 2, "num_draws": 20, **options}
    )


def assert_same(first: Mixture, second: Mixture) -> None:
    x = np.random.default_rng(9).normal(size=(7, 2))
    torch.testing.assert_close(first.draws(x), second.draws(x), rtol=1e-3, atol=1e-3)
    assert [row["picked"] for row in first.search] == [row["picked"] for row in second.search]


@pytest.mark.parametrize(("old", "new"), [("Table", TrainingTable), ("Recipe", FitRecipe)])
def test_names_of_before_are_told_of(old: str, new: type) -> None:
    with pytest.warns(FutureWarning, match=f"{old} is now called {new.__name__}"):
        assert getattr(bayesdrop.stacked, old) is new
    with pytest.raises(AttributeError, match="no attribute 'Tabel'"):
        _ = bayesdrop.stacked.Tabel


def test_tables_that_are_fitted_together_are_as_if_alone() -> None:
    tables = [table(60, 0), table(45, 1), table(60, 2)]
    way = recipe(blocks=3)
    together = fit_tables(tables, way)
    for one, alone in zip(together, (fit_tables([one], way)[0] for one in tables), strict=True):
        assert_same(one, alone)


def test_every_network_is_judged_by_rows_it_has_not_seen() -> None:
    found = fit_tables([table(60)], recipe(parts=5, blocks=3))[0]
    assert len(found.components) == 15
    seen = torch.zeros(60)
    for component in found.components:
        assert component.held is not None
        assert component.network.num_data == 60 - len(component.held)
        seen[component.held] += 1
    # Each block holds every row out once.
    assert (seen == 3).all()
    assert sum(row["picked"] for row in found.search) == 3


def test_a_refit_sees_all_rows_and_keeps_the_noise_that_was_found() -> None:
    way = recipe(candidate(noise="fixed", noise_std=1.0), parts=1, holdout="last", refit=True, restarts=2)
    found = fit_tables([table(60)], way)[0]
    assert [one.network.num_data for one in found.components] == [60, 60]
    shift = found.search[0]["shift"]
    level = found.components[0].network.log_noise_std
    scale = fit_tables([table(60)], replace(way, calibrate=False))[0].components[0].network.log_noise_std
    assert level is not None
    assert scale is not None
    assert math.isclose(float(level - scale), 0.5 * shift, abs_tol=1e-5)


def test_a_precision_of_the_grid_is_chosen_and_used() -> None:
    grid = (1e-4, 0.04, 100.0)
    way = recipe(candidate(noise="fixed", epochs=40), parts=1, holdout="last", refit=True, precisions=grid)
    found = fit_tables([table(120)], way)[0]
    assert found.search[0]["precision"] == 0.04
    prediction = found.predict(np.zeros((1, 2)))
    assert math.isclose(float(prediction.aleatoric), 1 / 0.04, rel_tol=1e-5)


def test_no_search_is_a_plain_fit() -> None:
    found = fit_tables([table(30)], recipe(candidate(bins=3), parts=0, restarts=3))[0]
    assert len(found.components) == 3
    assert list(found.encoders) == ["3 bins"]
    assert found.search[0]["log_likelihood"] is None


def fit_with_scores(scores: list[list[float]], blocks: int) -> list[int]:
    fit = TableFit(
        table(len(scores[0])), recipe(*[candidate(0.1 + 0.01 * i) for i in range(len(scores))], blocks=blocks)
    )
    for tried, values in zip(fit.tried, scores, strict=True):
        tried.score = torch.tensor(values)
    return [fit.tried.index(one) for one in fit.picks()]


def test_blocks_are_picked_to_complement_each_other() -> None:
    # Two that know half of the rows each beat one that is fair at all of them.
    scores = [[0.0, -9.0, 0.0, -9.0], [-9.0, 0.0, -9.0, 0.0], [-4.0, -4.0, -4.0, -4.0]]
    assert sorted(fit_with_scores(scores, 3)[1:]) == [0, 1]
    assert fit_with_scores(scores, 1) == [2]
    assert fit_with_scores([[-1.0, math.nan], [-0.5, math.nan]], 1) == [1]


def test_networks_that_diverge_are_left_out() -> None:
    wild = candidate(lr=1e30, schedule="constant", check_every=1)
    found = fit_tables([table(60)], recipe(wild, candidate(), blocks=2))[0]
    assert [row["picked"] for row in found.search] == [0, 2]
    with pytest.raises(Diverged, match="every network diverged"):
        fit_tables([table(60)], recipe(wild))


def test_a_mixture_grows_with_its_table() -> None:
    whole = table(90)
    first = replace(whole, x=whole.x[:60], y=whole.y[:60])
    found = fit_tables([first], recipe(candidate(epochs=20), blocks=2))[0]
    grown = grow(found, whole, 60)
    for old, new in zip(found.components, grown.components, strict=True):
        assert old.held is not None
        assert new.held is not None
        assert set(old.held.tolist()) <= set(new.held.tolist())
        assert new.network.num_data == 90 - len(new.held)
        assert new.network.settings == old.network.settings
    with pytest.raises(ValueError, match="there must be new rows"):
        grow(found, first, 60)


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize("shape", [(2, 1), (300, 6), (10_000, 16), (500_000, 90)])
def test_every_preset_has_a_recipe_for_every_size(name: str, shape: tuple[int, int]) -> None:
    way = preset_recipe(name, *shape)
    assert way.parts <= way.folds
    for one in way.candidates:
        assert one.few or (1 + one.bins) * shape[1] <= 700
        steps = one.settings.epochs * -(-shape[0] // one.settings.batch_size)
        assert name in ("gal2018", "two-layers", "gal2016") or steps < 12_000


def test_the_papers_settings_are_theirs() -> None:
    paper = preset_recipe("gal2016", 455, 13, p=0.05, precision=0.159708).candidates[0].settings
    assert (paper.hidden, paper.epochs, paper.lr, paper.schedule) == ((50,), 400, 1e-3, "constant")
    assert (paper.p, paper.input_p, paper.length_scale, paper.batch_size) == (0.05, 0.05, 1e-2, 32)
    assert math.isclose(paper.noise_std**-2, 0.159708)
    assert preset_recipe("gal2016", 41_157, 9).candidates[0].settings.hidden == (100,)
    grid = preset_recipe("gal2018", 455, 13, precisions=(0.1, 0.15, 0.2))
    assert [one.settings.p for one in grid.candidates] == [0.005, 0.01, 0.05, 0.1]
    assert (grid.holdout, grid.folds, grid.refit, grid.precisions) == ("last", 5, True, (0.1, 0.15, 0.2))
    assert preset_recipe("two-layers", 455, 13).candidates[0].settings.hidden == (50, 50)
    assert {one.settings.first_weights for one in grid.candidates} == {paper.first_weights} == {"glorot"}
    assert grid.judge_draws >= 300  # few draws would prefer small rates


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 6}, "`parts` must be from 0 to folds"),
        ({"parts": 0}, "at least 1 with something to choose"),
        ({"folds": 1, "parts": 1}, "`folds` must be at least 2"),
        ({"holdout": "last"}, "`parts` must be 1"),
        ({"precisions": (1.0,)}, "noise='fixed'"),
        ({"blocks": 0}, "`blocks` must be a positive int"),
        ({"judge_draws": 0}, "`judge_draws` must be a positive int"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**options)
    with pytest.raises(ValueError, match="one of 'default'"):
        preset_recipe("bestest", 10, 2)


def test_a_short_look_judges_all_and_keeps_networks_of_full_length() -> None:
    trials = [candidate(p, epochs=10) for p in (0.01, 0.2, 0.9)]
    plan = recipe(*trials, parts=1, blocks=2, scouts=1, survivors=1, look=0.2)
    fit = TableFit(table(), plan)
    jobs, _ = fit.block_jobs(fit.tried[0], 0, range(1))
    assert [job.settings.epochs for job in jobs] == [2]
    # Less than one pass sees a part of the rows.
    short = TableFit(table(), replace(plan, look=0.05))
    (job,), (held,) = short.block_jobs(short.tried[0], 0, range(1))
    assert job.rows is not None
    assert 15 <= len(job.rows) <= 30
    assert not set(job.rows.tolist()) & set(held.tolist())
    mixture = fit_tables([table()], plan)[0]
    assert [row["log_likelihood"] is not None for row in mixture.search] == [True] * 3
    assert sum(row["picked"] > 0 for row in mixture.search) == 1
    assert {one.network.settings.epochs for one in mixture.components} == {10}
    assert len(mixture.components) == 2
    with pytest.raises(ValueError, match="`look` must be"):
        recipe(*trials, look=0.0)


def test_after_short_trainings_the_best_without_a_start_goes_on_too() -> None:
    first = candidate(0.01)
    trials = [replace(first, start=True), replace(first, start=True, bins=5), first, candidate(0.2)]
    fit = TableFit(table(), recipe(*trials, parts=2, scouts=1, survivors=1, look=0.5))
    fit.tried = [Tried(one, score=torch.tensor([-float(place)])) for place, one in enumerate(trials)]
    assert fit.survivors() == [fit.tried[0], fit.tried[2]]
    fit.tried[3].score = torch.tensor([1.0])
    assert fit.survivors() == [fit.tried[3]], "the best has no start"
    whole = TableFit(table(), recipe(*trials, parts=2, scouts=1, survivors=1))
    whole.tried = fit.tried[:3]
    assert whole.survivors() == fit.tried[:1], "trainings were not short"


def test_bars_tell_what_is_tried_and_the_best_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    plan = recipe(candidate(0.01), candidate(0.2), parts=2, scouts=1, survivors=1, blocks=2)
    found = fit_tables([table()], plan, progress=True)[0]
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" ")[0].partition(",")[0].rpartition(" ")[0] for line in said] == [
        "try 2 candidates",
        "train the best",
        "more of the best",
    ]
    assert "log-likelihood" not in said[0], "nothing is judged yet"
    best = max(row["log_likelihood"] for row in found.search if row["picked"])
    assert f"log-likelihood {best:.3f} so far ({candidate().brief})" in said[2]


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e5])
def test_noise_that_is_to_be_chosen_makes_no_difference_by_the_unit_of_the_target(unit: float) -> None:
    """In small units a noise of 1 is so large that nothing but the prior counts: networks were constant."""
    source = np.random.default_rng(0)
    x = source.normal(size=(120, 2))
    y = unit * (x[:, :1] - 2 * x[:, 1:] + 0.1 * source.normal(size=(120, 1)))
    way = preset_recipe("gal2016", 120, 2, epochs=60, length_scale=1.0)
    mixture = fit_tables([TrainingTable(x, y, seed=0)], way)[0]
    error = mixture.predict(x).mean.numpy() - y
    assert np.sqrt(np.mean(error**2)) < 0.5 * y.std()
