"""`bayesdrop fit`, `predict`, `evaluate`: what they write, what they say, how they refuse."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import parquet
from typer.testing import CliRunner

from bayesdrop.cli import build_app, main
from bayesdrop.tables import load_table_model

SMALL = ("--preset", "quick", "--hidden", "12", "--epochs", "8", "--draws", "20")


def invoke(*arguments: str | Path) -> Any:
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(build_app(), words, env={"COLUMNS": "200", "NO_COLOR": "1"})


def houses(rows: int = 240, seed: int = 0) -> Any:
    source = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": source.uniform(30, 200, rows).round(1),
            "town": source.choice(["Ahome", "Bford", "Cton"], rows),
            "garden": source.random(rows) > 0.5,
            "void": np.nan,
        }
    )
    noise = source.normal(size=rows) * (5 + 0.1 * frame["size"])
    frame["price"] = (2 * frame["size"] + 40 * (frame["town"] == "Ahome") + noise).round(2)
    frame.loc[::11, "size"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and a model of each task."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("tables")
    frame = houses()
    frame.to_csv(path / "houses.csv", index=False)
    frame.to_parquet(path / "houses.parquet")
    houses(60, seed=1).to_csv(path / "new.csv", index=False)
    dear = frame.assign(price=np.where(frame["price"] > 240, "dear", "cheap"))
    dear.to_csv(path / "classes.csv", index=False)
    for source, model in (("houses.csv", "model"), ("classes.csv", "class-model")):
        result = invoke("fit", path / source, "--target", "price", "-o", path / model, *SMALL)
        assert result.exit_code == 0, result.output
        (path / f"{model}.txt").write_text(result.stdout)
    return path


def test_fit_says_every_choice_and_writes_a_folder(folder: Path) -> None:
    said = (folder / "model.txt").read_text()
    for piece in (
        "Target price: regression",
        "void    left out: all cells are missing",
        "size    numeric: ",
        "missing cells are filled with",
        "town    category: 3 categories",
        "garden  boolean",
        "each network holds out a part",
        "Targets inside their interval",
        "RMSE of those that stay",
    ):
        assert piece in said
    names = {"table.json", "schema.json", "report.html"}
    names |= {f"{name}.safetensors" for name in ("model", "held-out", "training-rows")}
    assert {path.name for path in (folder / "model").iterdir()} == names
    assert "classification, it is text" in (folder / "class-model.txt").read_text()
    about = json.loads((folder / "model" / "table.json").read_text())["about"]
    assert (about["rows_fitted"], about["rows_held_out"], about["refitted_to_all_rows"]) == (240, 96, False)


@pytest.mark.parametrize("model", ["model", "class-model"])
def test_the_report_holds_everything_itself(model: str, folder: Path) -> None:
    page = (folder / model / "report.html").read_text()
    titles = re.findall(r"<h[23]>([^<]*)</h[23]>", page)
    order = [
        "In short",
        "Measures",
        "Can its uncertainty be trusted?",
        "Worst-calibrated slices",
        "Rows for a person",
        "What the model uses",
        "How predictions depend on the columns",
        "Most uncertain rows",
        "Drop rates",
        "Columns",
    ]
    assert [title for title in titles if title in order] == order
    # Four of numbers or three of labels, importance, and the dependence on three columns.
    assert len(re.findall(r"<svg ", page)) == (8 if model == "model" else 7)
    assert not re.search(r"https?://|<script|<link|<img|url\(http", page)
    assert len(page.encode()) < 500_000


def test_predict_adds_columns_and_changes_nothing_else(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "scored.csv"
    result = invoke("predict", folder / "model", folder / "new.csv", "-o", output)
    assert result.exit_code == 0, result.output
    assert "60 rows scored" in result.stdout
    assert list(tmp_path.iterdir()) == [output]
    given = pd.read_csv(folder / "new.csv", dtype=str, na_filter=False)
    scored = pd.read_csv(output, dtype=str, na_filter=False)
    pd.testing.assert_frame_equal(scored[given.columns], given)
    numbers = pd.read_csv(output)
    added = ["mean", "std", "epistemic", "aleatoric", "lower", "upper", "defer", "reason"]
    assert list(numbers.columns[-8:]) == added
    assert (numbers["reason"].notna() == numbers["defer"]).all()
    np.testing.assert_allclose(numbers["std"] ** 2, numbers["epistemic"] + numbers["aleatoric"])
    assert ((numbers["lower"] < numbers["mean"]) & (numbers["mean"] < numbers["upper"])).all()
    threshold = load_table_model(folder / "model").deferral().threshold
    assert (numbers["defer"] == (numbers["std"] > threshold)).all()


def test_chunks_and_formats_give_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    names = ["mean", "std", "lower", "upper"]
    tables = []
    for source, target, rows in (
        ("houses.csv", "a.csv", 1000),
        ("houses.csv", "b.parquet", 37),
        ("houses.parquet", "c.parquet", 100),
    ):
        arguments = ("-o", tmp_path / target, "--chunk-rows", rows, "-q")
        result = invoke("predict", folder / "model", folder / source, *arguments)
        assert result.stdout.strip() == str((tmp_path / target).resolve())
        read = pd.read_csv if target.endswith("csv") else pd.read_parquet
        tables.append(read(tmp_path / target))
    for table in tables[1:]:
        np.testing.assert_allclose(table[names].astype(float), tables[0][names], rtol=1e-5)
    typed = parquet.read_table(folder / "houses.parquet")
    assert parquet.read_table(tmp_path / "c.parquet").select(typed.column_names).equals(typed)


def test_classes_have_probabilities_that_sum_to_one(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "scored.csv"
    result = invoke(
        "predict", folder / "class-model", folder / "classes.csv", "-o", output, "--defer-share", "0.2"
    )
    assert result.exit_code == 0, result.output
    scored = pd.read_csv(output)
    np.testing.assert_allclose(scored["p_cheap"] + scored["p_dear"], 1)
    assert (scored["label"] == np.where(scored["p_dear"] > 0.5, "dear", "cheap")).all()
    assert (scored["entropy"] >= scored["mutual_information"]).all()
    assert 0 < scored["defer"].mean() < 0.6
    assert scored.loc[scored["defer"], "entropy"].min() > scored.loc[~scored["defer"], "entropy"].max()


def test_a_higher_level_gives_wider_intervals(folder: Path, tmp_path: Path) -> None:
    widths = []
    for level in ("0.5", "0.8", "0.999"):
        output = tmp_path / f"{level}.csv"
        assert (
            invoke("predict", folder / "model", folder / "new.csv", "-o", output, "--level", level).exit_code
            == 0
        )
        scored = pd.read_csv(output)
        widths.append((scored["upper"] - scored["lower"]).mean())
    assert widths[0] < widths[1] < widths[2] < np.inf


def test_unseen_categories_are_said_and_deferred(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "new.csv").assign(note="passed through")
    frame.loc[3, "town"] = "Zville"
    frame.drop(columns=["price", "void"]).to_csv(tmp_path / "in.csv", index=False)
    result = invoke("predict", folder / "model", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert "Column town: 1 cell holds a category that is new; its row is deferred." in result.stdout
    assert "passed through: note" in result.stdout
    assert pd.read_csv(tmp_path / "out.csv")["defer"][3]


def test_evaluate_measures_and_reports(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    result = invoke("evaluate", folder / "model", folder / "new.csv", "--json", "--report", report)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    scored = tmp_path / "scored.csv"
    invoke("predict", folder / "model", folder / "new.csv", "-o", scored)
    table = pd.read_csv(scored)
    assert found["rmse"] == pytest.approx(np.sqrt(((table["mean"] - table["price"]) ** 2).mean()))
    inside = (table["lower"] <= table["price"]) & (table["price"] <= table["upper"])
    assert found["coverage"] == pytest.approx(inside.mean())
    assert found["deferral"]["deferred"] == table["defer"].sum()
    assert "<h2>Measures</h2>" in report.read_text()
    shown = invoke("evaluate", folder / "class-model", folder / "classes.csv")
    assert "Accuracy" in shown.stdout
    again = invoke("evaluate", folder / "model", folder / "new.csv", "--report", report)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)


def test_baselines_are_fitted_once_and_stand_in_the_first_table(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bayesdrop.tables import findings

    fitted = []
    original = findings.fit_baselines
    monkeypatch.setattr(
        findings, "fit_baselines", lambda *given, **options: fitted.append(1) or original(*given, **options)
    )
    words = ("-t", "price", "-o", tmp_path / "model", *SMALL)
    assert invoke("fit", folder / "houses.csv", *words).exit_code == 0
    assert len(fitted) == 1
    page = (tmp_path / "model" / "report.html").read_text()
    first = page[page.index("<table>") : page.index("</table>")]
    for name in ("this model", "mean of the target", "ridge regression", "gradient boosting"):
        assert f">{name}</td>" in first
    result = invoke(
        "evaluate", folder / "model", folder / "new.csv", "--json", "--report", tmp_path / "r.html"
    )
    assert len(fitted) == 2
    assert set(json.loads(result.stdout)["baselines"]) == {
        "mean of the target",
        "ridge regression",
        "gradient boosting",
    }


def test_explain_says_why_and_writes_a_page(folder: Path, tmp_path: Path) -> None:
    frame = houses(60, seed=1)
    frame.loc[4, "size"] = 5000
    frame.to_csv(tmp_path / "in.csv", index=False)
    words = ("explain", folder / "model", tmp_path / "in.csv", "--row", "5")
    result = invoke(*words, "-o", tmp_path / "why.html")
    assert result.exit_code == 0, result.output
    assert "Outside what was learned: size = 5000, seen" in result.stdout
    assert "It goes to a person." in result.stdout
    assert "The nearest training rows:" in result.stdout
    page = (tmp_path / "why.html").read_text()
    assert "<h2>What each cell adds</h2>" in page
    # Columns go down, this row and its neighbours stand side by side.
    assert re.search(r"<th>column</th><th>this row</th>(<th>row \d+</th>){5}", page)
    assert re.search(r'<td class="key">size</td><td[^>]*>5000</td>', page)
    again = invoke(*words, "-o", tmp_path / "why.html")
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    found = json.loads(invoke(*words, "--json").stdout)
    invoke("predict", folder / "model", tmp_path / "in.csv", "-o", tmp_path / "scored.csv")
    scored = pd.read_csv(tmp_path / "scored.csv").iloc[4]
    # One row and sixty are summed in another order.
    assert found["epistemic"] == pytest.approx(scored["epistemic"], rel=1e-4)
    assert found["prediction"]["mean"] == pytest.approx(scored["mean"], rel=1e-5)
    labels = invoke("explain", folder / "class-model", folder / "classes.csv")
    assert "Row 1: price is" in labels.stdout
    for arguments, sentence in (
        (("--row", "61"), "has 60 rows; got 61"),
        (("-o", tmp_path / "why.pdf"), "must end in .html"),
        (("--data", tmp_path / "none.csv"), "none.csv"),
    ):
        refused = invoke("explain", folder / "model", tmp_path / "in.csv", *arguments)
        assert (refused.exit_code, sentence in refused.stderr) == (2, True), refused.output


def test_a_folder_without_rows_explains_with_a_table(folder: Path, tmp_path: Path) -> None:
    """Whoever must not pass rows on keeps none, or deletes the file; nothing else is lost."""
    none = tmp_path / "none"
    result = invoke("fit", folder / "houses.csv", "-t", "price", "-o", none, *SMALL, "--keep-rows", "0")
    assert result.exit_code == 0, result.output
    assert "gradient boosting" in (none / "report.html").read_text()
    deleted = tmp_path / "deleted"
    shutil.copytree(folder / "model", deleted)
    (deleted / "training-rows.safetensors").unlink()
    whole = invoke("explain", folder / "model", folder / "new.csv", "--json")
    for model in (none, deleted):
        assert not (model / "training-rows.safetensors").exists()
        refused = invoke("explain", model, folder / "new.csv")
        assert (refused.exit_code, "--data train.csv" in refused.stderr) == (2, True)
        told = invoke("explain", model, folder / "new.csv", "--data", folder / "houses.csv", "--json")
        assert told.exit_code == 0, told.output
        found, kept = json.loads(told.stdout), json.loads(whole.stdout)
        assert found["prediction"] == kept["prediction"]
        assert found["nearest"][0]["distance"] <= kept["nearest"][0]["distance"]
        assert invoke("evaluate", model, folder / "new.csv").exit_code == 0


def test_groups_are_told_of_and_refused_where_there_are_none(folder: Path, tmp_path: Path) -> None:
    asked = ("fit", folder / "houses.csv", "-t", "price", *SMALL)
    result = invoke(*asked, "-o", tmp_path / "model", "--groups", "town")
    assert result.exit_code == 0, result.output
    assert "town    left out" in result.stdout
    assert "Rows of one town were held out together." in (tmp_path / "model" / "report.html").read_text()
    refused = invoke(*asked, "-o", tmp_path / "other", "--groups", "twon")
    assert (refused.exit_code, "Did you mean 'town'" in refused.stderr) == (2, True)


def test_kept_rows_are_rows_of_the_table_and_no_others(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "houses.csv")
    output = tmp_path / "model"
    invoke("fit", folder / "houses.csv", "-t", "price", "-o", output, *SMALL, "--keep-rows", "30")
    model = load_table_model(output)
    assert model.rows is not None
    assert (len(model.rows), model.rows.of) == (30, 240)
    at = model.rows.numbers.astype(int) - 1
    np.testing.assert_array_equal(model.rows.y, frame["price"].iloc[at])
    sizes = frame["size"].iloc[at].to_numpy()
    np.testing.assert_array_equal(model.rows.x[~np.isnan(sizes), 0], sizes[~np.isnan(sizes)])
    path = output / "training-rows.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    result = invoke("predict", output, folder / "new.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 2
    assert "training-rows.safetensors is not as it was written" in result.stderr


def test_a_refit_learns_from_all_rows_and_says_so(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    result = invoke(
        "fit", folder / "houses.csv", "-t", "price", "-o", output, *SMALL, "--refit", "--method", "concrete"
    )
    assert result.exit_code == 0, result.output
    assert "to all rows" in result.stdout
    report = (output / "report.html").read_text()
    assert "fitted once more, to all rows" in report
    assert "These rates were learned." in report
    assert load_table_model(output).about["refitted_to_all_rows"]


def test_nothing_is_overwritten_without_force(folder: Path, tmp_path: Path) -> None:
    taken = tmp_path / "scored.csv"
    taken.write_text("mine")
    result = invoke("predict", folder / "model", folder / "new.csv", "-o", taken)
    assert (result.exit_code, taken.read_text()) == (2, "mine")
    assert "--force" in result.stderr
    assert invoke("predict", folder / "model", folder / "new.csv", "-o", taken, "--force").exit_code == 0
    assert taken.read_text().startswith("size,")
    model = tmp_path / "model"
    shutil.copytree(folder / "model", model)
    before = (model / "table.json").read_bytes()
    result = invoke("fit", folder / "houses.csv", "-t", "price", "-o", model, *SMALL)
    assert (result.exit_code, (model / "table.json").read_bytes()) == (2, before)
    (model / "notes.txt").write_text("mine")
    result = invoke("fit", folder / "houses.csv", "-t", "price", "-o", model, *SMALL, "--force")
    assert result.exit_code == 2
    assert "notes.txt" in result.stderr
    (model / "notes.txt").unlink()
    result = invoke(
        "fit", folder / "houses.csv", "-t", "price", "-o", model, *SMALL, "--force", "--seed", "1", "-q"
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{(model / 'report.html').resolve()}\n"
    assert (model / "table.json").read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "scored.csv"]


BAD_TABLES = {
    "no target": (lambda f: f.drop(columns="price"), "there is no column 'price'"),
    "empty target": (lambda f: f.assign(price=""), "at least 10 rows with a target; got 0 of 240"),
    "constant target": (lambda f: f.assign(price=3), "must vary"),
    "no rows": (lambda f: f.iloc[:0], "at least 10 rows with a target; got 0"),
    "one row": (lambda f: f.iloc[:1], "at least 10 rows with a target; got 1"),
    "void columns": (lambda f: f[["void", "price"]], "all cells are missing"),
    "text in numbers": (
        lambda f: f.assign(size=[*f["size"][:-1], "big"]),
        "is numbers but for 'big' in row 240",
    ),
    "twice a name": (lambda f: f.set_axis(["size", "size", "garden", "void", "price"], axis=1), "'size'"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_table_that_cannot_be_fitted_is_refused(name: str, tmp_path: Path) -> None:
    change, sentence = BAD_TABLES[name]
    change(houses()).to_csv(tmp_path / "bad.csv", index=False)
    result = invoke("fit", tmp_path / "bad.csv", "--target", "price", "-o", tmp_path / "model", *SMALL)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.drop(columns=["size", "town"]), "columns 'size', 'town' must be there"),
        (lambda f: f.rename(columns={"size": "Size"}), "The model does not know column 'Size'"),
        (lambda f: f.assign(size="big"), "column 'size' must be numbers; got 'big' in row 1"),
        (lambda f: f.assign(garden="maybe"), "column 'garden' must be true or false"),
        (lambda f: f.assign(mean=1), "--prefix"),
    ],
)
def test_a_table_that_does_not_match_is_refused(
    change: Any, sentence: str, folder: Path, tmp_path: Path
) -> None:
    change(houses(30)).to_csv(tmp_path / "in.csv", index=False)
    result = invoke("predict", folder / "model", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_bad_cell_far_down_leaves_no_half_file(folder: Path, tmp_path: Path) -> None:
    frame = houses(60).astype({"size": object})
    frame.loc[55, "size"] = "big"
    frame.to_csv(tmp_path / "in.csv", index=False)
    for name in ("out.csv", "out.parquet"):
        arguments = ("-o", tmp_path / name, "--chunk-rows", 10)
        result = invoke("predict", folder / "model", tmp_path / "in.csv", *arguments)
        assert result.exit_code == 2
        assert "row 56" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_table_without_rows_is_scored_to_one_without_rows(folder: Path, tmp_path: Path) -> None:
    houses(30).iloc[:0].to_csv(tmp_path / "in.csv", index=False)
    result = invoke("predict", folder / "model", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "out.csv").shape == (0, 13)
    result = invoke("evaluate", folder / "model", tmp_path / "in.csv")
    assert (result.exit_code, "must have a row" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["table.json", "schema.json", "model.safetensors", "held-out.safetensors"])
def test_a_folder_that_is_not_whole_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(folder / "model", model)
    whole = (model / name).read_bytes()
    for change, word in (
        (lambda: (model / name).write_bytes(whole[:-20]), "damaged"),
        ((model / name).unlink, "missing"),
    ):
        change()
        result = invoke("predict", model, folder / "new.csv", "-o", tmp_path / "out.csv")
        assert result.exit_code == 2
        assert word in result.stderr
        assert name in result.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--task", "ranking"), "auto, regression or classification"),
        (("--held-out", "1.5"), "held_out"),
        (("--level", "95"), "level"),
        (("--defer-share", "0.1", "--defer-error", "3"), "not both"),
        (("--defer-by", "entropy"), "one of std"),
        (("--hidden", "wide"), "--hidden"),
        (("--method", "magic"), "magic"),
        (("--ignore", "rooms"), "there is no column 'rooms'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: tuple[str, ...], sentence: str, folder: Path, tmp_path: Path
) -> None:
    result = invoke("fit", folder / "houses.csv", "-t", "price", "-o", tmp_path / "model", *SMALL, *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_other_folders_are_not_models(folder: Path, tmp_path: Path) -> None:
    for place, sentence in ((tmp_path / "none", "does not exist"), (tmp_path, "table.json is missing")):
        result = invoke("predict", place, folder / "new.csv", "-o", tmp_path / "out.csv")
        assert (result.exit_code, sentence in result.stderr) == (2, True)


def test_a_missing_extra_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    words = ["bayesdrop", "fit", str(folder / "houses.csv"), "-t", "price", "-o", str(tmp_path / "model")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "pip install '.[plot]'" in capsys.readouterr().err


# what comes from outside


STOPPED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Stop(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), number)

module, number = sys.argv[1], getattr(signal, sys.argv[2])
del sys.argv[1:3]
sys.meta_path.insert(0, Stop())
from bayesdrop.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "number", "code"),
    [
        ("typer", "SIGINT", 130),
        ("typer", "SIGTERM", 143),
        ("torch", "SIGINT", 130),
        ("pandas", "SIGTERM", 143),
    ],
)
def test_a_stop_while_importing_is_a_sentence(
    module: str, number: str, code: int, folder: Path, tmp_path: Path
) -> None:
    words = ["fit", str(folder / "houses.csv"), "-t", "price", "-o", str(tmp_path / "model"), *SMALL]
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, module, number, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (code, [])
    assert done.stderr in ("Stopped.\n", "Stopped; nothing was written.\n")


HALFWAY = """
import os, signal, sys
from bayesdrop.tables import score
original, calls, number = score.predict_frame, [], getattr(signal, sys.argv.pop())

