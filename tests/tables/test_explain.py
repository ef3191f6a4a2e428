"""Why a prediction is uncertain, held against a linear model, of which everything is known."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist

from bayesdrop import Categorical, HeteroscedasticGaussian, Prediction
from bayesdrop.stacked.encode import Encoder
from bayesdrop.tables import FitOptions, explain_row, fit_table, predict_frame, rows_of
from bayesdrop.tables.dependence import dependence, grid_of
from bayesdrop.tables.evaluate import fit_evaluation
from bayesdrop.tables.explain import column_effects, helpful_label, nearest_rows
from bayesdrop.tables.explain_page import explanation_lines, explanation_page
from bayesdrop.tables.functions import Functions, inputs_in_use
from bayesdrop.tables.importance import importances
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.rows import cells_of
from bayesdrop.tables.schema import Column, Schema, infer_column

DRAWS, COLUMNS = 400, 4


class Linear:
    """T linear functions w_t' x whose noise has the variance exp(a' x), all held."""

    def __init__(self, draws: int = DRAWS) -> None:
        source = np.random.default_rng(0)
        spread = np.diag([1.0, 0.5, 0.1, 0.0])
        self.w = np.array([3.0, 0.0, -1.0, 0.0]) + source.normal(size=(draws, COLUMNS)) @ spread
        self.a = np.array([0.0, 0.8, 0.0, 0.0])
        self.functions = Functions(self, outputs=2, num_draws=draws)

    def __call__(self, x: Any) -> Prediction:
        outputs = np.stack([x @ self.w.T, np.tile(x @ self.a, (len(self.w), 1)).T], -1)
        return Prediction.from_draws(
            torch.from_numpy(outputs.transpose(1, 0, 2).copy()), HeteroscedasticGaussian()
        )

    @property
    def mean(self) -> Any:
        return self.w.mean(0)

    @property
    def covariance(self) -> Any:
        return np.cov(self.w.T, ddof=0)


ONE_EACH = [slice(place, place + 1) for place in range(COLUMNS)]


def test_effects_of_columns_are_those_of_the_linear_model() -> None:
    model, source = Linear(), np.random.default_rng(1)
    x, others = source.normal(size=(1, COLUMNS)), source.normal(size=(50, COLUMNS))
    found = column_effects(model.functions, x, others, ONE_EACH)
    for place in range(COLUMNS):
        changed = np.repeat(x, 50, 0)
        changed[:, place] = others[:, place]
        mean = model.mean[place] * (x[0, place] - others[:, place].mean())
        quadratic = np.einsum("nj,jk,nk->n", changed, model.covariance, changed)
        epistemic = x[0] @ model.covariance @ x[0] - quadratic.mean()
        aleatoric = np.exp(x[0] @ model.a) - np.exp(changed @ model.a).mean()
        np.testing.assert_allclose(found[place], [mean, epistemic, aleatoric], rtol=1e-6, atol=1e-9)
    # The last column has no weight at all, and only the second one moves the noise.
    np.testing.assert_allclose(found[3], 0, atol=1e-12)
    assert (np.abs(found[:, 2]) > 1e-9).tolist() == [False, True, False, False]


def test_inputs_of_one_column_change_together() -> None:
    model, source = Linear(), np.random.default_rng(2)
    x, others = source.normal(size=(1, COLUMNS)), source.normal(size=(20, COLUMNS))
    both = column_effects(model.functions, x, others, [slice(0, 2)])
    mean = model.mean[:2] @ (x[0, :2] - others[:, :2].mean(0))
    assert both[0, 0] == pytest.approx(mean)


def test_the_most_helpful_label_is_the_one_of_the_formula() -> None:
    model, source = Linear(4000), np.random.default_rng(3)
    x = np.array([[2.0, 0.0, 0.0, 0.0]])
    rows = source.normal(size=(30, COLUMNS))
    rows[7] = [6.0, -2.0, 0.0, 0.0]  # far out in the same direction, and nearly without noise
    found = helpful_label(model.functions, x, rows, classes=False)
    assert found is not None
    s = np.diag([1.0, 0.25, 0.01, 0.0])
    own = x[0] @ s @ x[0]

    def share(row: Any) -> float:
        return float((x[0] @ s @ row) ** 2 / (own * (row @ s @ row + np.exp(row @ model.a))))

    shares = [share(row) for row in rows]
    assert found[0] == int(np.argmax(shares)) == 7
    # A squared correlation over T draws has a standard error of at most 2 r (1 - r^2) / sqrt(T).
    assert found[1] == pytest.approx(shares[7], abs=5 * 2 * 0.4 / np.sqrt(2000))
    assert found[2] == pytest.approx(share(x[0]), abs=5 * 2 * 0.4 / np.sqrt(2000))


def test_labels_are_as_noisy_as_coins() -> None:
    """Of two classes, with p_t = 0.5 + 0.3 s_t x and s_t = +-1: Cov^2 / (p (1 - p)) in closed form."""
    signs = np.tile([1.0, 1.0, -1.0, -1.0], 50)

    def predict(x: Any) -> Prediction:
        p = 0.5 + 0.3 * signs[:, None] * x[:, 0]
        logits = np.log(np.stack([p, 1 - p], -1))
        return Prediction.from_draws(torch.from_numpy(logits), Categorical())

    functions = Functions(predict, outputs=2, num_draws=len(signs))
    rows = np.array([[0.1], [1.0], [0.5]])
    found = helpful_label(functions, np.array([[0.8]]), rows, 0, classes=True)
    assert found is not None
    assert found[0] == 1
    # Var f(x) = (0.3 * 0.8)^2, Cov^2 = that times (0.3 * 1)^2, Var y = 1/4.
    assert found[1] == pytest.approx(0.09 / 0.25, rel=1e-6)
    assert found[2] == pytest.approx((0.3 * 0.8) ** 2 / 0.25, rel=1e-6)
    sure = Functions(lambda x: predict(0 * x), outputs=2, num_draws=len(signs))
    assert helpful_label(sure, np.array([[0.8]]), rows, 0, classes=True) is None


def test_the_nearest_rows_are_those_of_scipy() -> None:
    source = np.random.default_rng(4)
    rows, z = source.normal(size=(60, 3)), source.normal(size=3)
    order, distances, farther = nearest_rows(z, rows)
    expected = cdist(z[None], rows)[0] / np.sqrt(3)
    np.testing.assert_allclose(distances, expected)
    assert order == np.argsort(expected).tolist()
    between = cdist(rows, rows) + np.diag(np.full(60, np.inf))
    assert farther == np.mean(between.min(1) / np.sqrt(3) < expected.min())
    assert nearest_rows(rows[0] + 100, rows)[2] == 1
    assert nearest_rows(z, rows[:1])[2] is None


def test_inputs_that_no_network_is_told_of_do_not_count() -> None:
    x = np.random.default_rng(9).normal(size=(30, 4))

    def told(*chosen: list[int] | None) -> list[int]:
        encoders = {
            str(place): Encoder.of(x, chosen=None if one is None else np.array(one))
            for place, one in enumerate(chosen)
        }
        mixture = SimpleNamespace(encoders=encoders, seen=next(iter(encoders.values())).seen)
        return list(inputs_in_use(SimpleNamespace(mixture_=mixture)))

    assert told([0, 2]) == [0, 2]
    assert told([0, 2], [2, 3]) == [0, 2, 3]
    assert told([0], None) == [0, 1, 2, 3]


def test_importance_of_a_linear_model_is_twice_the_variance_that_a_column_explains() -> None:
    """E[(w z' - w z)^2] = 2 w^2 Var z for an independent copy z' of the column, on top of the noise."""
    model, source = Linear(), np.random.default_rng(5)
    x = source.normal(size=(400, COLUMNS))
    y = x @ model.mean + source.normal(size=400)
    found = {one.place: one for one in importances(model.functions, x, y, ONE_EACH, most_rows=10**6)}
    for place in range(COLUMNS):
        expected = 2 * model.mean[place] ** 2 * x[:, place].var() / y.var()
        assert found[place].value == pytest.approx(expected, abs=5 * found[place].error + 1e-9)
    assert found[3].value == pytest.approx(0, abs=1e-12)
    ordered = importances(model.functions, x, y, ONE_EACH, most_rows=10**6)
    assert [one.place for one in ordered][:2] == [0, 2]
    few = importances(model.functions, x, y, ONE_EACH, most_rows=80)
    assert few[0].place == 0


def test_of_many_columns_the_ones_that_matter_are_found() -> None:
    source = np.random.default_rng(6)
    x = source.normal(size=(100, 90))

    def predict(rows: Any) -> Prediction:
        mean = np.stack([rows[:, 70] + 0.5 * rows[:, 3]] * 4)[..., None]
        return Prediction.from_draws(
            torch.from_numpy(np.concatenate([mean, 0 * mean], -1)), HeteroscedasticGaussian()
        )

    functions = Functions(predict, outputs=2, num_draws=4)
    columns = [slice(place, place + 1) for place in range(90)]
    found = importances(functions, x, x[:, 70] + 0.5 * x[:, 3], columns, most_rows=20_000)
    assert len(found) == 40
    assert [one.place for one in found[:2]] == [70, 3]


def test_dependence_of_a_linear_model_is_a_line_and_its_band_the_spread_of_the_lines() -> None:
    model, source = Linear(), np.random.default_rng(7)
    x = source.normal(size=(40, COLUMNS))
    curve = dependence(model.functions, x, Column("c", "numeric"), slice(0, 1), x)
    rest = x.mean(0)
    for value, mean, std in zip(curve.values, curve.mean[:, 0], curve.std[:, 0], strict=True):
        rest[0] = value
        assert mean == pytest.approx(model.mean @ rest)
        assert std == pytest.approx(np.sqrt(rest @ model.covariance @ rest))
    assert curve.values[0] == pytest.approx(np.quantile(x[:, 0], 0.02))
    colours = Column("c", "category", categories=("a", "b"))
    points = dependence(model.functions, x, colours, slice(1, 3), np.eye(2)[[0, 1, 1]].repeat(2, 1))
    assert points.labels == ("a", "b")
    rest = x.mean(0)
    rest[1:3] = [0, 1]
    assert points.mean[1, 0] == pytest.approx(model.mean @ rest)


# a whole explanation


TINY = {"preset": "quick", "hidden": (16,), "epochs": 30, "num_draws": 40, "search": "none", "restarts": 2}


def houses(rows: int = 150) -> Any:
    source = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": source.uniform(30, 200, rows), "<b>town": source.choice(["x", "<i>y"], rows)}
    )
    frame["price"] = 1000 * frame["size"] + 100 * source.normal(size=rows) * frame["size"]
    return frame.astype(str)


def test_an_explanation_agrees_with_the_prediction_and_knows_its_own_row() -> None:
    frame = houses()
    model = fit_table(frame, FitOptions("price", estimator=TINY)).model
    assert model.rows is not None
    place = int(model.rows.numbers[5]) - 1
    found = explain_row(model, frame.iloc[[place]])
    said = predict_frame(model, frame.iloc[[place]])
    assert found.epistemic == pytest.approx(said["epistemic"][0])
    assert found.aleatoric == pytest.approx(said["aleatoric"][0])
    assert (found.row, found.nearest[0].number, found.nearest[0].distance) == (place + 1, place + 1, 0)
    assert found.nearest[0].cells[1] == frame["<b>town"].iloc[place]
    assert found.outside == ""
    assert json.dumps(found.as_dict(), allow_nan=False)
    far = frame.iloc[[place]].assign(size="5000")
    told = explain_row(model, far)
    assert told.outside.startswith("size = 5000, seen")
    assert max(told.effects, key=lambda one: one.epistemic).column == "size"
    assert told.farther == 1
    page = explanation_page(told, "<u>")
    assert not any(tag in page for tag in ("<b>", "<i>", "<u>"))
    assert "&lt;b&gt;town" in page
    assert any("goes to a person" in line for line in explanation_lines(told))


def test_rows_may_be_given_where_none_are_kept() -> None:
    frame = houses().assign(price=np.where(np.arange(150) % 3, "cheap", "dear"))
    model = fit_table(frame, FitOptions("price", estimator=TINY, keep_rows=0)).model
    assert model.rows is None
    with pytest.raises(ValueError, match=r"--data train\.csv"):
        explain_row(model, frame.iloc[[0]])
    rows = rows_of(frame, model.schema, "train.csv", most=100)
    found = explain_row(model, frame.iloc[[0]], rows)
    assert found.compared_with == 100
    assert {one.target for one in found.nearest} <= {"cheap", "dear"}
    for one in found.nearest:
        assert one.target == frame["price"].iloc[one.number - 1]
    without = rows_of(frame.drop(columns="price"), model.schema, "train.csv", most=100)
    assert explain_row(model, frame.iloc[[0]], without).nearest[0].target == ""
    with pytest.raises(ValueError, match="one row; got 2"):
        explain_row(model, frame.iloc[:2], rows)


def test_rates_that_are_learned_for_every_input_stand_beside_the_columns() -> None:
    frame = houses()
    options = {**TINY, "method": "concrete", "per_unit": True, "input_p": 0.1}
    fitted = fit_table(frame, FitOptions("price", estimator=options))
    page = fit_evaluation(fitted).report()
    assert "learned drop rate" in page
    rates = [component.network.p[0] for component in fitted.model.estimator.mixture_.components]
    assert f"{float(torch.stack(rates)[:, 0].mean()):.3f}" in page
    plain = fit_evaluation(fit_table(frame, FitOptions("price", estimator=TINY))).report()
    assert "learned drop rate" not in plain


def test_dates_stay_dates_where_inputs_are_told_of() -> None:
    frame = pd.DataFrame(
        {"day": ["2024-03-01", "01.03.2023", "", "2022-12-24"], "y": list("1234")}, dtype="str"
    )
    frame.loc[0, "day"] = "01.03.2024"
    column = infer_column(frame["day"].replace("2022-12-24", "24.12.2022"))
    schema = Schema("y", "regression", (column,))
    x = Preparer(schema)(frame).x
    assert cells_of(schema, x) == [["2024-03-01"], ["2023-03-01"], ["(missing)"], ["2022-12-24"]]
    labels, years, inputs = grid_of(column, x)
    assert labels == ("2022-12-24", "2023-03-01", "2024-03-01")
    np.testing.assert_array_equal(inputs, x[[3, 1, 0]])
    np.testing.assert_allclose(years, [2022.98, 2023.16, 2024.16], atol=0.01)
