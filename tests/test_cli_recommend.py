"""`bayesdrop recommend`: from a table of choices to lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bayesdrop.cli import build_app
from bayesdrop.cli.recommend_report import why_chosen
from bayesdrop.recommend import MultVAE, blend


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"hidden": 16, "latent": 4, "epochs": 4, "lr": 1e-2, "batch_size": 50}
    monkeypatch.setattr(blend, "default_models", lambda items, seed: [MultVAE(**options)])


def write_choices(path: Path, users: int = 150) -> None:
    source = np.random.default_rng(0)
    rows = [
        (f"=user{user}", f"item {source.integers(2) + 2 * (user % 10)}-{source.integers(9)}", 5)
        for user in range(users)
        for _ in range(14)
    ]
    pd.DataFrame(rows, columns=["who", "what", "stars"]).to_csv(path, index=False)


@pytest.mark.usefixtures("small_models")
def test_from_a_table_to_lists(tmp_path: Path) -> None:
    app, runner = build_app(), CliRunner()
    data, model, lists = tmp_path / "ratings.csv", tmp_path / "model", tmp_path / "lists.csv"
    write_choices(data)
    columns = ["--user", "who", "--item", "what", "--rating", "stars", "--at-least", "4"]
    fitted = runner.invoke(app, ["recommend", "fit", str(data), *columns, "-o", str(model)])
    assert fitted.exit_code == 0, fitted.output
    assert "NDCG@" in fitted.output
    report = json.loads((model / "report.json").read_text())
    assert report["test_users"] == 15
    assert report["numbers"].keys() == report["most popular"]["numbers"].keys()
    for name in ("recall@20", "coverage@20", "novelty@20, bits", "popularity of lists"):
        assert name in report["numbers"]
    for shares in report["tenths"].values():
        assert sum(shares) == pytest.approx(1)
    assert report["why"].startswith("MultVAE (1.00) alone")
    assert report["search"][0]["chosen"]["score"] in ("mean", "draws")
    page = (model / "report.html").read_text()
    assert page.count("<svg ") == 2
    assert "http:" not in page
    assert "https:" not in page
    assert report["why"] in page
    assert f"{report['numbers']['recall@20']:.4f}" in page
    words = ["recommend", "for", str(model), str(data), *columns, "-k", "3", "-o", str(lists)]
    listed = runner.invoke(app, words)
    assert listed.exit_code == 0, listed.output
    found = pd.read_csv(lists)
    assert found.columns.tolist() == ["who", "rank", "what", "score", "spread"]
    assert len(found) == 450
    assert found["who"].str.startswith("'=user").all()
    chosen = pd.read_csv(data).groupby("who")["what"].agg(set)
    for user, part in found.groupby("who"):
        assert not set(part["what"]) & chosen[str(user).removeprefix("'")]
    again = runner.invoke(app, ["recommend", "evaluate", str(model), str(data), *columns, "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.output)["test_users"] == 150
    pd.DataFrame({"who": [1] * 9, "what": list("abcdefghi"), "stars": 5}).to_csv(data, index=False)
    strangers = runner.invoke(app, ["recommend", "evaluate", str(model), str(data), *columns])
    assert strangers.exit_code == 2
    assert "the model knows none of the 9 items" in strangers.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--user", "nobody", "--item", "what"], "must be a column of the table"),
        (["--user", "who", "--item", "what", "--at-least", "3"], "must be None without `rating`"),
        (["--user", "who", "--item", "what", "--rating", "what"], "is not a number in row 1"),
        (["--user", "stars", "--item", "what"], "there must be 100 users"),
    ],
)
def test_a_table_that_cannot_be_used_is_told_of(words: list[str], message: str, tmp_path: Path) -> None:
    data, model = tmp_path / "ratings.csv", tmp_path / "model"
    write_choices(data, 12)
    done = CliRunner().invoke(build_app(), ["recommend", "fit", str(data), *words, "-o", str(model)])
    assert done.exit_code == 2
    assert message in done.output
    assert not model.exists()


def test_why_a_blend_was_taken_is_said_in_words() -> None:
    search = [
        {"model": "EASE(l2=500.0)", "ndcg": 0.42, "weight": 0.25},
        {"model": "MultVAE(p=0.5)", "ndcg": 0.43, "weight": 0.75},
        {"model": "SIVAE(p=0.5)", "ndcg": 0.41, "weight": 0.0},
    ]
    said = why_chosen(search, 0.44)
    assert said == (
        "A blend of EASE (0.25), MultVAE (0.75): NDCG@100 of validation users is 0.4400; the best model "
        "alone, MultVAE, has 0.4300."
    )
