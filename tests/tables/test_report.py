"""The report: what it says is so, and it says what matters first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import precision_score, recall_score

from bayesdrop.tables import FitOptions, FittedTable, fit_table, open_table
from bayesdrop.tables.evaluate import Evaluation, evaluate_table, fit_evaluation
from bayesdrop.tables.report_summary import summary

TINY = {"preset": "quick", "hidden": (8,), "epochs": 4, "num_draws": 16, "search": "none", "restarts": 2}


def line(rows: int = 300) -> Any:
    source = np.random.default_rng(0)
    x = source.normal(size=rows)
    frame = pd.DataFrame(
        {"x": x, "noise": source.normal(size=rows), "y": 1e5 + 1e4 * x + source.normal(size=rows)}
    )
    return frame.astype(str)


@pytest.fixture(scope="module")
def numbers() -> FittedTable:
    return fit_table(line(), FitOptions("y", estimator=TINY, held_out=0.4))


@pytest.fixture(scope="module")
def labels() -> FittedTable:
    source = np.random.default_rng(1)
    frame = pd.DataFrame({"x": source.normal(size=300)})
    frame["kind"] = np.where(frame["x"] > 1, "rare", np.where(frame["x"] > 0, "some", "many"))
    return fit_table(frame.astype(str), FitOptions("kind", estimator=TINY, held_out=0.4))


def with_scores(fitted: FittedTable, **scores: Any) -> Evaluation:
    judged = replace(fitted.judged, scores=fitted.judged.scores | scores)
    return fit_evaluation(replace(fitted, judged=judged))


def cells(page: str, title: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    below = page[page.index(f">{title}</h") :]
    body = below[below.index("<tbody>") : below.index("</tbody>")].replace("\u00a0%", " %")
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in body.split("</tr>")[:-1]]


def test_a_model_that_loses_is_told_so_before_anything_else(numbers: FittedTable) -> None:
    """Four epochs are too few for a line that ridge regression finds at once."""
    found = fit_evaluation(numbers)
    page = found.report()
    first = page[page.index("<ul") : page.index("</ul>")]
    assert "The model loses to ridge regression: RMSE " in first
    assert "A longer fit, --preset default, may do better." in first
    assert page.index("<ul") < page.index("<table>")
    rows = cells(page, "Measures")
    assert [row[0] for row in rows] == [
        "this model",
        "mean of the target",
        "ridge regression",
        "gradient boosting",
    ]
    assert float(rows[2][1].replace(",", "")) < 2 < float(rows[0][1].replace(",", ""))
    assert not re.search(r"\de[+-]\d", page[page.index("<body>") :])


def test_a_model_that_knows_the_truth_wins(numbers: FittedTable) -> None:
    best = with_scores(numbers, mean=numbers.judged.target.astype(float))
    assert best.compared is not None
    assert "The model is better than the best baseline" in best.compared.sentence


def test_intervals_are_judged_by_what_they_hold(numbers: FittedTable) -> None:
    target = numbers.judged.target
    for width, sentence in ((0.0, "fewer than promised"), (1e9, "more than promised")):
        lower, upper = target - width + 1 * (width == 0), target + width + 1
        said = " ".join(summary(with_scores(numbers, lower=lower, upper=upper)))
        assert sentence in said
    few = np.arange(len(target)) % 20 == 0
    said = " ".join(summary(with_scores(numbers, lower=np.where(few, target + 1, target), upper=target + 2)))
    assert "hold 95.0 % of the targets, as promised" in said


def test_probabilities_are_judged_by_what_comes_true(labels: FittedTable) -> None:
    rows = len(labels.judged.target)
    sure = np.tile([0.998, 0.001, 0.001], (rows, 1))
    said = " ".join(summary(with_scores(labels, probs=sure)))
    assert "too sure of itself" in said
    assert "Label rare is found in 0 % of its" in said
    right = np.full((rows, 3), 0.3)
    right[np.arange(rows), labels.judged.target] = 0.4
    assert "less sure than it could be" in " ".join(summary(with_scores(labels, probs=right)))


def test_labels_have_the_recall_and_precision_of_scikit_learn(labels: FittedTable) -> None:
    found = fit_evaluation(labels)
    page, target = found.report(), labels.judged.target
    given = labels.judged.scores["probs"].argmax(1)
    recall = recall_score(target, given, average=None, labels=range(3))
    precision = precision_score(target, given, average=None, labels=range(3), zero_division=np.nan)
    for place, row in enumerate(cells(page, "Every label")):
        assert row[0] == labels.model.schema.classes[place]
        assert row[2] == f"{100 * recall[place]:.1f} %"
        assert row[3] == ("-" if np.isnan(precision[place]) else f"{100 * precision[place]:.1f} %")
    matrix = [[int(cell) for cell in row[1:]] for row in cells(page, "Taken for")]
    expected = [[int(np.sum((target == true) & (given == said))) for said in range(3)] for true in range(3)]
    assert matrix == expected


def test_of_many_labels_the_commonest_are_shown(tmp_path: Path) -> None:
    source = np.random.default_rng(2)
    frame = pd.DataFrame({"x": source.normal(size=400), "kind": source.integers(0, 30, 400)}).astype(str)
    fitted = fit_table(frame, FitOptions("kind", estimator=TINY, task="classification"))
    page = fit_evaluation(fitted).report()
    assert "The 12 commonest of 30 labels." in page
    assert len(cells(page, "Every label")) == 12
    assert 0 < len(cells(page, "Taken for")) <= 12
    assert len(page.encode()) < 500_000


def test_reasons_and_telling_cells_of_uncertain_rows(numbers: FittedTable, tmp_path: Path) -> None:
    frame = line(40)
    frame.loc[7, "x"] = "1000"
    frame.to_csv(tmp_path / "in.csv", index=False)
    page = evaluate_table(numbers.model, open_table(tmp_path / "in.csv")).report()
    rows = {row[0]: row for row in cells(page, "Most uncertain rows")}
    assert "x = 1000, seen" in rows["8"][5]
    assert re.match(r"(noise|lack of data) \(\d+ %\); x = 1000", rows["8"][5])


def test_one_row_is_a_row(numbers: FittedTable, tmp_path: Path) -> None:
    line(300).iloc[:1].to_csv(tmp_path / "one.csv", index=False)
    page = evaluate_table(numbers.model, open_table(tmp_path / "one.csv")).report()
    assert "1 row of one.csv" in page
    assert "1 rows" not in page
    assert "One row cannot tell what the model uses." in page


def test_a_model_without_rows_says_why_it_has_no_baselines(numbers: FittedTable, tmp_path: Path) -> None:
    line(30).to_csv(tmp_path / "in.csv", index=False)
    model = replace(numbers.model, rows=None)
    found = evaluate_table(model, open_table(tmp_path / "in.csv"))
    assert found.baselines == []
    assert found.compared is None
    assert "keeps no training rows (fit with --keep-rows)" in found.report()


def test_a_refit_is_reported_by_the_model_that_was_tried() -> None:
    options = FitOptions("y", estimator=TINY, held_out=0.4, refit=True)
    fitted = fit_table(line(), options)
    plain = fit_table(line(), replace(options, refit=False))
    found, expected = fit_evaluation(fitted), fit_evaluation(plain)
    assert found.model.estimator is not fitted.model.estimator
    assert found.importances == expected.importances
    assert found.as_dict() == expected.as_dict()
    assert fitted.model.rows is not None
    assert fitted.model.rows.of == 300
    assert fitted.rows is not None
    assert fitted.rows.of == 180


def test_a_slice_of_a_long_name_says_which_values(labels: FittedTable) -> None:
    schema, long = labels.model.schema, "the reading of the left sensor " * 7
    columns = tuple(replace(column, name=long) for column in schema.columns)
    model = replace(labels.model, schema=replace(schema, columns=columns))
    fitted = replace(labels, model=model, frame=labels.frame.rename(columns={"x": long}))
    for row in cells(fit_evaluation(fitted).report(), "Worst-calibrated slices"):
        assert re.fullmatch(r"the reading .*…( \S+ to \S+| missing)", row[0]), row[0]


def test_many_weak_labels_are_one_sentence() -> None:
    source = np.random.default_rng(2)
    frame = pd.DataFrame({"x": source.normal(size=300), "kind": source.integers(0, 9, 300)}).astype(str)
    found = fit_evaluation(fit_table(frame, FitOptions("kind", estimator=TINY, held_out=0.5)))
    said = [line for line in summary(found) if "do not rely on" in line]
    assert len(said) == 1
    assert re.match(r"\d of 9 labels are found in less than half of their rows", said[0])
