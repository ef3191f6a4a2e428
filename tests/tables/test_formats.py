"""Every format of a table gives the same columns; what is damaged, hostile or unclear is refused by name."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import lzma
import os
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from bayesdrop.errors import MissingExtra
from bayesdrop.tables import (
    FitOptions,
    fit_table,
    open_table,
    predict_frame,
    score_file,
    sheet_checks,
    unpacking,
)
from bayesdrop.tables.prepare import Preparer

TINY = {"preset": "quick", "hidden": (6,), "epochs": 2, "num_draws": 8, "search": "none", "restarts": 1}


def typed(rows: int = 60, seed: int = 0) -> Any:
    """A table with a column of every kind, in the types of pandas."""
    source = np.random.default_rng(seed)
    size = source.uniform(30, 2000, rows).round(2)
    frame = pd.DataFrame(
        {
            "size": size,
            "rooms": source.integers(1, 9, rows),
            "sold": pd.Timestamp("2023-01-01") + pd.to_timedelta(source.integers(0, 500, rows), unit="D"),
            "garden": source.random(rows) > 0.5,
            "town": source.choice(["Ahome", "Bford", "Çton"], rows),
            "price": (2 * size + 10 * source.normal(size=rows)).round(2),
        }
    )
    frame.loc[3, "size"] = np.nan
    frame.loc[4, "sold"] = pd.NaT
    return frame


def german(frame: Any) -> str:
    """The same table as a German spreadsheet exports it."""

    def number(value: float) -> str:
        return "" if np.isnan(value) else f"{value:,.2f}".translate(str.maketrans(",.", ".,"))

    rows = [";".join(frame.columns)]
    for row in frame.itertuples(index=False):
        sold = "" if pd.isna(row.sold) else row.sold.strftime("%d.%m.%Y")
        garden = "yes" if row.garden else "no"
        rows.append(f"{number(row.size)};{row.rooms};{sold};{garden};{row.town};{number(row.price)}")
    return "\r\n".join(rows) + "\r\n"


def packed(data: bytes, ending: str) -> bytes:
    if ending == "zst":
        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[ending](data)


def write(frame: Any, path: Path) -> Path:
    name = path.name
    if name.endswith((".xlsx", ".xlsm")):
        frame.to_excel(path, index=False, engine="openpyxl")
    elif name.endswith(".ods"):
        frame.to_excel(path, index=False, engine="odf")
    elif name.endswith(".parquet"):
        frame.to_parquet(path)
    elif name.endswith(".feather"):
        frame.to_feather(path)
    else:
        encoding = "cp1252" if "cp1252" in name else "utf-16" if "utf16" in name else "utf-8"
        text = (
            german(frame)
            if "german" in name
            else frame.to_csv(index=False, sep="|" if "bar" in name else ",")
        )
        data = text.encode(encoding)
        ending = path.suffix[1:]
        path.write_bytes(data if ending == "csv" else packed(data, ending))
    return path


FILES = [
    *("a.csv", "bar.csv", "german.csv", "german-cp1252.csv", "german-utf16.csv", "utf16.csv"),
    *("a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.csv.zst"),
    *("a.parquet", "a.feather", "a.xlsx", "a.ods"),
]


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_inputs(name: str, tmp_path: Path) -> None:
    frame = typed()
    model = fit_table(frame, FitOptions("price", estimator=TINY)).model
    kinds = [column.kind for column in model.schema.columns]
    assert kinds == ["numeric", "numeric", "date", "boolean", "category"]
    read = open_table(write(frame, tmp_path / name)).read()
    # Fitted to this file, or read by a model of another format: the same numbers.
    own = fit_table(read, FitOptions("price", estimator=TINY)).model
    expected = Preparer(model.schema)(frame).x
    np.testing.assert_array_equal(Preparer(own.schema)(read).x, expected)
    if "german" in name:
        model = _reread(model)
    np.testing.assert_array_equal(Preparer(model.schema)(read).x, expected)
    np.testing.assert_array_equal(predict_frame(own, read)["mean"], predict_frame(model, frame)["mean"])
    # And the other way round: typed cells are what they are.
    np.testing.assert_array_equal(Preparer(own.schema)(frame).x, expected)


def _reread(model: Any) -> Any:
    return replace(model, schema=model.schema.written({"": "1.234,5"}, {"": "31.03.2024"}))


@pytest.mark.parametrize(
    "name", ["a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.csv.zst", "a.feather", "a.xlsx", "a.ods"]
)
def test_a_file_that_is_cut_off_is_refused(name: str, tmp_path: Path) -> None:
    whole = write(typed(400), tmp_path / name)
    data = whole.read_bytes()
    for share in (0.3, 0.7, 0.95):
        whole.write_bytes(data[: int(share * len(data))])
        with pytest.raises(ValueError, match=r"damaged|cells"):
            open_table(whole).read()


@pytest.mark.parametrize(
    "name", ["a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.csv.zst", "a.feather", "a.xlsx", "a.ods"]
)
def test_a_file_that_is_something_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match="is damaged or not a"):
        open_table(tmp_path / name)
    write(typed(5), tmp_path / "real.xlsx").rename(tmp_path / "a.csv")
    with pytest.raises(ValueError, match=r"looks like a file that ends in \.xlsx"):
        open_table(tmp_path / "a.csv")


def test_a_header_may_begin_as_another_format_does(tmp_path: Path) -> None:
    for name in ("PAR1", "BZh", "FEA1", "ARROW1", "PK"):
        (tmp_path / "a.csv").write_text(f"{name},b\n1,2\n")
        assert open_table(tmp_path / "a.csv").names == (name, "b")


# bombs


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_packed_bomb_is_refused(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"bomb.csv.{ending}"
    path.write_bytes(packed(b"a,b\n" + b"0,0\n" * 2_000_000, ending))
    assert path.stat().st_size < 40_000
    monkeypatch.setattr(unpacking, "LARGE", 1_000_000)
    with pytest.raises(ValueError, match="must unpack to at most"):
        open_table(path)


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bomb.xlsx", "bomb.ods"):
        path = write(typed(5), tmp_path / name)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("more.xml", b"0" * 5_000_000)
        monkeypatch.setattr(unpacking, "LARGE", 1_000_000)
        with pytest.raises(ValueError, match="must unpack to at most"):
            open_table(path)


def spoil(path: Path, part: str, change: Any) -> None:
    """Another part in the place of one of an archive."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[part] = change(parts[part])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("name", "part"),
    [("a.xlsx", "xl/worksheets/sheet1.xml"), ("a.xlsx", "xl/workbook.xml"), ("a.ods", "content.xml")],
)
def test_entities_are_refused(name: str, part: str, tmp_path: Path) -> None:
    path = write(typed(5), tmp_path / name)
    bomb = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b SYSTEM "file:///etc/passwd">]>'

    def change(data: bytes) -> bytes:
        start = data.index(b"?>") + 2 if data.startswith(b"<?xml") else 0
        return data[:start] + bomb + data[start:]

    spoil(path, part, change)
    with pytest.raises(ValueError, match="Entit"):
        open_table(path)


