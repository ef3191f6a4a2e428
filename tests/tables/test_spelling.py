"""Numbers and dates in every way that spreadsheets write them: read rightly, or refused with the way out."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesdrop.tables import inspect_table
from bayesdrop.tables.cells import as_days, as_labels, as_numbers, as_truths, day_of
from bayesdrop.tables.habits import Habits
from bayesdrop.tables.infer import Wish
from bayesdrop.tables.schema import infer_column, infer_columns, infer_task, target_way
from bayesdrop.tables.spelling import DATES, DIGITS, NUMBERS, date_ways, number_ways, plain_number, unit_of

VALUES = [0.5, 12.25, 1234.5, -98765.125, 1234567.0, 999.0]


def text(*cells: str, name: str = "column") -> Any:
    return pd.Series(list(cells), name=name, dtype="str")


def spelled(value: float, way: str) -> str:
    """A number, by the way's example alone: 1234.5 written so."""
    thousands = way[1] if not way[1].isdigit() else ""
    plain = f"{value:,.3f}".replace(",", "T").replace(".", "D")
    return plain.replace("T", thousands).replace("D", way[-2])


@pytest.mark.parametrize("way", NUMBERS)
def test_a_column_tells_how_its_numbers_are_written(way: str) -> None:
    cells = [spelled(value, way) for value in VALUES]
    column = infer_column(text(*cells, ""))
    assert (column.kind, column.format) == ("numeric", way)
    values, bad = column.read(text(*cells, ""))
    np.testing.assert_array_equal(values, [*VALUES, np.nan])
    assert not bad.any()


@pytest.mark.parametrize(
    ("cells", "way", "values"),
    [
        (["1.234", "5.678"], "1234.5", [1.234, 5.678]),  # as a program writes it
        (["1.234", "1.234.567"], "1.234,5", [1234, 1234567]),
        (["0,123", "1,234"], "1234,5", [0.123, 1.234]),  # no thousand begins with 0
        (["1,2345"], "1234,5", [1.2345]),
        (["1,234,567", "1,234"], "1,234.5", [1234567, 1234]),
        (["1\u00a0234,5", "7"], "1 234,5", [1234.5, 7]),
        (["1\u202f234", "12"], "1 234.5", [1234, 12]),
        (["1\u2019234.5"], "1'234.5", [1234.5]),
        (["1,5e3", "-2,5E-1"], "1234,5", [1500, -0.25]),
        ([",5", "+1,"], "1234,5", [0.5, 1]),
    ],
)
def test_one_way_fits_all_cells(cells: list[str], way: str, values: list[float]) -> None:
    column = infer_column(text(*cells), wish=Wish(kind="numeric"))
    if len(cells) > 1:
        assert column.format == way
    np.testing.assert_array_equal(as_numbers(text(*cells), (), way)[0], values)


def test_a_thousand_or_a_decimal_is_asked_for() -> None:
    with pytest.raises(
        ValueError, match=r"column 'p': '1,234' in row 2 may be 1234 or 1\.234.*--numbers 'p="
    ):
        infer_column(text("12", "1,234", "5,678", name="p"))
    for way, value in (("1,234.5", 1234), ("1234,5", 1.234)):
        column = infer_column(text("12", "1,234", name="p"), wish=Wish(kind="numeric", numbers=way))
        assert column.format == way
        assert column.read(text("1,234"))[0] == [value]


@pytest.mark.parametrize(
    ("other", "value"), [("0,5", 1.234), ("1.234,56", 1.234), ("0.5", 1234), ("1,234,567.5", 1234)]
)
def test_another_column_decides_and_it_is_said(other: str, value: float) -> None:
    frame = pd.DataFrame({"p": ["1,234", "12"], "q": [other, "1"], "y": ["1", "2"]}, dtype="str")
    columns = infer_columns(frame, "y", categorical=(), ignore=(), marks=())
    assert columns[0].read(frame["p"])[0].tolist() == [value, 12]
    assert "as other columns are; if that is wrong: --numbers" in columns[0].why
    assert target_way(frame["p"], (), Habits(frame, ())) == columns[0].format


def test_points_are_thousands_where_decimals_are_commas() -> None:
    frame = pd.DataFrame(
        {"people": ["1.234", "5.678"], "size": ["0,5", "1,25"], "y": ["1", "2"]}, dtype="str"
    )
    people = infer_columns(frame, "y", categorical=(), ignore=(), marks=())[0]
    assert people.read(frame["people"])[0].tolist() == [1234, 5678]
    assert "if that is wrong: --numbers" in people.why


def test_nothing_is_said_of_what_programs_write() -> None:
    frame = pd.DataFrame({"p": ["1.234", "5.678"], "q": ["0.5", "2.25"], "y": ["1", "2"]}, dtype="str")
    columns = infer_columns(frame, "y", categorical=(), ignore=(), marks=())
    assert [column.why for column in columns] == ["1.234 to 5.678", "0.5 to 2.25"]


