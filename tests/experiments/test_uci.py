"""The UCI tables: printed numbers, ranks, pieces that both share, and a file of one's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from bayesdrop.data import DataNotFound
from bayesdrop.estimators import DropoutRegressor
from bayesdrop.experiments import Outcome, PieceCache, Record, Row, read_record, run_experiment
from bayesdrop.experiments.gal2016_uci_table1 import Config, _plan, run
from bayesdrop.experiments.gal2017_uci import Config as Config2017
from bayesdrop.experiments.gal2017_uci import _plan as plan_2017
from bayesdrop.experiments.gal2017_uci import run as run_2017
from bayesdrop.experiments.record import NotReusable, write_record
from bayesdrop.experiments.uci.claims_2016 import claims_2016
from bayesdrop.experiments.uci.claims_2017 import claims_2017
from bayesdrop.experiments.uci.fits import (
    ESTIMATOR,
    METHODS,
    SETTINGS_2016,
    fit_piece,
    labels_of,
    piece_keys,
    single_fit_share,
)
from bayesdrop.experiments.uci.known import KnownFits
from bayesdrop.experiments.uci.published import COLUMNS, best_printed, published, published_mean
from bayesdrop.experiments.uci.report import Benchmark, median_rows, ranks
from bayesdrop.experiments.uci.sets import load_set
from bayesdrop.metrics import mean_log_likelihood
from bayesdrop.stacked import TrainingTable as Rows
from bayesdrop.stacked import export
from bayesdrop.version import __version__


@pytest.fixture
def csv(tmp_path: Path) -> str:
    """A table of 60 rows whose target is a line with noise."""
    source = np.random.default_rng(0)
    x = source.normal(size=(60, 2))
    y = 3 * x[:, 0] - x[:, 1] + 0.1 * source.normal(size=60)
    path = tmp_path / "mine.csv"
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", header="a,b,target", comments="")
    return str(path)


def test_printed_columns_have_every_set_of_their_table() -> None:
    for column in COLUMNS:
        sets = 10 if column in ("VI", "PBP", "Dropout 2016") else 9
        for metric in (0, 1):
            assert sum(published(column, name, metric) is not None for name in SETTINGS_2016) == sets
    assert all((published_mean(column, "boston", 0) or 0) > 0 for column in COLUMNS)


def test_the_best_printed_number_is_the_highest_likelihood_or_the_lowest_error() -> None:
    assert best_printed(("Dropout", "CDropout", "CDropoutM"), "energy", 1) == -0.84
    assert best_printed(("Dropout", "CDropout", "CDropoutM"), "energy", 0) == 0.46
    assert best_printed(("DGP",), "mine.csv", 1) is None


def test_ranks_are_those_of_scipy() -> None:
    values = np.random.default_rng(0).integers(0, 4, size=(4, 6)).astype(float)
    names = [f"set {place}" for place in range(6)]
    columns = {f"c{i}": dict(zip(names, row, strict=True)) for i, row in enumerate(values)}
    found = ranks(columns, names, highest=True)
    truth = np.apply_along_axis(rankdata, 0, -values)
    np.testing.assert_allclose([found[f"c{i}"][0] for i in range(4)], truth.mean(1))
    np.testing.assert_allclose([found[f"c{i}"][1] for i in range(4)], truth.std(1, ddof=1) / 6**0.5)


def test_the_errors_are_standard_errors_over_splits() -> None:
    found = Benchmark(["boston"], [])
    found.scores["boston", "m"] = np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]])
    assert found.mean("boston", "m", 0) == 3
    assert found.error("boston", "m", 0) == pytest.approx(2 / 3**0.5)
    found.scores["boston", "m"] = found.scores["boston", "m"][:1]
    assert found.error("boston", "m", 0) is None


def test_concrete_dropout_before_its_last_m_step_has_the_noise_of_its_training(
    csv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayesdrop.experiments.uci.fits.PRIORS_2017", ((0.1, 0.2),))
    table = load_set(csv)
    rows = [Rows(table.x[train].numpy(), table.y[train].numpy(), seed=0) for train in table.train[:2]]
    key = piece_keys(csv, "concrete", 2, steps=200, num_draws=20)[0]
    found = METHODS["concrete"][0](csv, rows, key)
    for before, after in zip(found["CDropout"], found["CDropoutM"], strict=True):
        one, other = before.components[0].network, after.components[0].network
        assert one.log_noise_std is not None
        assert other.log_noise_std is not None
        assert float(one.log_noise_std.exp()) == pytest.approx(other.history["noise_std"][-1][0], rel=1e-6)
        # The line has far less noise than training was let go to.
        assert -0.2 - 1e-5 < float(one.log_noise_std) < 0
        assert float(other.log_noise_std) < -0.5
        assert all(torch.equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))


def test_a_file_of_ones_own_takes_a_sets_place(csv: str, tmp_path: Path) -> None:
    cache = PieceCache("gal2016-uci-table1", folder=tmp_path / "runs")
    config = Config(datasets=(csv,), methods=("gal2016",), splits=2, steps=40, num_draws=20)
    outcome = run(config, cache=cache, progress=False)
    errors = [row for row in outcome.rows if row.metric == "RMSE"]
    assert len(errors) == 1
    assert errors[0].paper is None
    assert errors[0].ours is not None
    assert 0 < errors[0].ours < 4


def test_a_splits_score_is_the_mean_of_its_repeats(csv: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"datasets": (csv,), "methods": ("gal2016",), "splits": 2, "num_draws": 20}
    cache = PieceCache("gal2016-uci-table1", folder=tmp_path / "runs")
    outcome = run(Config(repeats=2, steps=20, **settings), cache=cache, progress=False)
    fits = [
        np.array(fit_piece(key)["scores"]["gal2016"])
        for repeat in range(2)
        for key in piece_keys(csv, "gal2016", 2, steps=20, num_draws=20, repeat=repeat)
    ]
    assert not np.allclose(fits[0], fits[1])
    np.testing.assert_allclose(outcome.arrays["scores"][f"{csv}/gal2016"], (fits[0] + fits[1]) / 2, atol=2e-6)


def test_a_fit_that_one_table_made_is_found_by_the_other(csv: str, tmp_path: Path) -> None:
    first = PieceCache("gal2016-uci-table1", folder=tmp_path / "runs")
    settings: dict[str, Any] = {"datasets": (csv,), "methods": ("two-layers",), "splits": 2, "num_draws": 20}
    one = run(Config(repeats=1, steps=20, **settings), cache=first, progress=False)
    second = PieceCache("gal2017-uci", folder=tmp_path / "runs")
    other = run_2017(Config2017(steps=20, **settings), cache=second, progress=False)
    assert second.found_seconds > 0
    assert json.dumps(one.arrays["scores"]) == json.dumps(other.arrays["scores"])


def test_sets_that_are_not_at_hand_are_not_run(
    csv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> Any:
        if name == "naval":
            raise DataNotFound("naval is not at hand")
        return load_set(name)

    monkeypatch.setattr("bayesdrop.experiments.uci.report.load_set", load)
    cache = PieceCache("gal2016-uci-table1", folder=tmp_path / "runs")
    config = Config(datasets=(csv, "naval"), methods=("gal2016",), splits=1, steps=5, num_draws=20)
    rows = [row for row in run(config, cache=cache, progress=False).rows if row.setting.startswith("naval")]
    assert {row.ours for row in rows} == {None}
    assert {row.paper for row in rows} == {"0.01 ± 0.00", "3.80 ± 0.05", None}


def test_the_default_row_is_the_estimators_own(csv: str) -> None:
    key = piece_keys(csv, "quick", 1, steps=20, num_draws=20)[0]
    found = fit_piece(key)["scores"]["quick"][0]
    table = load_set(csv)
    train, test = table.train[0], table.test[0]
    model = DropoutRegressor(preset="quick", random_state=0, epochs=128 * 20 // len(train), num_draws=20)
    model.fit(table.x[train].numpy(), table.y[train].numpy().ravel())
    prediction = model.predict_dist(table.x[test].numpy())
    assert found[1] == pytest.approx(float(mean_log_likelihood(prediction, table.y[test])), abs=1e-9)
    y = table.y[test].numpy().ravel()
    lower, upper = model.predict_interval(table.x[test].numpy(), 0.95)
    assert found[2] == pytest.approx(((lower <= y) & (y <= upper)).mean())
    own = prediction.interval(0.95)
    assert not np.allclose(own[1].numpy().ravel(), upper), "held-out rows set another level"


def test_pieces_are_all_splits_once() -> None:
    for method in METHODS:
        keys = piece_keys("boston", method, 15, steps=None, num_draws=None)
        assert [split for key in keys for split in key["splits"]] == list(range(15))


def test_bad_tables_and_methods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of boston, .*, or a CSV file"):
        load_set("bostom")
    words = tmp_path / "words.csv"
    words.write_text("a,b\nred,1\nblue,2\n")
    with pytest.raises(ValueError, match="text in a"):
        load_set(str(words))
    alone = tmp_path / "alone.csv"
    alone.write_text("a\n1\n2\n")
    with pytest.raises(ValueError, match="at least two columns"):
        load_set(str(alone))
    cache = PieceCache("gal2016-uci-table1", folder=tmp_path / "runs")
    with pytest.raises(ValueError, match="`methods` must be among default"):
        run(Config(methods=("magic",)), cache=cache, progress=False)


# fits of an earlier results file


def boston_record(tmp_path: Path, **options: Any) -> Record:
    """A run of boston by a method that takes no time."""
    overrides = {**TINY, **options}
    return run_experiment("gal2016-uci-table1", overrides=overrides, output=tmp_path, cache=tmp_path / "runs")


TINY: dict[str, Any] = {
    "datasets": ("boston",),
    "methods": ("gal2016",),
    "without_dropout": (),
    "splits": 2,
    "repeats": 1,
    "steps": 5,
    "num_draws": 10,
}


def test_what_a_results_file_has_is_not_fitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = boston_record(tmp_path)
    fitted = []

    def count(key: Any) -> dict[str, Any]:
        fitted.append(key["method"])
        return fit_piece(key)

    monkeypatch.setattr("bayesdrop.experiments.uci.report.fit_piece", count)
    more = {**TINY, "methods": ("gal2016", "meanfield"), "without_dropout": ("boston",)}
    file = tmp_path / f"{first.stem}.json"
    second = run_experiment(
        "gal2016-uci-table1",
        overrides=more,
        output=tmp_path / "second",
        cache=tmp_path / "other",
        earlier=file,
    )
    assert fitted == ["meanfield", "no-dropout"]
    arrays, before = second.outcome.arrays, first.outcome.arrays
    for part in ("scores", "averaged", "rates"):
        key = "boston/gal2016"
        assert arrays[part][key] == before[part][key]
    assert arrays["commits"] == {"boston/gal2016": first.commit}
    assert arrays["labels"] == ["gal2016", "meanfield (VI)", "no-dropout"]
    assert any(
        "Fits of an earlier run" in note and "gal2016 on boston" in note for note in second.outcome.notes
    )
    seconds = [record.outcome.row("boston, gal2016", "seconds a split").ours for record in (first, second)]
    assert seconds[0] == seconds[1]
    # From hand to hand: the commit is that of the code that fitted.
    again = replace(second, commit="abc")
    found = KnownFits(again, _plan(Config(**second.config)))
    plan = _plan(Config(**second.config))
    taken, new = found.find("boston", "gal2016", plan), found.find("boston", "meanfield", plan)
    assert taken is not None
    assert taken.commit == first.commit
    assert new is not None
    assert new.commit == "abc"


@pytest.mark.parametrize(
    "change", [{"steps": 6}, {"splits": 1}, {"repeats": 2}, {"num_draws": 11}, {"steps": None}]
)
def test_fits_by_other_settings_are_not_taken(change: dict[str, Any]) -> None:
    record = made_up_record()
    plan = _plan(Config(**{**TINY, **change}))
    found = KnownFits(record, _plan(Config(**record.config))).find("boston", "gal2016", plan)
    assert found is None


def made_up_record(**changes: Any) -> Record:
    arrays = {"scores": {"boston/gal2016": [[1.0, 2.0, 3.0, 4.0]] * 2}, "rates": {}, "revision": 2}
    rows = (Row("boston, gal2016", "seconds a split", None, 1.0),)
    made: dict[str, Any] = {
        "experiment": "gal2016-uci-table1",
        "title": "",
        "preset": "default",
        "overrides": {},
        "config": TINY,
        "version": __version__,
        "commit": "abc",
        "seconds": 1.0,
        "outcome": Outcome(rows, (), arrays),
    }
    return Record(**{**made, **changes})


def test_results_of_another_version_or_revision_are_refused() -> None:
    plan = _plan(Config(**TINY))
    KnownFits(made_up_record(), plan)
    with pytest.raises(NotReusable, match="`version` must be"):
        KnownFits(made_up_record(version="0.0.1"), plan)
    # Without a revision that is written down, only the two commits that were checked are known.
    silent = Outcome((), (), {"scores": {}, "rates": {}})
    with pytest.raises(NotReusable, match="`revision of its fits` must be 2; got None"):
        KnownFits(made_up_record(outcome=silent), plan)
    KnownFits(made_up_record(outcome=silent, commit="54be11a43c680eba7fb49217e7e320e5be5bd21f"), plan)


def test_the_results_file_of_another_experiment_is_refused(tmp_path: Path) -> None:
    write_record(made_up_record(experiment="gal2017-uci"), tmp_path)
    with pytest.raises(
        ValueError, match="`earlier` must be a results file of its own; got 'one of gal2017-uci'"
    ):
        run_experiment("gal2016-uci-table1", earlier=tmp_path / "gal2017-uci.json", output=tmp_path / "out")


def test_small_sets_without_the_error_of_averaged_weights_are_fitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = PieceCache("gal2016-uci-table1", folder=tmp_path / "runs", earlier=[made_up_record()])
    outcome = run(Config(**TINY), cache=cache, progress=False)
    assert outcome.complete
    assert outcome.arrays["commits"] == {}
    assert len(outcome.arrays["averaged"]["boston/gal2016"]) == 2


def test_both_results_files_of_the_repository_can_be_gone_on_from() -> None:
    results = Path(__file__).parents[2] / "results"
    for name, method, config, plan in (
        ("gal2016-uci-table1", "gal2016", Config, _plan),
        ("gal2017-uci", "two-layers", Config2017, plan_2017),
    ):
        record = read_record(results / f"{name}.json")
        known = KnownFits(record, plan(config(**record.config)))  # type: ignore[operator]
        found = known.find("boston", method, plan(config()))  # type: ignore[operator]
        assert found is not None
        assert found.scores[method].shape == (20, 4)
        # Fits of another estimator are none of the present one.
        ours = known.find("boston", "default", plan(config()))  # type: ignore[operator]
        assert (ours is not None) == (record.outcome.arrays.get("estimator", 1) == ESTIMATOR)


def test_the_averaged_weights_are_those_of_the_exported_network(csv: str) -> None:
    table = load_set(csv)
    rows = [Rows(table.x[train].numpy(), table.y[train].numpy(), seed=0) for train in table.train[:1]]
    test = table.x[table.test[0]].numpy()
    for method in ("gal2016", "meanfield"):
        key = piece_keys(csv, method, 1, steps=20, num_draws=20)[0]
        mixture = METHODS[method][0](csv, rows, key)[labels_of(method)[0]][0]
        assert mixture.target is not None
        net = export(mixture.components[0].network).double()
        expected = net(mixture.encoders["0 bins"](test).double()).detach()
        expected = mixture.target.outputs(expected, heteroscedastic=False)
        torch.testing.assert_close(mixture.mean_weights(test), expected, rtol=1e-5, atol=1e-5)


def test_no_draw_of_a_network_without_dropout_differs(csv: str) -> None:
    key = piece_keys(csv, "no-dropout", 1, steps=20, num_draws=20)[0]
    piece = fit_piece(key)
    assert piece["scores"]["no-dropout"][0][0] == pytest.approx(piece["averaged"]["no-dropout"][0], rel=1e-5)
    assert piece["rates"] == [[[0.0, 0.0]]]


def test_medians_have_their_quartiles() -> None:
    found = Benchmark(["boston"], [])
    found.scores["boston", "m"] = np.array([[1.0, 5.0], [2.0, 4.0], [3.0, 3.0], [4.0, 2.0], [9.0, 1.0]])
    rows = list(median_rows(found, "m", {("boston", 0): "2.68"}))
    assert [(row.metric, row.ours, row.paper) for row in rows] == [
        ("median RMSE", 3.0, "2.68"),
        ("median log-likelihood (nats)", 3.0, None),
    ]
    assert rows[0].note == "quartiles [2, 4]"


def test_what_is_not_significant_is_told_set_by_set() -> None:
    found = Benchmark(["boston", "yacht"], [])
    found.labels = ["gal2016"]
    # Better than VI (4.32, -2.90) and PBP (3.01, -2.57) by far; on yacht PBP's RMSE (1.02) is better.
    found.scores["boston", "gal2016"] = np.array([[2.0, -2.0, 0.9, 0.1], [2.1, -2.1, 0.9, 0.1]])
    found.scores["yacht", "gal2016"] = np.array([[1.1, -1.2, 0.9, 0.1], [1.2, -1.1, 0.9, 0.1]])
    claim = next(one for one in claims_2016(found) if "significantly" in one.text)
    assert claim.holds
    assert "RMSE on yacht (PBP -0.13" in claim.measured
    found.scores["boston", "gal2016"][:, 0] += 1
    claim = next(one for one in claims_2016(found) if "significantly" in one.text)
    assert not claim.holds
    assert claim.correction == "Not by two standard errors: RMSE on boston."


def test_a_single_fit_is_its_share_of_a_search() -> None:
    assert single_fit_share("two-layers", 500) == pytest.approx(1 / 4.2)
    assert single_fit_share("concrete", 500) == pytest.approx(1 / 12.2)
    assert single_fit_share("concrete", 5000) == pytest.approx(1 / 5)


def test_claims_of_2017_on_time_rates_and_no_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"a": 300, "b": 900, "c": 9000}
    monkeypatch.setattr("bayesdrop.experiments.uci.claims_2017.load_set", lambda name: range(sizes[name]))
    found = Benchmark(list(sizes), [])
    found.labels = ["two-layers", "CDropout", "CDropoutM", "two-layers-no-dropout"]
    for place, name in enumerate(sizes):
        for label in found.labels[:3]:
            found.scores[name, label] = np.array([[1.0, -1.0, 0.9, 0.1], [1.0, -1.1, 0.9, 0.1]])
        found.rates[name, "concrete"] = np.array([[0.0, 0.3 - 0.1 * place]] * 2)
        found.seconds[name, "two-layers"], found.seconds[name, "concrete"] = 4.2, 12.2
    found.scores["a", "two-layers-no-dropout"] = found.scores["a", "two-layers"] - [0, 1, 0, 0]
    claims = {claim.text.split(",")[0].split(":")[0]: claim for claim in claims_2017(found)}
    time = claims["Learning the rates reduces experiment time against a grid search over them."]
    # A single fit takes 1 s on a small set, where 14 candidates were tried, and 12.2 / 5 on a large one.
    assert time.holds
    assert "a 1.0 against 4.2 s" in time.measured
    assert "c 2.4 against 4.2 s" in time.measured
    assert "on 3 of 3 sets" in time.correction
    found.seconds["c", "concrete"] = 30.0
    slow = next(one for one in claims_2017(found) if one.text == time.text)
    assert not slow.holds
    assert slow.correction.startswith("Not on c. ")
    assert claims["With more data than the model is large"].measured.startswith("-1.00; a 0.300")
    removed = next(claim for text, claim in claims.items() if text.startswith("Removing dropout"))
    assert removed.holds
