"""Rows outside what was learned: deferred with a reason, bounded, and no end of the file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesdrop.tables import (
    FitOptions,
    Rule,
    TableModel,
    fit_table,
    load_table_model,
    open_table,
    predict_frame,
    save_table_model,
    score_file,
)
from bayesdrop.tables.deferral import find_deferral, ranked
from bayesdrop.tables.evaluate import evaluate_table, fit_evaluation
from bayesdrop.tables.prepare import Reasons
from bayesdrop.tables.written import written

TINY = {"preset": "quick", "hidden": (8,), "epochs": 10, "num_draws": 16, "search": "none", "restarts": 2}


def stones(rows: int = 200, seed: int = 0) -> Any:
    source = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "z": source.uniform(0, 8.1, rows),
            "colour": source.choice(["red", "blue"], rows),
            "cut": source.choice([1.0, 2.0, 3.0], rows),
        }
    )
    noise = source.normal(size=rows) * np.exp(0.2 * frame["z"])
    return frame.assign(price=100 * frame["z"] + 10 * frame["cut"] + noise).round(4)


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit_table(stones(), FitOptions("price", estimator=TINY)).model


def spoiled(rows: int = 12) -> Any:
    frame = stones(rows, seed=1).drop(columns="price").astype(object)
    frame.loc[0, "z"] = 31.8
    frame.loc[1, "colour"] = "teal"
    frame.loc[2, "z"] = "1e100"
    frame.loc[3, "z"] = "-inf"
    frame.loc[4, "z"] = ""
    frame.loc[5, ["z", "colour", "cut"]] = [-99, "gold", 77]
    return frame.astype(str)


def test_a_row_outside_is_deferred_with_its_reason(model: TableModel) -> None:
    found = predict_frame(model, spoiled(), deferral=model.deferral(Rule(share=0.0)))
    assert found["defer"].tolist() == [True] * 6 + [False] * 6
    reasons = found["reason"].tolist()
    seen = model.estimator.mixture_.seen
    low, high = f"{seen.low[0]:.6g}", f"{seen.high[0]:.6g}"
    assert reasons[0] == f"z = 31.8, seen {low} to {high}"
    assert reasons[1] == "colour = 'teal', never seen"
    assert reasons[2] == f"z = 1 \u00d7 10¹⁰⁰, seen {low} to {high}"
    assert reasons[3] == f"z = -inf, seen {low} to {high}"
    assert reasons[4] == "z is missing, which it never was"
    assert reasons[5] == f"colour = 'gold', never seen; z = -99, seen {low} to {high}; cut = 77, seen 1 to 3"
    assert reasons[6:] == [""] * 6


def test_what_is_said_of_such_a_row_is_of_the_size_of_what_was_learned(model: TableModel) -> None:
    found = predict_frame(model, spoiled())
    usual = predict_frame(model, stones())
    for name in ("std", "epistemic", "aleatoric"):
        assert found[name].max() < 10 * usual[name].max()
    assert (found["upper"] - found["lower"]).max() < 10 * (usual["upper"] - usual["lower"]).max()
    # The margin's end is where all that lies beyond it goes.
    far = spoiled()
    far.loc[0, "z"] = "1e30"
    assert predict_frame(model, far)["mean"][0] == found["mean"][0]


def test_other_rows_are_as_they_were_without_it(model: TableModel) -> None:
    frame = spoiled()
    whole, alone = predict_frame(model, frame), predict_frame(model, frame.iloc[6:])
    np.testing.assert_allclose(whole["mean"][6:], alone["mean"], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["mean", "std", "aleatoric"])
def test_a_prediction_that_is_not_finite_is_deferred(
    name: str, value: float, model: TableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bayesdrop.tables import judge

    original = judge.row_scores

    def spoilt(prediction: Any) -> Any:
        scores = original(prediction)
        scores[name] = np.where(np.arange(len(scores[name])) == 3, value, scores[name])
        return scores

    monkeypatch.setattr(judge, "row_scores", spoilt)
    found = predict_frame(model, stones(8, seed=2), deferral=model.deferral(Rule(share=0.0)))
    assert found["defer"].tolist() == [False] * 3 + [True] + [False] * 4
    assert found["reason"][3] == "the prediction is not finite"


def test_no_rule_lets_a_row_without_a_finite_score_pass() -> None:
    scores = {"std": np.array([1.0, 2.0, 3.0, np.nan])}
    loss = np.ones(4)
    counted = ranked(scores, np.array([False, True, False, False]))
    assert counted["std"].tolist() == [1.0, np.inf, 3.0, np.inf]
    for rule in (Rule(share=0.0), Rule(share=0.3), Rule(error=1e9)):
        found = find_deferral(rule.for_task("regression"), counted, loss, root=True)
        assert found(counted).tolist()[1] is True
        assert found(counted).tolist()[3] is True
    # By error: rows that go anyhow have no say in how many others must.
    spoilt = np.array([1.0, 1e9, 1.0, 1e9])
    kept = find_deferral(Rule(error=1.5).for_task("regression"), counted, spoilt, root=True)
    assert kept(counted).tolist() == [False, True, False, True]


def test_the_reason_of_an_ordinary_deferral_is_its_score(model: TableModel) -> None:
    frame = stones(60, seed=3)
    deferral = model.deferral(Rule(share=0.5))
    found = predict_frame(model, frame, deferral=deferral)
    assert 0 < found["defer"].sum() < 60
    for std, reason in zip(found["std"], found["reason"], strict=True):
        above = f"std = {written(std, digits=4)}, above {written(deferral.threshold, digits=4)}"
        assert reason == (above if std > deferral.threshold else "")


def test_reasons_of_a_row_are_a_few_and_counted() -> None:
    reasons = Reasons(3)
    for name in "abcde":
        reasons.add(np.array([True, name == "c", False]), lambda row, name=name: f"{name}{row}")
    assert reasons.texts().tolist() == ["a0; b0; c0; and 2 more", "c1", ""]
    assert reasons.any.tolist() == [True, True, False]


def test_a_file_with_such_cells_is_scored_to_its_end(model: TableModel, tmp_path: Path) -> None:
    spoiled().to_csv(tmp_path / "in.csv", index=False)
    for name in ("out.csv", "out.parquet"):
        scored = score_file(model, open_table(tmp_path / "in.csv"), tmp_path / name, chunk_rows=5)
        assert (scored.rows, scored.outside) == (12, 6)
        assert "6 of these lie outside what was learned; column reason says how." in scored.lines()
    read = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert read["reason"].tolist() == pd.read_parquet(tmp_path / "out.parquet")["reason"].tolist()


def test_evaluate_defers_them_too_and_its_width_is_not_ruined(model: TableModel, tmp_path: Path) -> None:
    frame = stones(100, seed=4)
    frame.to_csv(tmp_path / "whole.csv", index=False)
    frame.loc[7, "z"] = 318.0
    frame.to_csv(tmp_path / "typo.csv", index=False)
    whole = evaluate_table(model, open_table(tmp_path / "whole.csv"), rule=Rule(share=0.0))
    typo = evaluate_table(model, open_table(tmp_path / "typo.csv"), rule=Rule(share=0.0))
    assert (whole.outcome.deferred, typo.outcome.deferred) == (0, 1)
    assert typo.measures["interval_width"] < 1.2 * whole.measures["interval_width"]


def test_the_range_is_kept_in_the_folder(model: TableModel, tmp_path: Path) -> None:
    save_table_model(model, tmp_path / "model", report="")
    again = load_table_model(tmp_path / "model")
    before, after = predict_frame(model, spoiled()), predict_frame(again, spoiled())
    assert before["reason"].tolist() == after["reason"].tolist()
    np.testing.assert_allclose(before["std"], after["std"], rtol=1e-6)


def test_a_held_out_row_that_is_outside_counts_as_deferred() -> None:
    frame = stones(120).astype(object)
    fitted = fit_table(frame, FitOptions("price", estimator=TINY, rule=Rule(share=0.0)))
    place = fitted.frame.index[0]
    frame.loc[place, "z"] = 1e6
    fitted = fit_table(frame, FitOptions("price", estimator=TINY, rule=Rule(share=0.0)))
    assert np.isinf(fitted.model.held_out["std"]).sum() == 1
    assert fit_evaluation(fitted).outcome.deferred == 1


@pytest.mark.parametrize("held_out", [0.001, 0.5])
def test_one_held_out_row_is_enough_for_a_report(held_out: float) -> None:
    labels = ["a"] * 6 + ["b"] * 6
    frame = pd.DataFrame({"x": np.arange(12.0), "y": labels})
    fitted = fit_table(frame, FitOptions("y", estimator=TINY, held_out=held_out))
    one = dataclasses.replace(
        fitted,
        judged=dataclasses.replace(
            fitted.judged,
            target=fitted.judged.target[:1],
            scores={name: values[:1] for name, values in fitted.judged.scores.items()},
            log_prob=fitted.judged.log_prob[:1],
        ),
        frame=fitted.frame.iloc[:1],
        model=dataclasses.replace(
            fitted.model, held_out={name: values[:1] for name, values in fitted.model.held_out.items()}
        ),
    )
    page = fit_evaluation(one)
    assert json.dumps(page.as_dict())
    assert "<h2>Measures</h2>" in page.report()
    assert not fit_evaluation(one).model.deferral()({"entropy": np.array([0.1])}).any()


def test_every_column_is_read_once_for_every_chunk(
    model: TableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What predicting costs beyond the networks: nothing is fitted again."""
    from bayesdrop.tables import columns

    read = []
    original = columns.as_numbers
    monkeypatch.setattr(columns, "as_numbers", lambda *given: read.append(1) or original(*given))
    stones(30).to_csv(tmp_path / "in.csv", index=False)
    score_file(model, open_table(tmp_path / "in.csv"), tmp_path / "out.csv", chunk_rows=10)
    assert len(read) == 3 * 2


