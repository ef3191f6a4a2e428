"""Dates, identifiers of rows, and what a person says of columns: told, kept, edited, and refused by name."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesdrop.tables import (
    FitOptions,
    Rule,
    Schema,
    fit_table,
    inspect_table,
    load_table_model,
    predict_frame,
    read_schema,
    save_table_model,
)
from bayesdrop.tables.cells import day_of
from bayesdrop.tables.infer import far_hint
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.schema import infer_column, infer_columns

TINY = {"preset": "quick", "hidden": (6,), "epochs": 2, "num_draws": 8, "search": "none", "restarts": 1}


def text(*cells: str, name: str = "column") -> Any:
    return pd.Series(list(cells), name=name, dtype="str")


def sales(rows: int = 80) -> Any:
    source = np.random.default_rng(0)
    day = pd.Timestamp("2022-01-01") + pd.to_timedelta(source.integers(0, 700, rows), unit="D")
    frame = pd.DataFrame(
        {
            "number": np.arange(1001, 1001 + rows),
            "order": [f"order {row}" for row in range(rows)],
            "day": day.strftime("%d.%m.%Y"),
            "size": source.uniform(1, 9, rows).round(3),
            "colour": source.choice(["red", "blue"], rows),
            "land": "FR",
        }
    )
    return frame.assign(price=3 * frame["size"] + source.normal(size=rows)).astype(str)


# dates


def test_a_date_becomes_age_year_month_weekday_and_day_of_the_year() -> None:
    days = ["2024-02-29", "1969-12-31", "2023-01-01", "2024-12-31", "1999-07-04"]
    frame = pd.DataFrame({"day": days, "y": list("12345")}, dtype="str")
    schema = Schema("y", "regression", infer_columns(frame, "y", categorical=(), ignore=(), marks=()))
    found = Preparer(schema)(frame).x
    last = datetime.date(2024, 12, 31)
    for row, day in zip(found, map(datetime.date.fromisoformat, days), strict=True):
        of_year = day.timetuple().tm_yday
        assert row.tolist() == [(last - day).days, day.year, day.month, day.weekday(), of_year]


def test_a_missing_date_is_filled_with_the_median_and_marked() -> None:
    frame = pd.DataFrame(
        {"day": ["2024-03-01", "", "2024-03-05", "2024-03-03"], "y": list("1234")}, dtype="str"
    )
    column = infer_columns(frame, "y", categorical=(), ignore=(), marks=())[0]
    assert day_of(column.fill) == "2024-03-03"
    prepared = Preparer(Schema("y", "regression", (column,)))(frame)
    assert prepared.x.shape == (4, 6)
    assert prepared.x[:, 5].tolist() == [0, 1, 0, 0]
    assert prepared.x[1, :5].tolist() == prepared.x[3, :5].tolist()


def test_a_date_far_from_those_of_the_fit_is_deferred_with_its_reason() -> None:
    model = fit_table(sales(), FitOptions("price", estimator=TINY)).model
    new = sales(8)
    new.loc[1, "day"] = "01.01.2035"
    new.loc[2, "day"] = "24.12.1950"
    new.loc[3, "day"] = ""
    new.loc[4, "day"] = "2022-05-05"
    found = predict_frame(model, new, deferral=model.deferral(Rule(share=0.0)))
    column = next(column for column in model.schema.columns if column.name == "day")
    last = day_of(column.last)
    reasons = found["reason"].tolist()
    assert reasons[1].startswith("day = 2035-01-01, seen 2022-01-")
    assert reasons[1].endswith(f"to {last}")
    assert reasons[2].startswith("day = 1950-12-24, seen ")
    assert reasons[3] == "day is missing, which it never was"
    assert reasons[0] == reasons[4] == ""
    new.loc[5, "day"] = "soon"
    with pytest.raises(
        ValueError, match=r"column 'day' must be dates written as 31\.03\.2024; got 'soon' in row 6"
    ):
        predict_frame(model, new)


def test_a_date_that_never_changed_tells_when_it_does() -> None:
    frame = sales().assign(day="01.03.2024")
    model = fit_table(frame, FitOptions("price", estimator=TINY)).model
    new = sales(3).assign(day=["2024-03-01", "02.03.2024", ""])
    reasons = predict_frame(model, new, deferral=model.deferral(Rule(share=0.0)))["reason"].tolist()
    assert reasons[0] == ""
    assert reasons[1] == "day = '02.03.2024', always '2024-03-01' when it was seen"
    assert reasons[2] == "day = missing, always '2024-03-01' when it was seen"


# identifiers of rows


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (range(30), "left out"),
        (range(1030, 1000, -1), "left out"),
        (np.random.default_rng(0).permutation(30), "left out"),
        (range(10), "numeric"),  # too few to tell
        (range(1990, 2020), "numeric"),  # years
        (range(0, 300, 10), "numeric"),
        ([1, *range(29)], "numeric"),
        (np.arange(30) + 0.5, "numeric"),
    ],
)
def test_a_running_number_is_left_out_and_told(cells: Any, kind: str) -> None:
    column = infer_column(text(*map(str, cells)))
    assert column.kind == kind
    assert infer_column(pd.Series(list(cells), name="n")).kind == kind
    assert ("a running number" in column.why) == (kind == "left out")


def test_names_of_rows_are_kept_on_demand() -> None:
    frame = sales()
    model = fit_table(frame, FitOptions("price", estimator=TINY)).model
    kinds = {column.name: column.kind for column in model.schema.columns}
    assert [name for name, kind in kinds.items() if kind == "left out"] == ["number", "order", "land"]
    kept = fit_table(frame, FitOptions("price", estimator=TINY, keep=("number", "order"))).model
    kinds = {column.name: column.kind for column in kept.schema.columns}
    assert (kinds["number"], kinds["order"]) == ("numeric", "category")
    alone = frame[["number", "price"]]
    with pytest.raises(ValueError, match=r"'number': a running number, 1001 to .*--keep"):
        fit_table(alone, FitOptions("price", estimator=TINY))
    with pytest.raises(ValueError, match=r"there is no column 'nummer'. Did you mean 'number'"):
        fit_table(frame, FitOptions("price", estimator=TINY, keep=("nummer",)))


def test_held_out_rows_do_not_hide_a_running_number() -> None:
    options = FitOptions("price", estimator=TINY, held_out=0.5)
    assert fit_table(sales(), options).model.schema.columns[0].kind == "left out"


# a schema that is edited


def saved(tmp_path: Path, state: Any) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(state), encoding="utf-8")
    return path


def test_what_inspect_saves_a_fit_takes(tmp_path: Path) -> None:
    frame = sales()
    state = inspect_table(frame, target="price").schema
    plain = fit_table(frame, FitOptions("price", estimator=TINY)).model
    asked = fit_table(
        frame, FitOptions("price", estimator=TINY, schema=read_schema(saved(tmp_path, state)))
    ).model
    np.testing.assert_array_equal(asked.prepare(frame).x, plain.prepare(frame).x)
    assert asked.schema.columns[-1].categories == ("FR",)
    # Edited: another kind, and one column less.
    rows = {row["name"]: row for row in state["columns"]}
    rows["number"]["kind"] = "numeric"
    rows["size"] = {"name": "size", "kind": "category"}
    rows["colour"]["kind"] = "left out"
    edited = fit_table(
        frame,
        FitOptions(
            "price",
            estimator=TINY,
            schema=read_schema(saved(tmp_path, state | {"columns": list(rows.values())})),
        ),
    ).model
    kinds = {column.name: column.kind for column in edited.schema.columns}
    assert (kinds["number"], kinds["size"], kinds["colour"]) == ("numeric", "category", "left out")


def test_the_schema_of_a_folder_is_taken_as_it_stands(tmp_path: Path) -> None:
    frame = sales()
    model = fit_table(frame, FitOptions("price", estimator=TINY)).model
    save_table_model(model, tmp_path / "model", report="")
    assert load_table_model(tmp_path / "model").schema == model.schema
    schema = read_schema(tmp_path / "model" / "schema.json")
    again = fit_table(frame[:40], FitOptions("price", estimator=TINY, schema=schema)).model
    used = [[replace(column, why="") for column in one.schema.used] for one in (again, model)]
    assert used[0] == used[1]


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ({"name": "size", "knd": "numeric"}, r"column 'size' has no field 'knd'. Did you mean 'kind'\?"),
        ({"name": "size", "kind": "number"}, r"column 'size': `kind` must be one of numeric, boolean"),
        (
            {"name": "size", "kind": "numeric", "fill": "x"},
            r"column 'size': `fill` must be a number; got 'x'",
        ),
        ({"name": "size", "kind": "numeric", "marked": 1}, r"column 'size': `marked` must be true or false"),
        (
            {"name": "size", "kind": "numeric", "format": "31.03.2024"},
            r"column 'size': `format` must be one of 1234",
        ),
        (
            {"name": "size", "kind": "numeric", "categories": ["a"]},
            r"a column that is numeric has no `categories`",
        ),
        ({"name": "size", "fill": 3}, r"column 'size': a column without a kind has no `fill`"),
        (
            {"name": "colour", "kind": "category", "categories": []},
            r"column 'colour': `categories` must be at least",
        ),
        (
            {"name": "colour", "kind": "category", "categories": [1]},
            r"column 'colour': `categories` must be a list",
        ),
        ({"name": "colour", "kind": "numeric"}, r"column 'colour' must be numbers; got '(red|blue)' in row"),
        ({"name": "colour", "kind": "boolean"}, r"column 'colour' must be true or false; got"),
        ({"name": "colour", "kind": "date"}, r"column 'colour' must be dates"),
        ({"name": "colr"}, r"schema\.json: there is no column 'colr'. Did you mean 'colour'\?"),
        ({"kind": "numeric"}, r"column 1 of the schema must be an object with a \"name\""),
    ],
)
def test_a_schema_that_is_wrong_is_refused_by_name(column: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit_table(
            sales(),
            FitOptions("price", estimator=TINY, schema=read_schema(saved(tmp_path, {"columns": [column]}))),
        )


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ([], "must be a schema: an object"),
        ({"columns": {}}, "must be a schema: an object"),
        ({"colums": []}, "the schema has no field 'colums'. Did you mean 'columns'"),
        ({"task": "ranking"}, "`task` must be one of regression, classification"),
        ({"missing_marks": "?"}, "`missing_marks` must be a list of texts"),
        ({"columns": [{"name": "a"}, {"name": "a"}]}, "column 'a' is there twice"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(state: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_schema(saved(tmp_path, state))
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match="must be a schema in JSON"):
        read_schema(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_schema(tmp_path / "y.json")


def test_a_schema_says_target_task_marks_and_classes(tmp_path: Path) -> None:
    frame = sales().assign(price=["low", "high"] * 40)
    frame.loc[0, "size"] = "?"
    state = {"target": "price", "task": "classification", "classes": ["low", "high"], "missing_marks": ["?"]}
    schema = read_schema(saved(tmp_path, state))
    model = fit_table(frame, FitOptions("price", estimator=TINY, schema=schema)).model
    assert model.schema.classes == ("low", "high")
    assert model.schema.missing_marks == ("?",)
    with pytest.raises(ValueError, match="`target` must be that of the schema, 'price'; got 'size'"):
        FitOptions("size", schema=schema)
    wrong = read_schema(saved(tmp_path, state | {"classes": ["low", "middle"]}))
    with pytest.raises(ValueError, match="the classes must be those of the schema"):
        fit_table(frame, FitOptions("price", estimator=TINY, schema=wrong))


# labels that are truth values


def test_labels_of_truth_are_alike_in_every_format(tmp_path: Path) -> None:
    from bayesdrop.tables.fitting import targets_of

    frame = sales().assign(price=["yes", "no"] * 40)
    model = fit_table(frame, FitOptions("price", estimator=TINY)).model
    assert model.schema.classes == ("no", "yes")
    for labels in (["True", "False"], ["1", "0"], pd.array([True, False], dtype="bool[pyarrow]"), [1, 0]):
        assert targets_of(sales(2).assign(price=labels), model.schema, "new")[1].tolist() == [1, 0]
    with pytest.raises(ValueError, match="must be one of"):
        targets_of(sales(2).assign(price=["yes", "perhaps"]), model.schema, "new")


# inspection


def test_a_few_values_far_from_all_others_are_told_of() -> None:
    frame = sales().assign(price=np.linspace(1, 2, 80), size=np.linspace(3, 5, 80))
    frame.loc[7, ["price", "size"]] = [1e9, -250_000]
    told = {column.name: column for column in inspect_table(frame, target="price").columns}
    assert told["price"].warnings == ("1 value is far from the others: 1,000,000,000",)
    assert told["size"].becomes.endswith("; 1 value is far from the others: -250,000")
    said: list[str] = []
    fit_table(frame, FitOptions("price", estimator=TINY), say=said.append)
    assert any(line.startswith("price: 1 value is far from the others: 1,000,000,000.") for line in said)


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (np.exp(3 * np.random.default_rng(0).normal(size=5000)), ""),  # a long tail has no gap
        (np.append(np.zeros(99), 1e9), ""),  # counts that are mostly 0
        (np.append(np.arange(9), 1e9), ""),  # too few to tell
        (np.append(np.arange(99), [np.nan, -1e308, 1e308]), "2 values are far from the others: "),
    ],
)
def test_long_tails_are_no_slips(values: np.ndarray[Any, Any], hint: str) -> None:
    assert far_hint(values).startswith(hint)
    assert bool(far_hint(values)) == bool(hint)


def test_an_inspection_tells_everything_and_stops_at_nothing() -> None:
    frame = sales().assign(weight="1,234", mixed=["1"] * 70 + ["x"] * 10, half=[""] * 50 + ["2.5"] * 30)
    found = inspect_table(frame, target="price")
    told = {column.name: column for column in found.columns}
    assert found.rows == 80
    assert (told["day"].kind, told["day"].how, told["day"].inputs) == ("date", "31.03.2024", 5)
    assert (told["size"].kind, told["size"].how, told["size"].missing) == ("numeric", "1234.5", 0)
    assert told["colour"].values == 2
    assert set(told["colour"].examples) == {"red", "blue"}
    assert (told["price"].kind, told["price"].becomes[:10]) == ("target", "regression")
    assert told["half"].missing == 50
    assert told["half"].warnings == ("more than half of its cells are missing",)
    assert told["mixed"].kind == "?"
    assert "is numbers but for 'x' in row 71" in told["mixed"].warnings[0]
    # Other columns have decimal points: it is told what was assumed.
    assert "if that is wrong: --numbers" in told["weight"].becomes or told["weight"].kind == "left out"
    assert json.loads(json.dumps(found.as_dict()))["columns"][0]["name"] == "number"
    with pytest.raises(ValueError, match=r"there is no column 'prize'. Did you mean 'price'"):
        inspect_table(frame, target="prize")


@pytest.mark.parametrize("option", ["categorical", "ignore", "keep", "dates"])
def test_what_cannot_be_asked_of_the_target_is_refused(option: str) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "y": np.arange(60.0) % 7}).astype(str)
    asked: dict[str, Any] = {option: {"y": "2024-03-31"} if option == "dates" else ("y",)}
    with pytest.raises(ValueError, match=f"--{option} must name another column than the target, 'y'"):
        fit_table(frame, FitOptions("y", **asked))
    with pytest.raises(ValueError, match=f"--{option} must name another column than the target, 'y'"):
        inspect_table(frame, target="y", **asked)


def test_an_inspection_looks_at_rows_with_a_target() -> None:
    """As a fit does: what stands in other rows decides nothing."""
    rows = 60
    frame = pd.DataFrame({"x": np.arange(rows) * 1.5, "sort": "red", "y": np.sqrt(np.arange(rows))}).astype(
        str
    )
    frame.loc[:9, "y"] = ""
    frame.loc[:4, ["x", "sort"]] = ["not a number", "blue"]
    frame.loc[5:6, "x"] = ""
    x, sort, y = inspect_table(frame, target="y").columns
    assert (x.kind, x.missing, x.values) == ("numeric", 0, 50)
    assert (sort.kind, sort.becomes) == ("left out", "it is 'red' in every row")
    assert y.missing == 10
    assert y.warnings[0].startswith("10 rows without a target would be left out")
    whole = inspect_table(frame)
    assert (whole.rows, whole.columns[0].kind, whole.columns[0].missing) == (60, "?", 2)