def test_repeated_cells_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(typed(5), tmp_path / "a.ods")
    for repeat in (b"number-columns-repeated", b"number-rows-repeated"):
        tag = b"<table:table-cell " if b"columns" in repeat else b"<table:table-row"

        def change(data: bytes, tag: bytes = tag, repeat: bytes = repeat) -> bytes:
            return data.replace(tag, tag.rstrip() + b" table:" + repeat + b'="2000000000" ')

        write(typed(5), path)
        spoil(path, "content.xml", change)
        with pytest.raises(ValueError, match="at most 20,000,000 cells"):
            open_table(path)
    monkeypatch.setattr("bayesdrop.tables.sheets.MOST_CELLS", 20)
    with pytest.raises(ValueError, match="at most 20 cells"):
        open_table(write(typed(5), tmp_path / "a.xlsx"))
    assert sheet_checks.MOST_CELLS == 20_000_000


def test_parquet_that_claims_too_many_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pd.DataFrame({"a": np.zeros(3_000_000, dtype=np.int8)}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("bayesdrop.tables.arrow._MOST_CELLS", 1000)
    monkeypatch.setattr("bayesdrop.tables.arrow._CELLS_A_BYTE", 1)
    with pytest.raises(ValueError, match="says that it holds 3,000,000 cells"):
        open_table(tmp_path / "a.parquet")


# encodings and separators


def test_an_encoding_is_told_or_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("naïve,b\nÄ,€\n".encode("cp1252"))
    table = open_table(path)
    assert table.names == ("naïve", "b")
    assert table.read().to_numpy().tolist() == [["Ä", "€"]]
    note = f"{path} is not UTF-8; it is read as Windows-1252 (cp1252). If that is wrong: --encoding."
    assert table.notes == (note,)
    assert open_table(path, encoding="latin-1").read().iloc[0, 1] == "\x80"
    with pytest.raises(ValueError, match="the text must be UTF-8"):
        open_table(path, encoding="utf-8")
    with pytest.raises(ValueError, match="`encoding` must be one that Python knows"):
        open_table(path, encoding="klingon")
    path.write_bytes(b"a,b\n\x81,\xe4\n")
    assert "Latin-1" in open_table(path).notes[0]
    for encoding in ("utf-16-le", "utf-16-be"):
        path.write_bytes("größe,b\nä,1\n".encode(encoding))
        with pytest.raises(ValueError, match=r"--encoding"):
            open_table(path)
        assert open_table(path, encoding=encoding).names == ("größe", "b")
    path.write_bytes("größe,b\nä,1\n".encode("utf-32"))
    assert open_table(path).names == ("größe", "b")


def test_what_is_wrong_far_down_is_known_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 600_000 + b"\xff,\x81\n")
    assert "Latin-1" in open_table(path).notes[0]


