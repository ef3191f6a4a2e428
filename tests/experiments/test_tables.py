"""The benchmark over tables: what is read, how it is cut, what libraries are given, how ranks come about."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.linear_model import Ridge
from tests.experiments.conftest import REAL

from bayesdrop.data import DataNotFound
from bayesdrop.experiments import PieceCache, load_experiment, run_experiment, tables
from bayesdrop.experiments.record import NotReusable
from bayesdrop.experiments.tables import contenders, peers, sources
from bayesdrop.experiments.tables.catalogue import CATALOGUE, DEVELOPMENT, Entry
from bayesdrop.experiments.tables.measures import (
    METRICS,
    class_measures,
    gaussian_prediction,
    number_measures,
)
from bayesdrop.experiments.tables.ranks import mean_ranks, ranks
from bayesdrop.experiments.tables.report import Board, make_claims, make_rows
from bayesdrop.experiments.tables.split import as_arrays, split_table

# the catalogue


def test_the_tables_for_development_are_those_that_the_rule_names() -> None:
    ruled = [name for name in CATALOGUE if int(sha256(name.encode()).hexdigest(), 16) % 3 == 0]
    assert list(DEVELOPMENT) == ruled == [name for name, entry in CATALOGUE.items() if not entry.aside]


def test_there_are_many_tables_of_both_kinds_on_both_sides() -> None:
    assert len(CATALOGUE) == 66, "the title says 66"
    for kind, least in (("regression", 24), ("classification", 16)):
        own = [entry for entry in CATALOGUE.values() if entry.kind == kind]
        assert sum(entry.aside for entry in own) >= least
        assert not all(entry.aside for entry in own)
    assert all(bool(entry.drop) == bool(entry.why) for entry in CATALOGUE.values())


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_table_that_is_at_hand_is_what_the_catalogue_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYESDROP_DATA", REAL)
    entry = CATALOGUE[name]
    try:
        frame = sources.load_table(entry, 10_000)
    except DataNotFound:
        pytest.skip("not at hand")
    assert 100 <= len(frame) <= 10_000
    assert list(frame.index) == list(range(len(frame)))
    assert not set(entry.drop) & set(frame.columns)
    target = frame[entry.target]
    assert target.notna().all()
    if entry.kind == "regression":
        assert np.isfinite(target.to_numpy(dtype=float)).all()
    else:
        # A class of five rows has one in every test part.
        assert target.value_counts().min() >= 5
    for column in entry.dates:
        assert pd.to_datetime(frame[column]).notna().all()
    texts = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    names = [column for column in texts if column != entry.target and column not in entry.dates]
    assert all(frame[column].nunique() <= 80 for column in names), "identifiers of rows are left out"


def test_a_long_table_gives_the_same_rows_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("long", "", "y", "regression")
    whole = pd.DataFrame({"x": np.arange(1000.0), "y": np.r_[np.nan, np.arange(999.0)]})
    monkeypatch.setattr(sources, "read_source", lambda source, name: whole)
    one, two = sources.load_table(entry, 100), sources.load_table(entry, 100)
    assert one.equals(two)
    assert len(one) == 100
    assert len(sources.load_table(entry)) == 999, "a row without target is none"


def test_a_package_that_is_not_installed_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataNotFound, match=r"tips is not at hand. Install it with: pip install 'bayesdrop"):
        sources.load_table(CATALOGUE["tips"])


# splits, and what libraries are given


def frame_of_classes() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(60.0), "y": ["a"] * 40 + ["b"] * 15 + ["c"] * 5})


def test_a_split_is_a_partition_and_every_class_is_in_both_parts() -> None:
    entry, frame = Entry("one", "", "y", "classification"), frame_of_classes()
    for number in range(5):
        split = split_table(entry, frame, number)
        assert sorted([*split.train["x"], *split.test["x"]]) == frame["x"].tolist()
        assert split.test["y"].value_counts().to_dict() == {"a": 8, "b": 3, "c": 1}
    again = split_table(entry, frame, 0).test["x"]
    assert again.equals(split_table(entry, frame, 0).test["x"])
    assert not again.equals(split_table(entry, frame, 1).test["x"])


def test_libraries_get_numbers_with_gaps_places_of_categories_and_dates_as_numbers() -> None:
    entry = Entry("one", "", "y", "regression", categorical=("code",), dates=("day",))
    train = pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0],
            "kind": ["b", None, "a"],
            "code": [7, 7, 9],
            "flag": [True, False, True],
            "day": ["1970-01-02", "1970-02-01", "1971-01-01"],
            "y": [0.0, 1.0, 2.0],
        }
    )
    test = train.iloc[:1].assign(kind="new")
    split = dataclasses.replace(split_table(entry, train, 0), train=train, test=test)
    given = as_arrays(split, seed=3, level=0.9)
    np.testing.assert_array_equal(given["names"], [[1, 0], [-1, 0], [0, 1]])
    np.testing.assert_array_equal(given["test_names"], [[2, 0]])
    np.testing.assert_array_equal(given["sizes"], [2, 2])
    # size, flag, then of the date: days since 1970, day of the year, month, day of the week
    assert given["numbers"].tolist()[2] == [3.0, 1.0, 365.0, 1.0, 1.0, 4.0]
    assert math.isnan(given["numbers"][1, 0])
    assert given["numbers"].shape == (3, 6)


def given_numbers(classes: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    numbers = random.normal(size=(90, 3))
    names = random.integers(-1, 3, size=(90, 1))
    y = numbers @ [1.0, -2.0, 0.0] + names[:, 0] + 0.3 * random.normal(size=90)
    numbers[5, 1] = np.nan
    labels = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])) if classes else y
    return {
        "numbers": numbers[:70], "test_numbers": numbers[70:], "names": names[:70], "test_names": names[70:],
        "sizes": np.array([3]), "y": labels[:70], "classes": np.array(classes), "seed": np.array(0),
        "level": np.array(0.95), "truth": labels[70:],
    }  # fmt: skip


def test_the_noise_of_ridge_regression_is_that_of_rows_left_out() -> None:
    given = given_numbers()
    found = peers.fit_and_predict("linear", given)
    x, _ = peers._standard(*peers._dense(given))
    y = given["y"]
    errors = []
    for alpha in np.logspace(-3, 4, 15):
        left = [
            y[row] - Ridge(alpha).fit(np.delete(x, row, 0), np.delete(y, row)).predict(x[[row]])[0]
            for row in range(len(y))
        ]
        errors.append(np.mean(np.square(left)))
    assert found["std"][0] == pytest.approx(math.sqrt(min(errors)), rel=1e-6)


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("name", ["process", "linear"])
def test_peers_of_this_environment_learn(name: str, classes: int) -> None:
    given = given_numbers(classes)
    found = peers.fit_and_predict(name, given)
    assert found["seconds"] >= 0
    if classes:
        assert found["probs"].sum(1) == pytest.approx(1)
        assert (found["probs"].argmax(1) == given["truth"]).mean() > 0.7
    else:
        assert np.corrcoef(found["mean"], given["truth"])[0, 1] > 0.9
        assert (np.abs(given["truth"] - found["mean"]) < 4 * found["std"]).all()


def test_what_is_held_out_leaves_every_class_a_row() -> None:
    y = np.array([0] * 50 + [1] * 15 + [2])
    fitted, held = peers._hold_out(y, 3, 0.1, 0)
    assert sorted([*fitted, *held]) == list(range(66))
    assert np.bincount(y[held], minlength=3).tolist() == [5, 1, 0]
    some = peers._some_rows(np.repeat(y, 20), 3, 100, 0)
    assert len(some) <= 102
    assert set(np.repeat(y, 20)[some]) == {0, 1, 2}


def test_a_peer_that_gives_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(given: Any) -> Any:
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setitem(peers.PEERS, "linear", gives_up)
    assert peers.fit_and_predict("linear", {}) == {"failed": "LinAlgError: singular"}
    monkeypatch.setitem(peers.PEERS, "linear", lambda given: {"mean": np.array([math.nan])})
    assert peers.fit_and_predict("linear", {}) == {"failed": "its predictions are not finite"}


def test_a_peer_in_another_environment_says_what_it_says_here(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"table": "yacht", "split": 0, "contender": "linear", "revision": 1, "max_rows": 120}
    here = contenders.trial(key)
    monkeypatch.setenv("BAYESDROP_PEERS", sys.executable)
    moved = dataclasses.replace(contenders.CONTENDERS["linear"], where="apart")
    monkeypatch.setitem(contenders.CONTENDERS, "linear", moved)
    apart = contenders.trial(key)
    assert apart["measures"] == pytest.approx(here["measures"])
    monkeypatch.setitem(contenders.CONTENDERS, "ngboost", moved)
    monkeypatch.setattr(contenders.peers, "__file__", "no such file")
    with pytest.raises(RuntimeError, match="linear stopped in the peers' environment"):
        contenders.trial(key)


# measures and ranks


def test_a_gaussian_is_measured_as_in_closed_form() -> None:
    random = np.random.default_rng(1)
    mean, std, y = random.normal(size=200), random.uniform(0.5, 2, 200), 1.5 * random.normal(size=200)
    parts = [gaussian_prediction(mean[:150], std[:150]), gaussian_prediction(mean[150:], std[150:])]
    found = number_measures(parts, y, None, None, level=0.9, spread=2.0)
    normal, z = stats.norm(mean, std), (y - mean) / std
    scores = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    inside = np.abs(z) <= stats.norm.ppf(0.95)
    assert found["log_likelihood"] == pytest.approx(normal.logpdf(y).mean())
    assert found["crps"] == pytest.approx(scores.mean())
    assert found["coverage"] == pytest.approx(inside.mean())
    assert found["width"] == pytest.approx((2 * stats.norm.ppf(0.95) * std).mean() / 2.0)
    assert found["rmse"] == pytest.approx(math.sqrt(np.mean((y - mean) ** 2)))
    given = number_measures(parts, y, y - 1, y + 3, level=0.9, spread=2.0)
    assert (given["coverage"], given["width"]) == (1.0, 2.0)


def test_a_class_without_probability_costs_no_more_than_its_floor() -> None:
    found = class_measures(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0]))
    assert found["log_loss"] == pytest.approx((-math.log(1e-9) + math.log(2)) / 2)
    assert found["accuracy"] == 0.5
    assert class_measures(np.array([[0.9, 0.1]]), np.array([0]))["error_auroc"] is None


def test_ranks_share_ties_and_the_failed_are_last() -> None:
    assert ranks([3.0, 1.0, 3.0, None], -1).tolist() == [2.5, 1.0, 2.5, 4.0]
    values = {"a": [1.0, 2.0, 3.0], "b": [2.0, 1.0, 5.0], "c": [0.0, None, 4.0]}
    found = mean_ranks(values, 1)
    assert {name: rank.mean for name, rank in found.items()} == pytest.approx(
        {"a": 2.0, "b": 4 / 3, "c": 8 / 3}
    )
    assert all(rank.low <= rank.mean <= rank.high for rank in found.values())
    # "b" is first unless the resampled tables say otherwise: the third and the first alone give it rank 1.
    assert found["b"].first > found["a"].first > found["c"].first
    assert mean_ranks({"a": [], "b": []}, 1) == {}


def board(ours: Mapping[str, float], quick: Mapping[str, float], linear: Mapping[str, float]) -> Board:
    entries = tuple(CATALOGUE[name] for name in ("boston", "kin8nm"))

    def piece(values: Mapping[str, float]) -> dict[str, Any]:
        return {"failed": "", "seconds": 1.0, "measures": {"r2": 0.5, "width": 0.2, **values}}

    made = {"ours": ours, "quick": quick, "linear": linear}
    pieces = {(entry.name, name): [piece(values)] * 2 for entry in entries for name, values in made.items()}
    return Board(entries, tuple(made), pieces, 2)


def test_further_contenders_of_ours_take_no_rank_from_peers() -> None:
    better = {"log_likelihood": 2.0, "crps": 0.1, "rmse": 1.0, "coverage": 0.95}
    best = {**better, "log_likelihood": 3.0}
    worse = {"log_likelihood": 1.0, "crps": 0.2, "rmse": 0.5, "coverage": 0.5}
    made = board(better, best, worse)
    found = made.ranked(["boston", "kin8nm"], "log_likelihood")
    assert {name: rank.mean for name, rank in found.items()} == {"ours": 1.0, "quick": 1.0, "linear": 2.0}
    claims = list(make_claims(made))
    assert [claim.holds for claim in claims] == [True, True, True, True, True], "second by RMSE is enough"
    rows = {(row.setting, row.metric): row for row in make_rows(made, [])}
    assert rows["tables kept aside: linear", "mean rank, CRPS"].ours == 2.0
    assert rows["tables kept aside: linear", "share of tables with coverage in 91 to 98.5 %"].ours == 0.0
    assert rows["boston (kept aside)", "RMSE"].note == "bayesdrop (quick) 1, linear 0.5"


def test_claims_fail_where_a_peer_is_better_or_intervals_are_off() -> None:
    ours = {"log_likelihood": 0.0, "crps": 0.3, "rmse": 2.0, "coverage": 0.9}
    peer = {"log_likelihood": 1.0, "crps": 0.2, "rmse": 1.0, "coverage": 0.95}
    assert [claim.holds for claim in make_claims(board(ours, ours, peer))] == [
        False,
        False,
        True,
        False,
        False,
    ]


# the experiment


def test_pieces_of_peers_stay_when_ours_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def trial(key: Mapping[str, Any]) -> dict[str, Any]:
        made.append(key["contender"])
        values = dict.fromkeys((key for key, one in METRICS.items() if one.kind == "regression"), 0.5)
        return {"failed": "", "seconds": 1.0, "measures": values}

    monkeypatch.setattr(tables, "trial", trial)
    config = tables.Config(
        datasets=("yacht",), contenders=("quick", "linear"), num_splits=2, coverage_splits=1
    )
    cache = PieceCache("tables", folder=tmp_path)
    tables.run(config, cache=cache, progress=False)
    assert made == ["quick", "quick", "linear", "linear"]
    anew = dataclasses.replace(contenders.CONTENDERS["quick"], revision=99)
    monkeypatch.setitem(contenders.CONTENDERS, "quick", anew)
    made.clear()
    tables.run(config, cache=cache, progress=False)
    assert made == ["quick", "quick"]


def test_contenders_that_have_not_changed_are_taken_from_a_results_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []

    def trial(key: Mapping[str, Any]) -> dict[str, Any]:
        made.append((key["contender"], key["split"]))
        values = dict.fromkeys((key for key, one in METRICS.items() if one.kind == "regression"), 0.5)
        values["coverage"] = 0.9 if key["split"] else 1.0
        return {"failed": "", "seconds": 1.0, "measures": values}

    monkeypatch.setattr(tables, "trial", trial)
    settings = {"datasets": ("yacht",), "contenders": ("quick", "linear"), "coverage_splits": 2}
    options: dict[str, Any] = {"overrides": settings, "output": tmp_path}
    first = run_experiment("tables", cache=tmp_path / "one", **options)
    assert made == [("quick", 0), ("quick", 1), ("linear", 0)]
    row = first.outcome.row("yacht (kept aside)", METRICS["coverage"].title)
    assert row.ours == pytest.approx(0.95), "the mean of two splits"
    assert row.note == "linear 1"
    made.clear()
    file = tmp_path / f"{first.stem}.json"
    second = run_experiment("tables", cache=tmp_path / "two", earlier=file, **options)
    assert made == [("quick", 0), ("quick", 1)], "which have more splits than the file tells of"
    assert second.outcome.rows == first.outcome.rows
    assert any("Of an earlier run" in note and "linear" in note for note in second.outcome.notes)
    changed = {**options, "overrides": {**settings, "max_rows": 100}}
    with pytest.raises(NotReusable, match="`max_rows` must be 100; got 3000"):
        run_experiment("tables", cache=tmp_path / "three", earlier=file, **changed)


def test_what_is_not_there_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDROP_PEERS", str(tmp_path / "nowhere"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = dataclasses.replace(tables.SMOKE, datasets=("yacht", "tips"), contenders=("linear", "catboost"))
    outcome = tables.run(config, cache=PieceCache("tables", folder=tmp_path), progress=False)
    gone = {row.setting: row.note for row in outcome.rows if row.ours is None}
    assert gone == {
        "all tables: CatBoost": "the environment of the peers is not there",
        "tips": "The table tips is not at hand",
    }
    load_experiment("tables").draw(outcome)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown table 'bostn'. Did you mean 'boston'\?"):
        tables.run(tables.Config(datasets=("bostn",)), cache=PieceCache("tables"), progress=False)
    config = tables.Config(datasets=("iris",), contenders=("catbost",))
    with pytest.raises(ValueError, match="unknown contender 'catbost'"):
        tables.run(config, cache=PieceCache("tables"), progress=False)


def test_one_of_ours_is_measured_by_what_it_tells_a_user() -> None:
    torch.manual_seed(0)
    key = {"table": "yacht", "split": 1, "contender": "quick", "revision": 1, "max_rows": 120}
    found = contenders.trial(key)["measures"]
    assert set(found) == {key for key, one in METRICS.items() if one.kind == "regression"}
    assert 0 <= found["coverage"] <= 1
    assert found["crps"] < found["rmse"]