def test_several_ways_in_one_column_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"is numbers, written as 1234,5, but for '2\.5' in row 3"):
        infer_column(text("1,5", "3,5", "2.5"))
    with pytest.raises(ValueError, match=r"is numbers, written as 1\.234,5, but for '12\.5' in row 2"):
        infer_column(text("1,5", "12.5", "3,5"), wish=Wish(numbers="1.234,5"))


def test_another_way_is_never_taken_for_the_plain_one() -> None:
    """A model of decimal commas must not read 1234.5 as anything."""
    values, bad = as_numbers(text("1.5", "1,5", "inf", "x", "1.234"), (), "1.234,5")
    assert bad.tolist() == [True, False, True, True, False]
    assert (values[1], values[4]) == (1.5, 1234)
    # Typed numbers are numbers, however texts are written.
    assert as_numbers(pd.Series([1.234]), (), "1.234,5")[0].tolist() == [1.234]
    assert plain_number("1,23,456", "1,234.5") is None
    assert plain_number("\u0661", "1234.5") is None


def test_codes_and_addresses_are_no_numbers() -> None:
    for cells in (["10.0.0.1", "10.0.0.2"] * 4, ["1-2", "3-4"] * 4, ["0.123.456", "0.123.457"] * 4):
        assert number_ways(cells, plain=False) == []
        assert infer_column(text(*cells)).kind == "category"


def test_a_target_is_written_in_some_way_too() -> None:
    cells = text(*(f"{value},5" for value in range(20)))
    way = target_way(cells, ())
    assert way == "1234,5"
    assert infer_task(cells, (), "auto", 20, way)[:2] == ("regression", False)
    with pytest.raises(ValueError, match=r"target 'column': '1,234' in row 1 may be"):
        target_way(text("1,234", "2,345"), ())
    with pytest.raises(ValueError, match="is dates"):
        infer_task(text("2024-03-01", "2024-03-02"), (), "auto", 2)


# dates


@pytest.mark.parametrize("way", [way for way in DATES if way != DIGITS])
def test_a_column_tells_how_its_dates_are_written(way: str) -> None:
    moments = pd.to_datetime(["2024-03-31", "2023-12-01", "1999-01-30"])
    numbers = {"2024": "%Y", "31": "%d", "03": "%m", "Mar": "%b"}
    pattern = way
    for piece, code in numbers.items():
        pattern = pattern.replace(piece, code)
    cells = text(*(moment.strftime(pattern) for moment in moments), "")
    column = infer_column(cells)
    assert (column.kind, column.format, column.marked) == ("date", way, True)
    days, bad = column.read(cells)
    assert [day_of(day) for day in days[:3]] == ["2024-03-31", "2023-12-01", "1999-01-30"]
    assert np.isnan(days[3])
    assert not bad.any()


def test_the_same_day_in_every_type_is_the_same_number() -> None:
    cells = [
        text("2024-03-01"),
        text("2024-03-01T00:00:00Z"),
        text("2024-03-01 01:00+01:00"),
        pd.Series(pd.to_datetime(["2024-03-01"])),
        pd.Series(pd.to_datetime(["2024-03-01 05:00+05:00"])),
        pd.Series([datetime.date(2024, 3, 1)], dtype="date32[pyarrow]"),
        pd.Series(pd.to_datetime(["2024-03-01"])).astype("timestamp[s][pyarrow]"),
    ]
    assert [as_days(one)[0].tolist() for one in cells] == [[19783.0]] * len(cells)
    assert as_days(text("01.03.2024"), (), "31.03.2024")[0].tolist() == [19783.0]
    # The year may come first in any table.
    assert as_days(text("2024-03-01"), (), "31.03.2024")[0].tolist() == [19783.0]


def test_a_day_or_a_month_is_asked_for_and_until_then_left_out() -> None:
    cells = text("03/04/2024", "05/06/2024", name="day")
    column = infer_column(cells)
    assert column.kind == "left out"
    assert column.why.startswith("'03/04/2024' may be in April or March; say which: --dates 'day=31/03/2024'")
    for way, first in (("31/03/2024", "2024-04-03"), ("03/31/2024", "2024-03-04")):
        asked = infer_column(cells, wish=Wish(dates=way))
        assert asked.kind == "date"
        assert day_of(asked.read(cells)[0][0]) == first
    frame = pd.DataFrame({"day": cells, "other": ["13/01/2024", "01/02/2024"], "y": ["1", "2"]})
    assert infer_columns(frame, "y", categorical=(), ignore=(), marks=())[0].format == "31/03/2024"