def test_a_column_that_never_changed_tells_when_it_does() -> None:
    """It was left out, since nothing could be learned from it: of another value nothing is known."""
    frame = stones(60).assign(land="FR", year="2024.0", old="yes", void="", when="2020-01-01")
    model = fit_table(frame, FitOptions("price", estimator=TINY, ignore=("when",))).model
    assert [column.name for column in model.schema.used] == ["z", "colour", "cut"]
    new = stones(7, seed=1).assign(land="FR", year="2024", old="True", void="NA", when="2021-05-05")
    new.loc[1, "land"] = "US"
    new.loc[2, "year"] = "2025"
    new.loc[3, "old"] = "no"
    new.loc[4, "void"] = "x"
    new.loc[5, "land"] = ""
    found = predict_frame(model, new, deferral=model.deferral(Rule(share=0.0)))
    assert found["reason"].tolist() == [
        "",
        "land = 'US', always 'FR' when it was seen",
        "year = '2025', always '2024' when it was seen",
        "old = 'no', always 'true' when it was seen",
        "void = 'x', always missing when it was seen",
        "land = missing, always 'FR' when it was seen",
        "",
    ]
    # Where the column is not there, nobody asks for it.
    gone = predict_frame(model, new.drop(columns=["land", "year", "old", "void"]))
    assert "always" not in "".join(gone["reason"])
