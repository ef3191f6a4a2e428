"""Labels by the API, in and out; Label Studio's side of it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.serve.models import Fitted, serving

CONFIG = '<View><Text name="row" value="$x"/><Choices name="kind" toName="row"/></View>'


@pytest.fixture
def client(kinds: Fitted, tmp_path: Path) -> Iterator[TestClient]:
    with serving(kinds, tmp_path / "desk", name="kinds", random_share=1.0, poll=1000) as made:
        yield made


def counts(client: TestClient) -> dict[str, int]:
    found: dict[str, int] = client.get("/v1/overview").json()["counts"]
    return found


def test_an_item_is_taken_labelled_undone_and_skipped(client: TestClient, kinds: Fitted) -> None:
    assert client.post("/v1/next").status_code == 204
    client.post("/predict", json={"rows": kinds.rows[:2]})
    item = client.post("/v1/next").json()
    path = f"/v1/items/{item['item']}"
    assert client.post(f"{path}/label", json={"value": "purple"}).status_code == 422
    assert client.post(f"{path}/label", json={"value": "high", "note": "\x00"}).status_code == 422
    done = client.post(f"{path}/label", json={"value": "high", "note": "clear <b>case</b>"}).json()
    assert (done["agreed"], done["state"], done["labels"][0]["note"]) == ("high", "done", "clear <b>case</b>")
    assert client.post("/v1/undo").json()["item"] == item["item"]
    assert client.post(f"{path}/skip").json()["labels"][0]["skipped"]
    other = client.post("/v1/next").json()
    assert other["item"] != item["item"]
    assert client.post(f"{path}/label", json={"value": "high"}).status_code == 409
    assert client.post(f"{path}/opinions", json={"count": 2}).json()["opinions"] == 2
    assert client.post(f"{path}/withdraw").json()["state"] == "withdrawn"
    for wrong in ("0" * 32, "x", "..%2f"):
        assert client.post(f"/v1/items/{wrong}/opinions", json={}).status_code == 404


def test_roles_are_kept(client: TestClient, kinds: Fitted) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    tokens = {role: service.store.people.add(role, role)[1] for role in ("reader", "labeller", "admin")}
    service.guard.forget()
    rows = {"rows": kinds.rows[:1]}
    assert client.post("/predict", json=rows).status_code == 401
    allowed = {"reader": (200, 403, 403), "labeller": (200, 200, 403), "admin": (200, 204, 422)}
    for role, expected in allowed.items():
        headers = {"authorization": f"Bearer {tokens[role]}"}
        got = (
            client.post("/predict", json=rows, headers=headers).status_code,
            client.post("/v1/next", headers=headers).status_code,
            client.post("/v1/refit", headers=headers).status_code,
        )
        if role == "admin":
            got = (got[0], 204 if got[1] in (200, 204) else got[1], got[2])
        assert got == expected, role
    assert client.post("/predict", json=rows, auth=("anybody", tokens["reader"])).status_code == 200
    assert client.post("/predict", json=rows, headers={"authorization": "Bearer no"}).status_code == 401
    assert client.get("/health").status_code == 200


def test_labels_go_out_and_come_in(client: TestClient, kinds: Fitted) -> None:
    client.post("/predict", json={"rows": [{**kinds.rows[0], "colour": "=cmd|' /C calc'!A0"}]})
    item = client.post("/v1/next").json()
    client.post(f"/v1/items/{item['item']}/label", json={"value": "low"})
    (task,) = client.get("/v1/labels").json()
    assert task["annotations"][0]["result"][0]["value"] == {"choices": ["low"]}
    assert task["predictions"][0]["score"] == pytest.approx(1 - item["uncertainty"])
    (line,) = csv.DictReader(StringIO(client.get("/v1/labels?format=csv").text))
    assert (line["label"], line["person"]) == ("low", "local")
    assert line["colour"].startswith("'=")
    assert client.get("/v1/labels?format=json").json()[0]["agreed"] == "low"
    assert client.get("/v1/labels?format=exe").status_code == 422
    again = client.post("/v1/import", json=[task, {"data": kinds.rows[1]}]).json()
    assert (len(again["items"]), again["labels"]) == (2, 1)
    text = "x,z,colour,kind\n1.5,2,red,high\n-1,,blue,\n"
    brought = client.post("/v1/import", content=text, headers={"content-type": "text/csv"}).json()
    assert (len(brought["items"]), brought["labels"]) == (2, 1)
    assert counts(client)["labels"] == 3
    assert counts(client)["queued"] == 2
    for wrong in ("x,z\n1\n", "x,x\n1,2\n", "\xff"):
        refused = client.post(
            "/v1/import", content=wrong.encode("latin-1"), headers={"content-type": "text/csv"}
        )
        assert refused.status_code == 422


def tasks(rows: list[Any], **more: Any) -> dict[str, Any]:
    listed = [{"id": place, "data": row} for place, row in enumerate(rows)]
    return {"tasks": listed, "project": "7.1700000000", "label_config": CONFIG, **more}


def test_label_studio_gets_predictions(client: TestClient, kinds: Fitted) -> None:
    assert client.get("/health").json()["status"] == "UP"
    assert client.get("/").json()["status"] == "UP"
    assert client.post("/setup", json={"project": "7.1", "schema": CONFIG}).json() == {
        "model_version": "kinds-1"
    }
    answer = client.post("/predict", json=tasks([*kinds.rows[:3], {"x": 1}])).json()
    plain = client.post("/predict", json={"rows": kinds.rows[:3]}).json()["predictions"]
    assert len(answer["results"]) == 4
    for result, row in zip(answer["results"], plain, strict=False):
        assert result["result"][0] == {
            "from_name": "kind", "to_name": "row", "type": "choices", "value": {"choices": [row["label"]]},
        }  # fmt: skip
        assert result["score"] == pytest.approx(1 - row["uncertainty"], abs=1e-6)
    assert answer["results"][3]["score"] == 0
    before = counts(client)["items"]
    assert client.post("/predict", json=tasks(kinds.rows[:3])).json()["results"] == answer["results"][:3]
    assert counts(client)["items"] == before


def test_label_studio_sends_annotations(client: TestClient, kinds: Fitted) -> None:
    client.post("/predict", json=tasks(kinds.rows[:2]))

    def send(action: str, choice: str, number: int = 5, by: int = 1) -> Any:
        result = [{"from_name": "kind", "to_name": "row", "type": "choices", "value": {"choices": [choice]}}]
        body = {
            "action": action,
            "project": {"id": 7},
            "task": {"id": 1, "data": kinds.rows[1]},
            "annotation": {"id": number, "result": result, "completed_by": by},
        }
        answer = client.post("/webhook", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    assert send("ANNOTATION_CREATED", "high") == {"stored": True}
    assert send("ANNOTATION_CREATED", "high") == {"stored": True}
    assert counts(client)["labels"] == 1
    send("ANNOTATION_UPDATED", "low")
    (item,) = client.get("/v1/labels?format=json").json()
    assert (item["agreed"], item["labels"][0]["source"]) == ("low", "label studio")
    send("ANNOTATION_CREATED", "high", number=6, by=2)
    assert client.get("/v1/labels?format=json").json()[0]["disagreement"]
    send("ANNOTATION_DELETED", "low", number=6)
    assert counts(client)["labels"] == 1
    assert client.post("/webhook", json={"action": "SOMETHING"}).status_code == 201
    assert client.post("/webhook", json={"action": "START_TRAINING"}).status_code == 201