def test_dates_without_marks_are_numbers_until_it_is_said() -> None:
    for cells in (text("20240301", "20240302", ""), pd.Series([20240301, 20240302, np.nan], name="column")):
        assert infer_column(cells).kind == "numeric"
        column = infer_column(cells, wish=Wish(kind="date", dates=DIGITS))
        assert [day_of(day) for day in column.read(cells)[0][:2]] == ["2024-03-01", "2024-03-02"]
        found = inspect_table(pd.DataFrame({"column": cells})).columns[0]
        assert found.warnings == ("its numbers may be dates; then: --dates 'column=20240331'",)
    assert inspect_table(pd.DataFrame({"n": ["20241301", "12"]})).columns[0].warnings == ()


def test_days_that_are_none_are_none() -> None:
    assert date_ways(["2023-02-29"]) == []
    assert date_ways(["31 Foo 2024"]) == []
    assert date_ways(["2024-03-01 25:00"]) == []
    with pytest.raises(ValueError, match="column 'column' is dates but for 'soon' in row 3"):
        infer_column(text("2024-03-01", "2024-03-02", "soon"))
    assert infer_column(text("2024-03-01", "2024-03-02", "soon"), ["soon"]).marked


# truth values


def test_truth_values_are_alike() -> None:
    cells = text("true", "no", "1", "0", "T", "1.0")
    assert infer_column(cells).kind == "boolean"
    assert as_truths(cells)[0].tolist() == [1, 0, 1, 0, 1, 1]
    # Numbers that are 0 or 1 are numbers, and may be words in another file.
    column = infer_column(text("1", "0", "0"))
    assert (column.kind, column.format) == ("numeric", "0 or 1")
    values, bad = column.read(text("yes", "0", "False", "", "maybe", "0.5"))
    np.testing.assert_array_equal(values[[0, 1, 2, 3, 5]], [1, 0, 0, np.nan, 0.5])
    assert bad.tolist() == [False] * 4 + [True, False]


@pytest.mark.parametrize(
    "words",
    ["WAHR FALSCH", "ja nein", "VRAI FAUX", "Oui Non", "VERDADERO FALSO", "Sí No", "VERO FALSO", "Sim Não",
     "WAAR ONWAAR", "PRAWDA FAŁSZ", "SANT FALSKT"],
)  # fmt: skip
def test_truth_values_of_other_languages_are_those_of_typed_files(words: str) -> None:
    true, false = words.split()
    column = infer_column(text(true, false, true))
    assert column.kind == "boolean"
    assert column.read(text(false, true, ""))[0][:2].tolist() == [0, 1]
    assert column.read(pd.Series([True, False]))[0].tolist() == [1, 0]
    assert infer_column(text(*[true, false, "?!"] * 5)).kind == "category"


@pytest.mark.parametrize("way", NUMBERS)
def test_the_minus_of_typesetters_is_a_minus(way: str) -> None:
    cells = [spelled(value, way).replace("-", "\u2212") for value in VALUES]
    column = infer_column(text(*cells))
    assert (column.kind, column.format) == ("numeric", way)
    np.testing.assert_array_equal(column.read(text(*cells))[0], VALUES)


def test_labels_and_exponents_may_have_it_too() -> None:
    labels = as_labels(text("\u22121", "-1.0", "1", "\u2212x"), numbers=True)
    assert labels.tolist() == ["-1", "-1", "1", "\u2212x"]
    np.testing.assert_array_equal(as_numbers(text("2e\u22123", "\u2212.5"))[0], [0.002, -0.5])


@pytest.mark.parametrize(
    "cells",
    [
        ["12 kg", "7 kg", "9.5 kg"],
        ["12kg", "7 kg", "\u22129,5 kg"],
        ["5 %", "6 %", "7.5%"],
        ["$3", "$1,200", "$ 5"],
        ["EUR 3", "EUR 1.200,50", "EUR 5"],
        ["3 m/s", "4 m/s", "12 m/s"],
        ["10 m²", "20 m²", "1 200 m²"],
    ],
)
def test_numbers_with_a_unit_are_told_of(cells: list[str]) -> None:
    assert unit_of(cells) == cells[0]
    frame = pd.DataFrame({"x": cells * 20, "y": [0.5 * place for place in range(60)]}).astype("str")
    column = inspect_table(frame, target="y").columns[0]
    hint = f"{cells[0]!r} is a text: without the unit, it would be a number"
    assert column.kind == "category"
    assert column.becomes.endswith(hint)
    assert column.warnings == (hint,)
    assert infer_task(frame["x"], (), "auto", 60)[2] == hint


@pytest.mark.parametrize(
    "cells", [["12 kg", "7 m", "9 l"], ["A12", "A13", "A14"], ["red", "blue", "green"], ["1 kg", "2 kg"], []]
)
def test_other_texts_have_no_unit(cells: list[str]) -> None:
    assert unit_of(cells) is None