def test_options_of_another_format_are_refused(tmp_path: Path) -> None:
    write(typed(5), tmp_path / "a.csv")
    write(typed(5), tmp_path / "a.parquet")
    for name, options, word in (
        ("a.csv", {"sheet": "1"}, "--sheet is for an"),
        ("a.parquet", {"encoding": "utf-8"}, "--encoding is for a CSV"),
        ("a.parquet", {"separator": ";"}, "--separator is for a CSV"),
    ):
        with pytest.raises(ValueError, match=word):
            open_table(tmp_path / name, **options)  # type: ignore[arg-type]


def test_an_empty_first_row_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n,,\na,b,c\n1,2,3\n")
    assert open_table(tmp_path / "a.csv").names == ("a", "b", "c")


# sheets


def book(path: Path, rows: list[list[Any]], change: Any = None, sheets: int = 1) -> Path:
    made = openpyxl.Workbook()
    sheet = made.active
    assert sheet is not None
    for row in rows:
        sheet.append(row)
    for place in range(2, sheets + 1):
        made.create_sheet(f"Notes {place}")
    if change is not None:
        change(sheet)
    made.save(path)
    return path


ROWS: list[list[Any]] = [["a", "b"], [1, "x"], [2, "y"]]


def test_one_of_several_sheets_is_asked_for(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", ROWS, sheets=3)
    with pytest.raises(ValueError, match=r"has 3 sheets; say which with --sheet: 1 'Sheet', 2 'Notes 2', 3"):
        open_table(path)
    for sheet in ("Sheet", "1", 1):
        assert open_table(path, sheet=sheet).read()["a"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="is empty: it has no header"):
        open_table(path, sheet="Notes 2")
    for sheet in ("4", "0", "sheet"):
        with pytest.raises(ValueError, match=f"has no sheet '{sheet}'. It has 1 'Sheet'"):
            open_table(path, sheet=sheet)
    with pd.ExcelWriter(tmp_path / "a.ods", engine="odf") as writer:
        pd.DataFrame({"a": [1]}).to_excel(writer, sheet_name="One", index=False)
        pd.DataFrame({"a": [2]}).to_excel(writer, sheet_name="Two", index=False)
    with pytest.raises(ValueError, match="1 'One', 2 'Two'"):
        open_table(tmp_path / "a.ods")
    assert open_table(tmp_path / "a.ods", sheet="Two").read()["a"].tolist() == [2]


def test_a_table_is_found_wherever_it_stands(tmp_path: Path) -> None:
    rows: list[list[Any]] = [
        [],
        [None, None],
        [None, "a", None, "b"],
        [None, 1, None, "x"],
        [],
        [None, 2, None, "y"],
        [],
    ]
    frame = open_table(book(tmp_path / "a.xlsx", rows)).read()
    assert frame.to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}
    # Of one column an empty cell is a row.
    frame = open_table(book(tmp_path / "b.xlsx", [["a"], [1], [None], [3], [None]])).read()
    assert frame["a"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("rows", "change", "sentence"),
    [
        (ROWS, lambda sheet: sheet.merge_cells("A2:A3"), r"no cells of a table may be merged; A2:A3 are"),
        (ROWS, lambda sheet: sheet.merge_cells("A1:B1"), r"may be merged; A1:B1 are"),
        ([["a", "b"], [1, "=A2*2"]], None, "cell B2 is a formula without a value"),
        ([["a", "a"], [1, 2]], None, "more than one is called 'a'"),
        ([["a", "b"], [1, 2, 3]], None, "row 2 of the sheet has a cell beside the columns"),
        ([], None, "is empty"),
    ],
)
def test_sheets_that_are_no_tables_are_refused(rows: Any, change: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_table(book(tmp_path / "a.xlsx", rows, change))


def test_merged_cells_of_ods_are_refused(tmp_path: Path) -> None:
    path = write(typed(5), tmp_path / "a.ods")
    tag = b"<table:table-cell "
    spoil(path, "content.xml", lambda data: data.replace(tag, tag + b'table:number-columns-spanned="2" ', 1))
    with pytest.raises(ValueError, match="no cells of a table may be merged; those that begin at A1"):
        open_table(path)


def test_a_formula_is_its_value_and_nothing_is_run_or_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    path = book(tmp_path / "a.xlsm", [["a", "b"], [1, 99], [2, "=[1]Other!A1"]])
    part = "xl/worksheets/sheet1.xml"
    spoil(
        path,
        part,
        lambda data: data.replace(b"<v>99</v>", b"<f>WEBSERVICE(&quot;http://127.0.0.1&quot;)</f><v>5</v>"),
    )
    spoil(path, part, lambda data: data.replace(b"<f>[1]Other!A1</f><v/>", b"<f>[1]Other!A1</f><v>6</v>"))
    spoil(path, part, lambda data: data.replace(b"<f>[1]Other!A1</f><v />", b"<f>[1]Other!A1</f><v>6</v>"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("xl/vbaProject.bin", b"\xd0\xcf\x11\xe0 no macro")
        archive.writestr("xl/externalLinks/externalLink1.xml", b"<broken")
    frame = open_table(path).read()
    assert frame.astype(float).to_dict("list") == {"a": [1, 2], "b": [5, 6]}


def test_cells_of_several_types_are_texts(tmp_path: Path) -> None:
    rows = [
        ["m", "d", "t", "e"],
        [1.234, datetime.date(2024, 3, 1), True, "#DIV/0!"],
        ["NA", "soon", "x", 1.5],
    ]
    frame = open_table(book(tmp_path / "a.xlsx", rows)).read()
    # 1.234 with a further 0: no text beside it makes a thousand of it.
    assert frame.iloc[0].tolist() == ["1.2340", "2024-03-01", "true", "#DIV/0!"]


def test_without_openpyxl_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = book(tmp_path / "a.xlsx", ROWS)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match=r"needs openpyxl.*pip install '\.\[sheets\]'"):
        open_table(path)


# folders


def test_a_folder_is_one_table(tmp_path: Path) -> None:
    frame = typed(30)
    for name in ("csv", "parquet", "xlsx"):
        folder = tmp_path / name
        folder.mkdir()
        write(frame[:10], folder / f"1.{name}")
        write(frame[10:10], folder / f"2.{name}")
        write(frame[10:][frame.columns[::-1]], folder / f"3.{name}")
        (folder / "_SUCCESS").write_text("")
        (folder / ".hidden").write_text("")
        table = open_table(folder)
        chunks = list(table.chunks(7))
        assert pd.concat(chunks).index.tolist() == list(range(30))
        read = table.read()
        assert list(read.columns) == list(frame.columns)
        assert read["town"].tolist() == frame["town"].tolist()
        assert read["price"].astype(float).tolist() == frame["price"].tolist()
        model = fit_table(read, FitOptions("price", estimator=TINY)).model
        score_file(model, table, tmp_path / f"{name}.parquet", chunk_rows=7)
        assert len(pd.read_parquet(tmp_path / f"{name}.parquet")) == 30


def test_a_file_of_a_folder_that_differs_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a,c\n1,2\n")
    with pytest.raises(
        ValueError, match=r"2\.csv must have the columns of 1\.csv: it lacks 'b'; it has also 'c'"
    ):
        open_table(tmp_path)
    (tmp_path / "2.csv").write_text("b;a\n1;2\n")
    assert open_table(tmp_path).read().to_numpy().tolist() == [["1", "2"], ["2", "1"]]
    (tmp_path / "2.csv").write_text("a,b\n1\n")
    with pytest.raises(ValueError, match=r"2\.csv: row 1 does not have 2 cells"):
        open_table(tmp_path).read()
    (tmp_path / "2.csv").unlink()
    pd.DataFrame({"a": [1], "b": [2]}).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"2\.parquet must be typed or text, as 1\.csv is"):
        open_table(tmp_path)
    (tmp_path / "1.csv").unlink()
    pd.DataFrame({"a": ["x"], "b": [2.5]}).to_parquet(tmp_path / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet: column 'a' must be int64, as in 2\.parquet"):
        open_table(tmp_path)
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(ValueError, match=r"tables and nothing else; got 'notes\.md'"):
        open_table(tmp_path)
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="got none"):
        open_table(tmp_path / "void")


# pipes


@pytest.mark.parametrize(
    "name",
    ["a.csv", "german-cp1252.csv", "a.csv.zst", "a.csv.gz", "a.parquet", "a.feather", "a.xlsx", "a.ods"],
)
def test_standard_input_may_be_any_format(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(typed(20), tmp_path / name)

    class Pipe:
        buffer = io.BytesIO(path.read_bytes())

    monkeypatch.setattr("sys.stdin", Pipe)
    table = open_table("-")
    assert str(table.path) == "standard input"
    pd.testing.assert_frame_equal(table.read(), open_table(path).read())
    assert len(list(table.chunks(7))) == 3


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"', "sep=|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_first_line_that_names_the_separator_is_no_row(first: str, encoding: str, tmp_path: Path) -> None:
    mark = first.strip('"')[-1]
    path = tmp_path / "excel.csv"
    path.write_text(f"{first}\r\nä,b{mark}c\r\n1,5{mark}2\r\n", encoding=encoding, newline="")
    table = open_table(path)
    assert (table.names, table.separator) == (("ä,b", "c"), mark)
    assert table.read().to_numpy().tolist() == [["1,5", "2"]]
    with gzip.open(tmp_path / "excel.csv.gz", "wb") as file:
        file.write(path.read_bytes())
    assert open_table(tmp_path / "excel.csv.gz").names == table.names
    path.write_text(first)
    assert open_table(path).read().empty


@pytest.mark.parametrize(
    "text",
    ["Sales of 2024\na;b;c\n1;2;3\n4;5;6\n", "Sales,,\na,b,c\n1,2,3\n4,5,6\n", "Sales\n\na\tb\n1\t2\n"],
)
def test_a_title_above_the_header_is_told_of(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    (note,) = open_table(tmp_path / "a.csv").notes
    assert "the first line is 'Sales" in note
    assert "Is the header the first line?" in note


@pytest.mark.parametrize(
    "text", ["note\ngood; but slow\nbad\n", "a,b\n1,2\n3,4\n", ",a\n0,1\n1,2\n", "a\n1\n2\n"]
)
def test_a_header_is_not_taken_for_a_title(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert open_table(tmp_path / "a.csv").notes == ()


def test_where_the_header_is_missing_or_not_first_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Sales\na,b\n1,2\n")
    with pytest.raises(
        ValueError, match=r"row 1 does not have 1 cell, .* but 2. Is the header the first line"
    ):
        open_table(tmp_path / "a.csv").read()
    (tmp_path / "b.csv").write_text("1.5,2,1.5\n1,2,3\n")
    with pytest.raises(ValueError, match=r"more than one is called '1.5'. Is there a header"):
        open_table(tmp_path / "b.csv")
    pd.DataFrame([["Sales", None], ["a", "b"], [1, 2]]).to_excel(
        tmp_path / "a.xlsx", header=False, index=False
    )
    with pytest.raises(ValueError, match=r"beside the columns .* Is the header the first row"):
        open_table(tmp_path / "a.xlsx")
    (tmp_path / "c.csv").write_text("1.5,2,-1\n1,2,3\n")
    assert (
        "names of its columns are numbers, 1.5, 2, -1 ... Is there" in open_table(tmp_path / "c.csv").notes[0]
    )


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("a.csv", bytes(range(256)) * 8, "not look like text of any other kind. Is it another kind of file?"),
        ("a.csv", "ä,b\n1,2\n".encode("utf-16-le") * 9, "Is it UTF-16? Say so with --encoding utf-16-le."),
        ("a.csv", b"<!DOCTYPE html>\n<html>\n", "must be a table; it looks like a web page"),
        ("a.csv", b'<?xml version="1.0"?>\n', "must be a table; it looks like XML"),
        ("a.csv", b'[{"a": 1}, {"a": 2}]', "must be a table; it looks like JSON"),
        ("a.csv", b'{\n "a": 1}', "must be a table; it looks like JSON"),
        ("a.xls", b"\xd0\xcf\x11\xe0", "a.xls'. Save it as .xlsx first."),
    ],
)
def test_what_is_no_table_is_refused_by_what_it_seems_to_be(
    name: str, data: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        open_table(tmp_path / name)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_table(tmp_path / "patients")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="must be a file or a folder; hand over what a program writes as -"):
        open_table(tmp_path / "pipe.csv")
