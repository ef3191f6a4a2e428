"""A table model as one ONNX file says what `bayesdrop predict` says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from bayesdrop.cli import build_app
from bayesdrop.export.nodes import Handle, Weights, Writer
from bayesdrop.export.onnx_file import finished, named_value, rows_of
from bayesdrop.export.program import Size
from bayesdrop.likelihoods.warped import Warp
from bayesdrop.stacked.encode import Encoder
from bayesdrop.stacked.start import guess_table
from bayesdrop.tables import FitOptions, export_table, fit_table, predict_frame, save_table_model
from bayesdrop.tables.onnx_model import made_up_rows
from bayesdrop.tables.onnx_networks import write_encoder

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

COUNTED = {"preset": "quick"}
TINY = {"preset": "quick", "hidden": (8,), "epochs": 5, "num_draws": 12, "search": "none", "restarts": 2}


def trips(rows: int = 160) -> Any:
    source = np.random.default_rng(0)
    far, load = source.normal(size=rows), source.exponential(10, size=rows)
    town, night = source.choice(["Ahome", "Bford", "Cton"], rows), source.random(rows) < 0.5
    day = pd.to_datetime("2019-11-20") + pd.to_timedelta(source.integers(0, 900, rows), unit="D")
    hours = 2 * far + 0.1 * load + 3 * (town == "Ahome") + night + 0.3 * source.normal(size=rows)
    load[::9] = np.nan
    frame = pd.DataFrame(
        {"far": far, "load": load, "town": town, "night": np.where(night, "yes", "no"), "day": day}
    )
    frame["gears"] = source.choice(["4", "5", "6"], rows)
    frame["hours"] = hours
    return frame


@pytest.fixture(scope="module")
def numbers() -> Any:
    options = FitOptions("hours", estimator=TINY, held_out=0.4, categorical=("gears",))
    return fit_table(trips(), options).model


@pytest.fixture(scope="module")
def classes() -> Any:
    frame = trips()
    frame["hours"] = np.where(frame["hours"] > 2, "long", np.where(frame["hours"] > 0, "usual", "short"))
    return fit_table(frame, FitOptions("hours", estimator=TINY, held_out=0.4)).model


def run(path: Path, cells: dict[str, Any]) -> dict[str, Any]:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    wanted = {one.name for one in session.get_inputs()}
    assert wanted == set(cells)
    return dict(zip(names, session.run(names, cells), strict=True))


def test_a_file_says_what_predict_says_of_numbers(numbers: Any, tmp_path: Path) -> None:
    done = export_table(numbers, tmp_path / "model.onnx")
    assert done.inputs["far"] == "number; NaN if it is missing"
    for rows in (1, 64):
        frame, cells = made_up_rows(numbers, rows, seed=100 + rows)
        found, truth = run(done.path, cells), predict_frame(numbers, frame)
        for name in ("mean", "std", "epistemic", "aleatoric", "lower", "upper"):
            assert found[name].shape == (rows,)
            np.testing.assert_allclose(found[name], truth[name], rtol=1e-5, atol=1e-6)
        assert (found["defer"] == truth["defer"]).all()
        reasons = np.array([bool(text) and "above" not in text for text in truth["reason"]])
        assert (found["outside"] == reasons).all()


def test_a_file_says_what_predict_says_of_classes(classes: Any, tmp_path: Path) -> None:
    done = export_table(classes, tmp_path / "model.onnx", prefix="said_")
    frame, cells = made_up_rows(classes, 64, seed=5)
    found, truth = run(done.path, cells), predict_frame(classes, frame)
    for place, label in enumerate(classes.schema.classes):
        np.testing.assert_allclose(found["said_probs"][:, place], truth[f"p_{label}"], rtol=1e-5, atol=1e-7)
    assert (found["said_label"] == truth["label"]).all()
    assert (found["said_defer"] == truth["defer"]).all()
    np.testing.assert_allclose(found["said_entropy"], truth["entropy"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "day", ["1968-02-29", "1999-12-31", "2000-01-01", "2000-02-29", "2024-12-31", "2100-03-01"]
)
def test_dates_follow_the_calendar(numbers: Any, day: str, tmp_path: Path) -> None:
    """Leap years, centuries and days before 1970."""
    path = tmp_path / "model.onnx"
    export_table(numbers, path)
    frame, cells = made_up_rows(numbers, 1, seed=3)
    frame["day"] = pd.to_datetime([day])
    cells["day"] = np.array([[(np.datetime64(day) - np.datetime64("1970-01-01")).astype(float)]])
    found, truth = run(path, cells), predict_frame(numbers, frame)
    np.testing.assert_allclose(found["mean"], truth["mean"], rtol=1e-5)


def test_cells_that_no_row_had_are_outside_and_deferred(numbers: Any, tmp_path: Path) -> None:
    done = export_table(numbers, tmp_path / "model.onnx")
    _, cells = made_up_rows(numbers, 1, seed=3)
    plain = {
        name: np.array([["Ahome"]], dtype=object) if name == "town" else cell for name, cell in cells.items()
    }
    plain |= {"far": np.zeros((1, 1)), "load": np.full((1, 1), 5.0), "night": np.ones((1, 1))}
    plain["day"], plain["gears"] = np.full((1, 1), 18500.0), np.array([["5.0"]], dtype=object)
    assert not run(done.path, plain)["outside"][0]
    for name, cell in (
        ("town", np.array([["Nowhere"]], dtype=object)),
        ("town", np.array([["NA"]], dtype=object)),
        ("far", np.full((1, 1), np.inf)),
        ("far", np.full((1, 1), np.nan)),
        ("night", np.full((1, 1), 2.0)),
    ):
        found = run(done.path, plain | {name: cell})
        assert found["outside"][0]
        assert found["defer"][0]


def test_pieces_of_columns_and_boosted_trees_are_those_of_the_encoder(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(120, 4)) * [1.0, 10.0, 0.1, 1e4]
    start = guess_table(x, (np.sin(x[:, :1]) + x[:, 2:3]), np.arange(120) % 2)
    assert start is not None
    encoder = Encoder.of(x, 6, chosen=np.array([0, 2]), guess=start.guesses[0], predicted=start.predicted)
    w = Writer(Weights(), None)
    w.rows = rows_of(w, "x")
    made = Handle((Size(1), encoder.width), torch.float32, write_encoder(w, encoder, "x"))
    given = named_value("x", ("N", x.shape[1]), Handle((), torch.float64, "x"))
    (tmp_path / "encoder.onnx").write_bytes(finished(w, [given], {"made": made}, {}).SerializeToString())
    other = x[:50] * 1.7
    found = run(tmp_path / "encoder.onnx", {"x": other})["made"]
    np.testing.assert_allclose(found, encoder(other).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "asinh", "logit"])
def test_bounded_and_skewed_targets_have_the_intervals_of_predict(kind: Any, tmp_path: Path) -> None:
    frame = trips()[["far", "town", "hours"]]
    frame["hours"] = 1 / (1 + np.exp(-frame["hours"]))
    warp = Warp(kind, centre=0.5, scale=0.2, low=0.0, high=1.0)
    model = fit_table(frame, FitOptions("hours", estimator=TINY)).model
    mixture = model.estimator.mixture_
    fitted = replace(mixture, target=replace(mixture.target, warp=warp))
    model.estimator.mixture_ = fitted
    # Checked against `predict_frame` before it is left.
    assert export_table(model, tmp_path / "model.onnx", level=0.9).largest_error < 1e-5


def test_outputs_beyond_reach_of_the_targets_are_bounded_in_the_file(tmp_path: Path) -> None:
    model = fit_table(trips()[["far", "town", "hours"]], FitOptions("hours", estimator=TINY)).model
    for component, far in zip(model.estimator.mixture_.components, (1e3, -1e3), strict=False):
        component.network.biases[-1].fill_(far)
    target = model.estimator.mixture_.target
    wide = (target.high - target.low) * target.scale
    assert predict_frame(model, trips()[["far", "town"]])["mean"].max() < target.mean + 2 * wide
    # Checked against `predict_frame` before it is left.
    assert export_table(model, tmp_path / "model.onnx").largest_error < 1e-5


# what is refused


def test_a_level_that_is_none_is_refused(numbers: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        export_table(numbers, tmp_path / "model.onnx", level=2)
    assert not list(tmp_path.iterdir())


def test_targets_of_whole_numbers_are_named(tmp_path: Path) -> None:
    frame = trips()[["far", "hours"]]
    frame["hours"] = np.random.default_rng(1).poisson(np.exp(1 + 0.5 * frame["far"]))
    model = fit_table(frame, FitOptions("hours", task="regression", estimator=COUNTED)).model
    assert model.estimator.mixture_.likelihood.warp.whole
    with pytest.raises(ValueError, match=r"'hours' was fitted as whole numbers"):
        export_table(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_column_with_the_name_of_an_output_is_named(tmp_path: Path) -> None:
    frame = trips()[["far", "hours"]].rename(columns={"far": "mean"})
    model = fit_table(frame, FitOptions("hours", estimator=TINY, held_out=0.4)).model
    with pytest.raises(ValueError, match=r"column 'mean'.*prefix"):
        export_table(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
    export_table(model, tmp_path / "model.onnx", prefix="predicted ")


def test_the_command_writes_a_file_and_says_what_it_takes(numbers: Any, tmp_path: Path) -> None:
    folder, path = tmp_path / "model", tmp_path / "model.onnx"
    save_table_model(numbers, folder, report="")

    def invoke(*words: str) -> Any:
        return CliRunner().invoke(build_app(), ["export", str(folder), str(path), *words])

    result = invoke()
    assert result.exit_code == 0, result.output
    assert "town: text" in result.output
    assert "Checked against predict" in result.output
    again = invoke()
    assert again.exit_code == 2
    assert "is there already" in again.output
    told = json.loads(invoke("--force", "--json", "--level", "0.8").output)
    assert told["outputs"][:2] == ["mean", "std"]
    missing = CliRunner().invoke(build_app(), ["export", str(tmp_path / "none"), str(tmp_path / "b.onnx")])
    assert missing.exit_code == 2
    assert not (tmp_path / "b.onnx").exists()
