"""The UCI tables: printed numbers, ranks, pieces that both share, and a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from bayesdrop.data import DataNotFound, load_uci
from bayesdrop.estimators import DropoutRegressor
from bayesdrop.experiments import PieceCache
from bayesdrop.experiments.gal2016_uci_table1 import Config, run
from bayesdrop.experiments.gal2017_uci import Config as Config2017
from bayesdrop.experiments.gal2017_uci import run as run_2017
from bayesdrop.experiments.uci.fits import METHODS, SETTINGS_2016, fit_piece, piece_keys
from bayesdrop.experiments.uci.published import COLUMNS, best_printed, published, published_mean
from bayesdrop.experiments.uci.report import Benchmark, ranks
from bayesdrop.experiments.uci.sets import load_set
from bayesdrop.metrics import mean_log_likelihood
from bayesdrop.stacked import Table as Rows


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


def test_pieces_are_all_splits_once() -> None:
    try:
        load_uci("boston")
    except DataNotFound as error:
        pytest.skip(f"real data are absent: {error}")
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