def stop(*given, **options):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), number)
    return original(*given, **options)

score.predict_frame = stop
from bayesdrop.cli import main
main()
"""


@pytest.mark.parametrize(
    ("name", "number", "code"), [("out.csv.gz", "SIGTERM", 143), ("out.parquet", "SIGINT", 130)]
)
def test_a_stop_halfway_leaves_nothing(
    name: str, number: str, code: int, folder: Path, tmp_path: Path
) -> None:
    words = ["predict", str(folder / "model"), str(folder / "new.csv"), "-o", str(tmp_path / name)]
    done = subprocess.run(
        [sys.executable, "-c", HALFWAY, *words, "--chunk-rows", "10", number],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "Stopped; nothing was written.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bayesdrop.tables.writing._Lines.write", full)
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    result = invoke("predict", folder / "model", folder / "new.csv", "-o", tmp_path / name)
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write in")
def test_a_folder_that_cannot_be_written_is_found_before_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise AssertionError("the table was fitted or scored before the folder was tried")

    monkeypatch.setattr("bayesdrop.tables.fit_table", refuse)
    monkeypatch.setattr("bayesdrop.tables.score.predict_frame", refuse)
    for words in (
        ("fit", folder / "houses.csv", "-t", "price", "-o", "/proc/self/model"),
        ("predict", folder / "model", folder / "new.csv", "-o", "/proc/self/out.csv"),
    ):
        result = invoke(*words)
        assert result.exit_code == 2
        assert "cannot be written in the folder /proc/" in result.stderr


def test_a_link_stays_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "scored.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real" / "scored.csv")
    result = invoke("predict", folder / "model", folder / "new.csv", "-o", link, "--force")
    assert result.exit_code == 0, result.output
    assert link.is_symlink()
    assert (tmp_path / "real" / "scored.csv").read_text().startswith("size,")
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["scored.csv"]


def test_names_of_a_table_give_no_orders_to_the_terminal(folder: Path, tmp_path: Path) -> None:
    frame = houses(60).rename(columns={"size": "size\x1b[31m"})
    frame.to_csv(tmp_path / "in.csv", index=False)
    result = invoke("fit", tmp_path / "in.csv", "-t", "price", "-o", tmp_path / "model", *SMALL)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "size\\x1b[31m" in result.output
    result = invoke("predict", folder / "model", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
