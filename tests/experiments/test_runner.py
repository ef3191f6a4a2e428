"""The runner: what it writes, where, and that a reproduction is never replaced by something else."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayesdrop
from bayesdrop.data import DataNotFound
from bayesdrop.errors import MissingExtra
from bayesdrop.experiments import Outcome, Record, Row, load_experiment, read_record, run_experiment
from bayesdrop.experiments.record import read_records, write_record

pytestmark = pytest.mark.usefixtures("toy")


def test_a_run_writes_its_record_and_its_picture(tmp_path: Path) -> None:
    output = tmp_path / "new" / "results"
    record = run_experiment("toy2020-squares", output=output)
    assert sorted(path.name for path in output.iterdir()) == ["toy2020-squares.json", "toy2020-squares.png"]
    assert (output / "toy2020-squares.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((output / "toy2020-squares.json").read_text())
    assert found["title"] == "Toy (2020), Table 1: the squares of small numbers."
    assert found["config"] == {"numbers": [1, 2, 3], "power": 2.0, "name": None, "strict": False}
    assert (found["preset"], found["version"]) == ("default", bayesdrop.__version__)
    assert found["rows"][1] == dataclasses.asdict(Row("2", "square", 4.0, 4.0))
    assert found["rows"][3]["ours"] is None
    assert found["claims"][0]["holds"] is True
    assert found["notes"] == ["Four was not tried."]
    assert found["seconds"] >= 0
    assert record.outcome.rows[0].ours == 1.0


@pytest.mark.parametrize(
    ("options", "stem"),
    [
        ({"preset": "quick"}, "toy2020-squares-quick"),
        ({"preset": "smoke"}, "toy2020-squares-smoke"),
        ({"overrides": {"power": "3"}}, "toy2020-squares-custom"),
        ({"preset": "quick", "overrides": {"power": 3.0}}, "toy2020-squares-quick-custom"),
    ],
)
def test_only_the_default_writes_the_reproduction(tmp_path: Path, options: dict[str, Any], stem: str) -> None:
    run_experiment("toy2020-squares", output=tmp_path / "results")
    before = (tmp_path / "results" / "toy2020-squares.json").read_bytes()
    record = run_experiment("toy2020-squares", output=tmp_path / "results", **options)
    assert record.stem == stem
    assert (tmp_path / "results" / f"{stem}.json").exists()
    assert (tmp_path / "results" / "toy2020-squares.json").read_bytes() == before
    if "overrides" in options:
        assert record.overrides == {"power": 3.0}
        assert record.outcome.row("2", "square").ours == 8 if "preset" in options else True


def test_a_second_run_uses_the_pieces_of_the_first_unless_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_experiment("toy2020-squares", output=tmp_path / "a")
    module = load_experiment("toy2020-squares").module
    monkeypatch.setattr(module, "piece", lambda key: {"value": 100.0 + key["number"]})
    again = run_experiment("toy2020-squares", output=tmp_path / "b")
    assert [row.ours for row in again.outcome.rows] == [1, 4, 9, None]
    fresh = run_experiment("toy2020-squares", output=tmp_path / "c", fresh=True)
    assert [row.ours for row in fresh.outcome.rows] == [101, 102, 103, None]
    monkeypatch.setattr(module, "REVISION", 2, raising=False)
    monkeypatch.setattr(module, "piece", lambda key: {"value": 7.0})
    revised = run_experiment("toy2020-squares", output=tmp_path / "d")
    assert [row.ours for row in revised.outcome.rows] == [7, 7, 7, None]


def test_a_failing_run_leaves_the_old_files_alone(tmp_path: Path) -> None:
    run_experiment("toy2020-squares", output=tmp_path / "results", overrides={"power": 2.0})
    before = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    with pytest.raises(LookupError, match="thirteen"):
        run_experiment("toy2020-squares", output=tmp_path / "results", overrides={"numbers": "1,13"})
    assert {path: path.read_bytes() for path in (tmp_path / "results").iterdir()} == before


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("toy2020-square", {}, r"unknown experiment 'toy2020-square'. Did you mean 'toy2020-squares'\?"),
        ("toy2020-squares", {"preset": "quik"}, r"Did you mean 'quick'\?"),
        ("toy2020-squares", {"overrides": {"powr": "2"}}, r"Did you mean 'power'\?"),
        ("toy2020-squares", {"output": __file__}, "`output` must be a folder"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        run_experiment(name, **options)
    assert not (tmp_path / "results").exists()


def test_matplotlib_is_asked_for_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(load_experiment("toy2020-squares").module, "run", lambda *args, **options: 1 / 0)
    with pytest.raises(MissingExtra, match=r"\.\[plot\]"):
        run_experiment("toy2020-squares", output=tmp_path)


def test_a_folder_that_cannot_be_written_is_found_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    name = "gal2016-co2"
    monkeypatch.setattr(load_experiment(name).module, "run", None)  # it does not come to that
    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(
        OSError, match=rf"run_experiment: {name}\.json cannot be written in the folder .*: Read-only"
    ):
        run_experiment(name, preset="smoke", output=tmp_path)


def record_of(outcome: Outcome, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "experiment": "toy",
        "title": "Toy",
        "preset": "default",
        "overrides": {},
        "config": {"a": 1},
        "version": "1",
        "commit": None,
        "seconds": 1.23,
        "outcome": outcome,
    }
    return Record(**(fields | changes))


def test_arrays_come_back_with_type_and_shape(tmp_path: Path) -> None:
    arrays = {
        "floats": np.array([[1.0, np.nan], [1 / 3, -2e-9]]),
        "single": np.float32([0.1]),
        "ints": np.arange(6).reshape(1, 2, 3),
        "bools": np.array([True, False]),
        "names": np.array(["a", "bcd"]),
        "empty": np.zeros((0, 3)),
        "scalar": np.float64(0.5),
        "nested": [[1, 2], [3]],
        "text": "label",
    }
    path = write_record(record_of(Outcome([], arrays=arrays)), tmp_path)
    found = read_record(path).outcome.arrays
    for name in ("floats", "single", "ints", "bools", "names", "empty"):
        assert found[name].dtype == arrays[name].dtype
        assert found[name].shape == arrays[name].shape
    np.testing.assert_allclose(found["floats"], arrays["floats"], rtol=1e-5)
    assert (found["ints"] == arrays["ints"]).all()
    assert found["names"].tolist() == ["a", "bcd"]
    assert (found["scalar"], found["nested"], found["text"]) == (0.5, [[1, 2], [3]], "label")
    assert "NaN" not in path.read_text(), "the file is JSON for every reader"


def test_a_record_that_is_written_again_is_the_same_file(tmp_path: Path) -> None:
    arrays = {"x": np.random.default_rng(0).normal(size=(3, 4))}
    first = write_record(record_of(Outcome([Row("a", "b", "1.0", 1 / 3, 0.1)], arrays=arrays)), tmp_path)
    content, record = first.read_bytes(), read_record(first)
    write_record(record, tmp_path)
    assert first.read_bytes() == content
    assert record.digest == read_record(first).digest


@pytest.mark.parametrize(
    "rows",
    [(Row("other", "m", None, None),), (Row("a", "m", None, 1.0), Row("b", "m", None, None))],
    ids=["nothing was run", "a set was not run"],
)
def test_a_run_without_the_data_does_not_replace_numbers(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    def record(*found: Row) -> Record:
        return Record("toy2020-squares", "Toy", "default", {}, {}, "", None, 0.0, Outcome(found))

    path = write_record(record(Row("a", "m", None, 1.0), Row("b", "m", None, 2.0)), tmp_path)
    before = path.read_bytes()
    with pytest.raises(DataNotFound, match="has numbers and stays"):
        write_record(record(*rows), tmp_path)
    assert path.read_bytes() == before
    write_record(record(Row("a", "m", None, 3.0)), tmp_path)  # fewer rows are the settings' own choice
    assert path.read_bytes() != before


def test_the_digest_moves_with_the_numbers_and_not_with_the_clock() -> None:
    def digest(number: float, **changes: Any) -> str:
        return record_of(Outcome([Row("a", "b", None, number)]), **changes).digest

    assert digest(1.0) == digest(1.0, seconds=9.0, commit="abc")
    assert digest(1.0) != digest(1.1)


def test_arrays_that_no_page_can_hold_are_refused(tmp_path: Path) -> None:
    for arrays, error, sentence in (
        (
            {"small": np.zeros(3), "large": np.random.default_rng(0).normal(size=300_000)},
            ValueError,
            "'large'",
        ),
        ({"x": np.array([np.inf])}, ValueError, "finite or NaN"),
        ({"x": np.array([1j])}, TypeError, "real numbers"),
    ):
        with pytest.raises(error, match=sentence):
            write_record(record_of(Outcome([], arrays=arrays)), tmp_path)
    assert list(tmp_path.glob("*.json")) == []


def test_other_files_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text('{"cases": {}}')
    write_record(record_of(Outcome([])), tmp_path)
    assert list(read_records(tmp_path)) == ["toy"]
    with pytest.raises(ValueError, match="not a results file"):
        read_record(tmp_path / "engine.json")
