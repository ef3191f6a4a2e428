"""Columns of a table: read, told apart, prepared, and brought back from JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesdrop.tables import Schema, open_table
from bayesdrop.tables.cells import as_labels, as_numbers, as_truths
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.schema import check_target, infer_column, infer_columns, infer_task


def text(*cells: str, name: str = "column") -> Any:
    return pd.Series(list(cells), name=name, dtype="str")


def test_cells_are_numbers_missing_or_bad() -> None:
    values, bad = as_numbers(text(" 1.5", "1e3", "", "NA", "n/a", "?", "inf", "1,5"), ["?"])
    np.testing.assert_array_equal(values[:6], [1.5, 1000, np.nan, np.nan, np.nan, np.nan])
    assert bad.tolist() == [False] * 6 + [True] * 2
    values, bad = as_truths(text("yes", "NO", "t", "False", "", "maybe"))
    np.testing.assert_array_equal(values[:5], [1, 0, 1, 0, np.nan])
    assert bad.tolist() == [False] * 5 + [True]
    assert as_labels(text("1", "1.0", " 1", "NA", "2.5"), numbers=True).tolist() == [
        "1",
        "1",
        "1",
        None,
        "2.5",
    ]


def test_every_kind_of_column_is_told_with_a_reason() -> None:
    assert infer_column(text("1", "2", "4", "3", "")).fill == 2.5
    assert infer_column(text("1", "2", "")).marked
    assert infer_column(text("yes", "no", "yes")).kind == "boolean"
    assert infer_column(text("a", "b", "a", "b")).categories == ("a", "b")
    assert infer_column(text("", "NA")).why == "all cells are missing"
    assert infer_column(text("7", "7")).why == "it is 7 in every row"
    assert infer_column(text("x", "x")).kind == "left out"
    assert "are no categories" in infer_column(text(*(f"id{i}" for i in range(50)))).why
    assert infer_column(text("1", "2", "1", "2"), categorical=True).categories == ("1", "2")
    assert infer_column(pd.Series(pd.date_range("2020", periods=4), name="day")).kind == "date"
    assert infer_column(pd.Series(pd.to_timedelta([1, 2], unit="h"), name="t")).kind == "left out"


def test_many_categories_of_a_few_rows_have_an_input_each() -> None:
    shops = [f"shop {number}" for number in range(200)]
    column = infer_column(text(*shops * 12, "odd"))
    assert set(column.categories) == {*shops, "(other)"}
    assert column.rare == ("odd",)


def test_rare_categories_share_a_column() -> None:
    column = infer_column(text(*["a"] * 500, *["b"] * 500, "c", "d", ""))
    assert column.categories == ("a", "b", "(other)", "(missing)")
    assert set(column.rare) == {"c", "d"}


def test_text_among_numbers_is_an_error_that_names_the_cell() -> None:
    with pytest.raises(ValueError, match=r"column 'column' is numbers but for '12 kg' in row 3"):
        infer_column(text("1", "2", "12 kg", "4"))
    assert infer_column(text("1", "2", "unknown", "4"), ["unknown"]).marked


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["yes", "no"] * 10, "classification"),
        (["red", "green", "blue", "1"] * 5, "classification"),
        (["0", "1", "2"] * 10, "classification"),
        (["0.0", "1.0"] * 10, "classification"),
        (["0.5", "1.5"] * 10, "regression"),
        ([str(i) for i in range(20)], "regression"),
        ([str(i) for i in range(5)] * 2, "regression"),
    ],
)
def test_the_target_says_what_the_task_is(cells: list[str], task: str) -> None:
    assert infer_task(text(*cells), (), "auto", len(cells))[0] == task
    assert infer_task(text(*cells), (), "classification", len(cells))[0] == "classification"


def test_targets_that_cannot_be_learned_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be numbers for --task regression; got 'a' in row 1"):
        infer_task(text("a", "2"), (), "regression", 2)
    with pytest.raises(ValueError, match="is numbers but for 'x' in row 4"):
        infer_task(text("1.5", "2.5", "3.5", "x"), (), "auto", 4)
    with pytest.raises(ValueError, match=r"must vary; it is 3\.0 in all 4 rows"):
        check_target("y", "regression", np.full(4, 3.0))
    with pytest.raises(ValueError, match="a few classes"):
        check_target("y", "classification", np.array([f"name {i}" for i in range(30)], dtype=object))


def mixed() -> Any:
    return pd.DataFrame(
        {
            "size": ["1", "2", "", "4"],
            "kind": ["a", "b", "a", "b"],
            "new": ["true", "false", "true", "true"],
            "y": ["1.5", "2.5", "3.5", "4.5"],
        },
        dtype="str",
    )


def schema_of(frame: Any) -> Schema:
    columns = infer_columns(frame, "y", categorical=(), ignore=(), marks=())
    return Schema("y", "regression", columns)


def test_prepared_rows_are_what_the_schema_says_and_json_brings_them_back() -> None:
    schema = schema_of(mixed())
    expected = [[1, 0, 1, 0, 1], [2, 0, 0, 1, 0], [2, 1, 1, 0, 1], [4, 0, 0, 1, 1]]
    np.testing.assert_array_equal(Preparer(schema)(mixed()).x, expected)
    again = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    assert again == schema
    np.testing.assert_array_equal(Preparer(again)(mixed()).x, expected)
    assert Preparer(again)(mixed().iloc[:0]).x.shape == (0, 5)


def test_unseen_categories_and_new_gaps_are_counted() -> None:
    frame = mixed()
    frame.loc[0, "kind"] = "zebra"
    frame.loc[1, "kind"] = ""
    frame.loc[2, "new"] = ""
    prepared = Preparer(schema_of(mixed()))(frame)
    assert prepared.reasons.texts().tolist() == [
        "kind = 'zebra', never seen",
        "kind is missing, which it never was",
        "new is missing, which it never was",
        "",
    ]
    assert prepared.unseen == {"kind": 1}
    assert prepared.filled == {"kind": 1, "new": 1}
    assert prepared.x[0, 2:4].tolist() == prepared.x[1, 2:4].tolist() == [0, 0]
    assert prepared.x[2, 4] == 1


def test_a_rare_category_is_not_an_unseen_one() -> None:
    frame = pd.DataFrame({"kind": ["a"] * 300 + ["b"] * 300 + ["c"], "y": np.arange(601.0)})
    prepare = Preparer(schema_of(frame))
    prepared = prepare(pd.DataFrame({"kind": ["c", "d", "a"]}))
    assert prepared.reasons.any.tolist() == [False, True, False]
    assert prepared.x[0].tolist() == prepared.x[1].tolist() == [0, 0, 1]


def test_text_in_a_numeric_column_is_named() -> None:
    frame = mixed()
    frame.loc[3, "size"] = "big"
    with pytest.raises(ValueError, match=r"new\.csv: column 'size' must be numbers; got 'big' in row 4"):
        Preparer(schema_of(mixed()))(frame, "new.csv")


def test_columns_that_do_not_match_are_named() -> None:
    schema = schema_of(mixed())
    with pytest.raises(ValueError, match=r"columns 'size', 'new' must be there.*not know column 'sizes'"):
        schema.check_names(["kind", "sizes", "y"], "new.csv")
    assert schema.check_names(["new", "kind", "size", "more"], "new.csv") == ["more"]


# files


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_csv_is_read_text_by_text(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"\ufeffcode{separator}value\n007{separator}NA\n008{separator}1.50\n", encoding="utf-8")
    table = open_table(path)
    assert table.names == ("code", "value")
    assert table.read().to_numpy().tolist() == [["007", "NA"], ["008", "1.50"]]


def test_chunks_are_the_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(25), "b": [f"t{i}" for i in range(25)]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.csv.gz", "t.parquet"):
        chunks = list(open_table(tmp_path / name).chunks(10))
        assert [len(chunk) for chunk in chunks] == [10, 10, 5]
        joined = pd.concat(chunks)
        assert joined.index.tolist() == list(range(25))
        assert joined["a"].astype(int).tolist() == list(range(25))
        assert joined["b"].astype(str).tolist() == frame["b"].tolist()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        ("a,b,a\n1,2,3\n", "more than one is called 'a'"),
        ("a,b\n1,2\n1,2,3,4\n", "does not have 2 cells"),
        ("a,b\n1,2,3\n1,2,3\n", "does not have 2 cells"),
    ],
)
def test_files_that_are_no_tables_are_refused(content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=sentence):
        open_table(path).read()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.xls").write_bytes(b"")
    with pytest.raises(ValueError, match=r"ends in \.csv"):
        open_table(tmp_path / "t.xls")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_table(tmp_path / "t.csv")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ValueError, match="not a Parquet file"):
        open_table(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_bytes(b"na\xefve,b\n1\0,2\n")
    with pytest.raises(ValueError, match="UTF-8"):
        open_table(tmp_path / "t.csv")
