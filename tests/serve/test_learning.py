"""Refits: what they learn from, how they are compared, and that no request is lost when versions change."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from starlette.testclient import TestClient
from tests.serve.models import Fitted, serving, table_rows

from bayesdrop.serve.refit import refit
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.serve.store import Store
from bayesdrop.tables import FitOptions, fit_table, load_table_model, open_table
from bayesdrop.tables.refitting import Trial, decided, held_rows, refit_table, typed_frame


def label_all(client: TestClient, right: Any) -> int:
    """Label everything in the queue by a rule."""
    done = 0
    while (answer := client.post("/v1/next")).status_code == 200:
        item = answer.json()
        path = f"/v1/items/{item['item']}/label"
        body = {"value": right(item["data"]), "new_class": True}
        assert client.post(path, json=body).status_code == 200
        done += 1
    return done


def finished(client: TestClient) -> Any:
    portal = client.portal
    assert portal is not None
    return portal.call(client.app.state.service.learning.finished)  # type: ignore[attr-defined]


def test_the_rows_that_were_held_out_are_known_again(prices: Fitted, kinds: Fitted) -> None:
    for fitted in (prices, kinds):
        model = load_table_model(fitted.folder)
        table = open_table(fitted.data).read()
        assert int(held_rows(model, table).sum()) == model.about["rows_held_out"]
        with pytest.raises(ValueError, match="the table that the model was fitted to"):
            held_rows(model, table.iloc[::-1].reset_index(drop=True))
        with pytest.raises(ValueError, match="rows instead of"):
            held_rows(model, table.iloc[1:])


def test_a_refit_sees_no_random_row_and_learns_new_categories(kinds: Fitted) -> None:
    old = load_table_model(kinds.folder)
    table = open_table(kinds.data).read()
    more = pandas.DataFrame(table_rows(30, seed=3))
    more.loc[more.index[:10], "colour"] = "octarine"
    more.loc[more.index[:3], "kind"] = "middling"
    typed = typed_frame(more, old.schema, "more")
    typed["kind"] = more["kind"].to_numpy(dtype=object)
    random = np.arange(30) >= 15
    found = refit_table(old, table, typed, random)
    about = found.fitted.model.about
    assert about["rows"] == 190
    assert about["rows_held_out"] == old.about["rows_held_out"] + 15
    (colour,) = (column for column in found.fitted.model.schema.columns if column.name == "colour")
    assert {"octarine"} <= {*colour.categories, *colour.rare}
    assert "middling" in found.fitted.model.schema.classes
    assert found.comparison.trials["held_out"].rows == old.about["rows_held_out"]
    assert found.comparison.trials["random"].rows == 15
    again = refit_table(found.fitted.model, table, typed, random)
    assert again.comparison.trials["held_out"].rows == old.about["rows_held_out"]
    with pytest.raises(ValueError, match="target is another"):
        held_rows(found.fitted.model, table.iloc[::-1].reset_index(drop=True))


def test_a_model_whose_networks_held_rows_out_is_compared_on_random_rows(kinds: Fitted) -> None:
    table = open_table(kinds.data).read()
    quick = {"preset": "quick", "epochs": 20, "num_draws": 20}
    old = fit_table(table, FitOptions("kind", estimator=quick)).model
    assert old.about["out_of_fold"]
    assert not held_rows(old, table).any()
    more = pandas.DataFrame(table_rows(30, seed=3))
    typed = typed_frame(more, old.schema, "more")
    typed["kind"] = more["kind"].to_numpy(dtype=object)
    found = refit_table(old, table, typed, np.arange(30) >= 15)
    assert {name: trial.rows for name, trial in found.comparison.trials.items()} == {"random": 15}
    assert found.fitted.model.about["rows_fitted"] == len(table) + 15
    alone = refit_table(old, table, typed, np.zeros(30, dtype=bool))
    assert not alone.comparison.better
    assert "neither model has seen" in alone.comparison.why


def trial(difference: float, error: float = 0.1, rows: int = 40, *, fair: bool = True) -> Trial:
    return Trial(rows, {}, {}, difference, error, fair)


def test_better_is_decided_by_fixed_rules() -> None:
    assert decided({"held_out": trial(0.1)}).better
    assert not decided({"held_out": trial(-0.1)}).better
    assert decided({"held_out": trial(-0.1), "random": trial(0.1)}).better  # random rows decide
    assert not decided({"held_out": trial(-0.3), "random": trial(0.1)}).better  # clearly worse on old rows
    assert decided({"held_out": trial(0.2), "random": trial(-0.05, rows=10)}).better  # too few random rows
    assert not decided({"held_out": trial(0.2, fair=False)}).better
    assert not decided({"held_out": trial(0.0)}).better


def test_a_refit_by_the_api_is_compared_swapped_and_taken_back(kinds: Fitted, tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": kinds.data, "random_share": 0.5, "defer_above": None, "poll": 1000}
    with serving(kinds, tmp_path / "desk", name="kinds", **options) as client:
        assert client.post("/v1/refit").status_code == 422  # no labels yet
        client.post("/predict", json={"rows": kinds.rows})
        waiting = client.post("/predict", json={"rows": [{**kinds.rows[0], "colour": "mauve"}] * 3}).json()
        labelled = label_all(client, lambda row: "high" if row["x"] > 0 else "low")
        assert labelled >= 3
        client.post("/v1/items/" + waiting["predictions"][0]["item"] + "/opinions", json={"count": 2})
        assert client.post("/v1/refit", json={"force": True}).json()["state"] == "running"
        status = finished(client)
        assert status["state"] == "done", status
        result = status["result"]
        assert (result["version"], result["parent"], result["activated"]) == (2, 1, True)
        assert {"log_score", "accuracy"} <= result["comparison"]["trials"]["held_out"]["new"].keys()
        answer = client.post("/predict", json={"rows": kinds.rows[:1]}).json()
        assert answer["model"]["version"] == 2
        listed = client.get("/v1/versions").json()["versions"]
        assert [(one["version"], one["active"]) for one in listed] == [(2, True), (1, False)]
        old = client.post("/v2/models/kinds/versions/1/infer", json=tensors(kinds.rows[:1])).json()
        assert old["model_version"] == "1"
        assert client.post("/v1/versions/back").json()["version"] == 1
        assert client.post("/predict", json={"rows": kinds.rows[:1]}).json()["model"]["version"] == 1
        again = client.post(f"/v1/requests/{answer['request']}/replay").json()
        assert again["largest_difference"] < 1e-5
        assert client.post("/v1/versions/back").status_code == 409
        assert client.post("/v1/versions/2/activate").json()["active"]
    with serving(kinds, tmp_path / "desk", name="kinds", **options) as client:
        assert client.post("/predict", json={"rows": kinds.rows[:1]}).json()["model"]["version"] == 2


def tensors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kind = {"x": "FP64", "z": "FP64", "colour": "BYTES"}
    return {
        "inputs": [
            {"name": name, "shape": [len(rows)], "datatype": kind[name], "data": [row[name] for row in rows]}
            for name in kind
        ]
    }


def test_a_refit_of_images_uses_their_labels(pictures: Path, tmp_path: Path) -> None:
    from tests.serve.test_routes import png

    with serving(pictures, tmp_path / "desk", random_share=0.5, poll=1000) as client:
        rows = [{"image": png(number % 2 == 0, (8 + number, 8))} for number in range(20)]
        client.post("/v1/import", json=[{"data": row} for row in rows])
        assert label_all(client, lambda row: "left") == 20
        client.post("/v1/refit", json={"force": True})
        status = finished(client)
        assert status["state"] == "done", status
        trials = status["result"]["comparison"]["trials"]
        assert trials["held_out"]["rows"] == 20
        assert client.get("/v1/versions").json()["versions"][0]["version"] == 2
        client.post("/v1/refit")
        again = finished(client)
        assert again["result"]["comparison"]["trials"]["held_out"]["rows"] == 20


def test_a_table_without_its_data_says_what_a_refit_needs(kinds: Fitted, tmp_path: Path) -> None:
    with serving(kinds, tmp_path / "desk") as client:
        answer = client.post("/v1/refit")
        assert answer.status_code == 422
        assert "--data" in answer.json()["error"]


def test_the_command_and_a_running_server_share_versions(kinds: Fitted, tmp_path: Path) -> None:
    home = tmp_path / "desk"
    with serving(kinds, home, name="kinds", random_share=1.0, poll=1000) as client:
        client.post("/predict", json={"rows": kinds.rows[:12]})
        label_all(client, lambda row: "high" if row["x"] > 0 else "low")
        settings = ServeSettings(str(kinds.folder), home=home, name="kinds", data=kinds.data)
        with Store(settings.url) as store:
            result = refit(settings, store, force=True)
        assert result.labels == 12
        service = client.app.state.service  # type: ignore[attr-defined]
        assert client.portal is not None
        client.portal.call(service._learned)
        assert client.post("/predict", json={"rows": kinds.rows[:1]}).json()["model"]["version"] == 2


def test_no_request_is_lost_while_versions_change(kinds: Fitted, tmp_path: Path) -> None:
    with serving(kinds, tmp_path / "desk", name="kinds", poll=1000) as client:
        service = client.app.state.service  # type: ignore[attr-defined]
        first = service.registry.current.record
        facts = {"name": "kinds", "kind": "table", "task": "classification", "digest": first.digest}
        second = service.store.versions.add(**facts, source=first.source, about={})
        statuses: list[int] = []
        versions: set[int] = set()
        stop, answered = threading.Event(), threading.Semaphore(0)

        def ask() -> None:
            while not stop.is_set():
                answer = client.post("/predict", json={"rows": kinds.rows[:2]})
                statuses.append(answer.status_code)
                versions.add(answer.json()["model"]["version"])
                answered.release()

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for record in [second, first] * 4:
            service.activate(record, None, "test")
        for _ in range(12):
            assert answered.acquire(timeout=60)
        stop.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200}
        counted = client.get("/v1/overview").json()["counts"]
        assert counted["requests"] == len(statuses)


def test_a_version_that_is_not_as_it_was_is_refused(kinds: Fitted, tmp_path: Path) -> None:
    with serving(kinds, tmp_path / "desk", name="kinds", poll=1000) as client:
        service = client.app.state.service  # type: ignore[attr-defined]
        other = replace(service.registry.current.record, id=99, digest="0" * 64)
        with pytest.raises(ValueError, match="not as it was"):
            service.activate(other, None, "test")
        assert client.post("/predict", json={"rows": kinds.rows[:1]}).status_code == 200
