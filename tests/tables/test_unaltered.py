"""Nothing altered: cells come back as they were, and what cannot be read is refused."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from bayesdrop.harmless import harmless_cell, visible
from bayesdrop.tables import FitOptions, TableModel, fit_table, open_table, score_file
from bayesdrop.tables.cells import as_labels, as_numbers, missing_cells
from bayesdrop.tables.evaluate import fit_evaluation
from bayesdrop.tables.schema import infer_column, infer_task

TINY = {"preset": "quick", "hidden": (6,), "epochs": 2, "num_draws": 8, "search": "none", "restarts": 1}


def fitted(x: Any, y: Any) -> TableModel:
    return fit_table(pd.DataFrame({"x": x, "y": y}), FitOptions("y", estimator=TINY)).model


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fitted(np.linspace(0, 1, 40), np.linspace(0, 3, 40) ** 2)


def written(model: TableModel, text: str | bytes, folder: Path, output: str = "out.csv") -> list[list[str]]:
    """A table as it is read, scored, and parsed by the csv module."""
    (folder / "in.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    score_file(model, open_table(folder / "in.csv"), folder / output)
    return list(csv.reader(io.StringIO((folder / output).read_bytes().decode(), newline="")))


CELLS = [
    "a\rb",
    "a\nb",
    "a\r\nb",
    'a"b',
    "a,b",
    " a ",
    "=1+1",
    "9007199254740993",
    "a\0b",
    "\u202e",
    "'",
    "007",
]


@pytest.mark.parametrize(("output", "separator"), [("a.tsv", "\t"), ("a.tsv.csv", ","), ("b.tsv.gz", "\t")])
def test_the_ending_of_a_file_says_what_separates_its_cells(
    model: TableModel, tmp_path: Path, output: str, separator: str
) -> None:
    (tmp_path / "in.csv").write_text("x,note\n0.5,a\n")
    score_file(model, open_table(tmp_path / "in.csv"), tmp_path / output)
    found = (tmp_path / output).read_bytes()
    header = (gzip.decompress(found) if output.endswith(".gz") else found).decode().splitlines()[0]
    assert header.split(separator)[:3] == ["x", "note", "mean"]


def test_cells_come_back_as_they_were(model: TableModel, tmp_path: Path) -> None:
    quoted = [f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in CELLS]
    text = " x ,note,\r\n" + "".join(f"0.5,{cell},7\r\n" for cell in quoted)
    rows = written(model, text, tmp_path)
    assert rows[0][:3] == [" x ", "note", ""]
    assert [row[1] for row in rows[1:]] == CELLS
    # By another road: pandas ends a row at a carriage return that is not in quotes.
    read = pd.read_csv(tmp_path / "out.csv", dtype=str, na_filter=False)
    assert len(read) == len(CELLS)
    assert read["note"][0] == "a\rb"


def test_blank_lines_of_one_column_are_rows(model: TableModel, tmp_path: Path) -> None:
    rows = written(model, "x\n0.5\n\n0.25\n\n", tmp_path)
    assert [row[0] for row in rows] == ["x", "0.5", "", "0.25", ""]
    assert [row[-2] for row in rows[1:]] == ["False", "True", "False", "True"]
    (tmp_path / "two.csv").write_text("x,y\n1,2\n\n3,4\n\n")
    assert len(open_table(tmp_path / "two.csv").read()) == 2


@pytest.mark.parametrize("row", ["1", "1,2,3", "1,2,", '"1'])
def test_rows_of_another_length_are_refused(row: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"a,b\n1,2\n\n{row}\n")
    with pytest.raises(ValueError, match=r"row 2 does not have 2 cells|cannot be told apart"):
        open_table(tmp_path / "t.csv").read()


def test_quotes_in_the_header_do_not_choose_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a,b,c";d\n1;2\n')
    table = open_table(tmp_path / "t.csv")
    assert (table.names, table.separator) == (("a,b,c", "d"), ";")
    with pytest.raises(ValueError, match="one character"):
        open_table(tmp_path / "t.csv", separator="::")


def test_a_header_with_a_nul_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a\0,b\n1,2\n")
    with pytest.raises(ValueError, match=r"names of columns must be text; got 'a\\x00'"):
        open_table(tmp_path / "t.csv")


@pytest.mark.parametrize("spoil", ["cut", "flip", "plain", "nothing"])
def test_a_gzip_file_that_is_damaged_is_refused(spoil: str, model: TableModel, tmp_path: Path) -> None:
    whole = gzip.compress(b"x,note\n" + b"".join(b"0.5,%d\n" % row for row in range(2000)))
    data = {
        "cut": whole[: len(whole) // 2],
        "flip": whole[:900] + bytes([whole[900] ^ 1]) + whole[901:],
        "plain": b"x,note\n1,2\n",
        "nothing": b"",
    }[spoil]
    (tmp_path / "in.csv.gz").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged|cells|empty|UTF-8|numbers"):
        score_file(model, open_table(tmp_path / "in.csv.gz"), tmp_path / "out.csv", chunk_rows=100)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv.gz"]


def test_a_nul_does_not_end_a_number() -> None:
    values, bad = as_numbers(pd.Series(["1\0", "2"]))
    assert bad.tolist() == [True, False]
    assert values[1] == 2


def test_whole_numbers_keep_their_digits(tmp_path: Path) -> None:
    large = [2**53 + place % 2 for place in range(40)]
    labels = as_labels(pd.Series(list(map(str, large))), numbers=True)
    assert set(labels) == {"9007199254740992", "9007199254740993"}
    typed = pa.array([2**64 - 1 - place % 2 for place in range(40)], pa.uint64())
    parquet.write_table(pa.table({"x": np.linspace(0, 1, 40), "y": typed}), tmp_path / "t.parquet")
    frame = open_table(tmp_path / "t.parquet").read()
    model = fit_table(frame, FitOptions("y", estimator=TINY)).model
    assert model.schema.classes == ("18446744073709551614", "18446744073709551615")
    score_file(model, open_table(tmp_path / "t.parquet"), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[1] for row in rows[1:]] == list(map(str, typed.to_pylist()))
    assert {row[2] for row in rows[1:]} <= set(model.schema.classes)


def test_nan_in_parquet_is_missing(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1.5, float("nan"), None, 2.5]), "half": pa.array([1, None, 2, 3])})
    parquet.write_table(table, tmp_path / "t.parquet")
    frame = open_table(tmp_path / "t.parquet").read()
    assert missing_cells(frame["x"]).tolist() == [False, True, True, False]
    assert infer_column(frame["x"]).why == "2 missing cells are filled with 2 and marked"


@pytest.mark.parametrize("typed", [True, False])
def test_an_infinite_target_is_called_infinite(typed: bool) -> None:
    cells = pd.Series([1.5, np.inf, *np.arange(20.0)], name="y")
    with pytest.raises(ValueError, match=r"must be finite numbers; got .*inf.* in row 2"):
        infer_task(cells if typed else cells.astype(str), (), "auto", len(cells))


def test_bytes_and_views_of_parquet_are_read(tmp_path: Path) -> None:
    columns = {"b": pa.array([b"\xff", b"a", None]), "v": pa.array(["x", None, "y"], pa.string_view())}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    frame = open_table(tmp_path / "t.parquet").read()
    assert as_labels(frame["b"]).tolist() == [r"b'\xff'", "b'a'", None]
    assert as_labels(frame["v"]).tolist() == ["x", None, "y"]


# what leaves the program


def test_labels_and_names_of_ours_are_no_formulas(tmp_path: Path) -> None:
    labels = ["=cmd|' /C calc'!A0", "\x1b[31mred", "-5", "@sum"] * 10
    model = fitted(np.linspace(0, 1, 40), labels)
    rows = written(model, "x,=own\n" + "0.5,=own\n" * 3, tmp_path)
    # Own cells and names are untouched; those that were added are harmless.
    assert [row[:2] for row in rows] == [["x", "=own"], *[["0.5", "=own"]] * 3]
    assert rows[0][3:7] == ["p_\\x1b[31mred", "p_-5", "p_=cmd|' /C calc'!A0", "p_@sum"]
    for row in rows[1:]:
        assert row[2] in {"'=cmd|' /C calc'!A0", "\\x1b[31mred", "-5", "'@sum"}
    assert "\x1b" not in (tmp_path / "out.csv").read_text()


def test_a_cell_is_harmless_and_a_number_stays_one() -> None:
    for text in ("=1", "+x", "-x", "@a", "\tx", "\rx", "\uff1d1"):
        assert harmless_cell(text).startswith("'")
    for text in ("-5", "+1.5e3", "-.5", "a=b", "", "p_=x", "two\nlines"):
        assert harmless_cell(text) == text


def test_a_terminal_is_given_no_orders() -> None:
    orders = "\x1b[2J \x9b31m \x07 \u202e \r\n\t \x7f"
    assert visible(orders) == "\\x1b[2J \\x9b31m \\x07 \\u202e \\r\\n\\t \\x7f"
    assert visible("Größe 日本 🦄") == "Größe 日本 🦄"


def test_the_report_holds_no_orders_and_no_markup(tmp_path: Path) -> None:
    frame = pd.DataFrame({"\x1b[31m<script>x": np.linspace(0, 1, 40), "<b>y": ["a", "\x1b]0;"] * 20})
    page = fit_evaluation(fit_table(frame, FitOptions("<b>y", estimator=TINY))).report("\x1b<i>")
    assert "\x1b" not in page
    assert "<script" not in page
    assert "\\x1b[31m&lt;script&gt;x" in page
