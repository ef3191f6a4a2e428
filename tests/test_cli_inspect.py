"""`bayesdrop inspect`, and the options by which tables of any spelling and format are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from bayesdrop.cli import build_app
from bayesdrop.cli.schema_table import print_schema
from bayesdrop.tables import load_table_model

SMALL = ("--preset", "quick", "--hidden", "6", "--epochs", "2", "--draws", "8")


def invoke(*arguments: str | Path, data: bytes | None = None) -> Any:
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(build_app(), words, input=data, env={"COLUMNS": "200", "NO_COLOR": "1"})


def flats(rows: int = 60) -> Any:
    source = np.random.default_rng(0)
    size = source.uniform(30, 200, rows).round(1)
    day = pd.Timestamp("2023-01-01") + pd.to_timedelta(source.integers(0, 300, rows), unit="D")
    price = (1000 * size + source.normal(size=rows) * 500).round(2)
    return pd.DataFrame({"number": np.arange(rows), "size": size, "day": day, "price": price})


def german(frame: Any) -> bytes:
    def number(value: float) -> str:
        return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))

    rows = ["number;Größe;day;price"]
    for row in frame.itertuples(index=False):
        rows.append(f"{row.number};{number(row.size)};{row.day:%d.%m.%Y};{number(row.price)}")
    return "\n".join(rows).encode("cp1252")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("inspect")
    (path / "german.csv").write_bytes(german(flats()))
    flats().rename(columns={"size": "Größe"}).to_excel(path / "flats.xlsx", index=False)
    result = invoke("fit", path / "german.csv", "-t", "price", "-o", path / "model", *SMALL)
    assert result.exit_code == 0, result.output
    (path / "fit.txt").write_text(result.stdout)
    return path


def test_a_fit_tells_how_it_read_the_table(folder: Path) -> None:
    said = (folder / "fit.txt").read_text()
    for piece in (
        "is not UTF-8; it is read as Windows-1252 (cp1252). If that is wrong: --encoding.",
        "Target price: regression, it has 60 different numbers, written as 1.234,5.",
        "number  left out: a running number, 0 to 59; to use it: --keep",
        "written as 1234,5",
        "day     date: 2023-0",
        "written as 31.03.2024",
    ):
        assert piece in said, said
    schema = json.loads((folder / "model" / "schema.json").read_text())
    assert [column["format"] for column in schema["columns"]] == ["", "1234,5", "31.03.2024"]
    assert schema["target_format"] == "1.234,5"


def test_a_model_scores_other_formats_and_spellings(folder: Path, tmp_path: Path) -> None:
    plain = flats().rename(columns={"size": "Größe"})
    plain.to_csv(tmp_path / "plain.csv", index=False)
    means = []
    for number, (source, options) in enumerate(
        [
            (folder / "german.csv", ()),
            (folder / "flats.xlsx", ("--sheet", "1")),
            (tmp_path / "plain.csv", ("--numbers", "1234.5")),
        ]
    ):
        output = tmp_path / f"{number}.parquet"
        result = invoke("predict", folder / "model", source, "-o", output, *options)
        assert result.exit_code == 0, result.output
        means.append(pd.read_parquet(output)["mean"].tolist())
        result = invoke("evaluate", folder / "model", source, "--json", *options)
        assert result.exit_code == 0, result.output
        means[-1].append(json.loads(result.stdout)["rmse"])
    assert means[0] == means[1] == means[2]
    result = invoke("predict", folder / "model", tmp_path / "plain.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 2
    assert "must be numbers written as 1234,5; got '" in result.stderr
    assert "If they are written in another way: --numbers." in result.stderr
    assert not (tmp_path / "out.csv").exists()


def test_a_terminal_gets_a_table(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_schema(load_table_model(folder / "model").schema)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["column", "kind", "written", "as", "inputs", "what", "becomes", "of", "it"]
    assert lines[3][:4] == ["Größe", "numeric", "1234,5", "1"]
    assert lines[4][:4] == ["day", "date", "31.03.2024", "5"]


def test_a_pipe_is_a_table(folder: Path, tmp_path: Path) -> None:
    data = (folder / "german.csv").read_bytes()
    result = invoke("predict", folder / "model", "-", "-o", tmp_path / "a.csv", data=data)
    assert result.exit_code == 0, result.output
    assert "standard input is not UTF-8" in result.stdout
    again = invoke("predict", folder / "model", folder / "german.csv", "-o", tmp_path / "b.csv")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    result = invoke("predict", folder / "model", "-", "-o", tmp_path / "a.csv", "--force", data=data)
    assert result.exit_code == 0, result.output
    result = invoke("predict", folder / "model", "-", "-o", tmp_path / "c.csv", data=b"")
    assert (result.exit_code, "standard input is empty" in result.stderr) == (2, True)


def test_inspect_shows_and_saves(folder: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    result = invoke("inspect", folder / "german.csv", "--target", "price", "--save", schema)
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert lines["Größe"].split()[1:3] == ["numeric", "1234,5"]
    assert lines["day"].split()[1:3] == ["date", "31.03.2024"]
    assert lines["number"].split()[1:3] == ["left", "out"]
    assert "regression: it has 60 different numbers" in lines["price"]
    assert "cells separated by ';'" in result.stdout
    state = json.loads(schema.read_text(encoding="utf-8"))
    assert (state["target"], state["task"], state["target_format"]) == ("price", "regression", "1.234,5")
    again = invoke("inspect", folder / "german.csv", "--save", schema)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    state["columns"][0] = {"name": "number", "kind": "numeric"}
    schema.write_text(json.dumps(state))
    words = ("-t", "price", "-o", tmp_path / "model", "--schema", schema, *SMALL)
    result = invoke("fit", folder / "german.csv", *words)
    assert result.exit_code == 0, result.output
    kinds = [column.kind for column in load_table_model(tmp_path / "model").schema.columns]
    assert kinds == ["numeric", "numeric", "date"]
    state["columns"][1]["kid"] = "numeric"
    schema.write_text(json.dumps(state))
    result = invoke("fit", folder / "german.csv", *words, "--force")
    assert result.exit_code == 2
    assert "column 'Größe' has no field 'kid'. Did you mean 'kind'?" in result.stderr


def test_sizes_and_ranges_are_written_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("price\n7\n")
    assert "one.csv: 1 row, 1 column," in invoke("inspect", tmp_path / "one.csv").stdout
    source = np.random.default_rng(0)
    frame = pd.DataFrame({"price": source.integers(0, 40, 40) * 50_000 + 0.5, "year": 1990 + np.arange(40)})
    frame["size"] = source.normal(size=40) * 1e20
    frame.loc[3, "price"] = np.nan
    frame.to_csv(tmp_path / "large.csv", index=False)
    said = invoke("inspect", tmp_path / "large.csv").stdout
    assert re.search(r"1 missing cell is filled with \d,\d{3},\d{3} and marked", said), said
    assert "1990 to 2029" in said
    told = invoke("inspect", tmp_path / "large.csv", "-t", "year", "--task", "regression").stdout
    assert re.search(r"year +target +1234\.5 ", told), told
    assert re.search(r"-\S+ \u00d7 10²⁰ to \S+ \u00d7 10²⁰", said)


def test_inspect_prints_json_and_no_orders(folder: Path, tmp_path: Path) -> None:
    frame = flats().rename(columns={"size": "si\x1b[31mze", "day": "[red]day"})
    frame.to_csv(tmp_path / "a.csv", index=False)
    result = invoke("inspect", tmp_path / "a.csv")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "[red]day" in result.stdout
    found = json.loads(invoke("inspect", folder / "flats.xlsx", "--json").stdout)
    assert [column["kind"] for column in found["columns"]] == ["left out", "numeric", "date", "numeric"]
    assert [column["how"] for column in found["columns"]] == ["int64", "double", "date32[day]", "double"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--numbers", "1;5"), "--numbers must be one of 1234.5, 1,234.5,"),
        (("--dates", "day=2024"), "--dates must be one of 2024-03-31,"),
        (("--numbers", "prize=1.234,5"), "there is no column 'prize'. Did you mean 'price'?"),
        (("--keep", "numbr"), "there is no column 'numbr'. Did you mean 'number'?"),
        (("--task", "ranking"), "--task must be auto, regression or classification"),
        (("--sheet", "1"), "--sheet is for an .xlsx or .ods file only"),
        (("--schema", "nowhere.json"), "there is no file nowhere.json"),
        (("--encoding", "utf-8"), "the text must be UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], sentence: str, folder: Path) -> None:
    result = invoke("inspect", folder / "german.csv", *words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_a_file_that_may_not_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    result = invoke("inspect", tmp_path / "secret.csv")
    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path / 'secret.csv'}: permission denied.\n"
