"""The protocols: what is asked, what is answered, and what is refused."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.serve.models import Fitted, serving

from bayesdrop.tables import load_table_model, predict_frame


@pytest.fixture(scope="module")
def price(prices: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(
        prices, tmp_path_factory.mktemp("desk"), name="houses", max_rows=2000, batch_rows=16
    ) as client:
        yield client


@pytest.fixture(scope="module")
def kind(kinds: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(kinds, tmp_path_factory.mktemp("desk"), name="kinds") as client:
        yield client


@pytest.fixture(scope="module")
def image(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(pictures, tmp_path_factory.mktemp("desk"), max_pixels=10_000) as client:
        yield client


def predicted(client: TestClient, rows: list[Any], **parameters: Any) -> Any:
    answer = client.post("/predict", json={"rows": rows, **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


# plain JSON


def test_answers_are_those_of_the_command_line(price: TestClient, prices: Fitted) -> None:
    import pandas

    answer = predicted(price, prices.rows)
    model = load_table_model(prices.folder)
    told = predict_frame(model, pandas.DataFrame(prices.rows))
    for place, row in enumerate(answer["predictions"]):
        assert row["mean"] == pytest.approx(told["mean"][place], rel=1e-4)
        assert row["std"] == pytest.approx(told["std"][place], rel=1e-4)
        assert row["epistemic_std"] == pytest.approx(math.sqrt(told["epistemic"][place]), rel=1e-4)
        assert row["lower"] == pytest.approx(told["lower"][place], rel=1e-4)
        assert row["defer"] == told["defer"][place]
        assert row["std"] ** 2 == pytest.approx(row["epistemic_std"] ** 2 + row["aleatoric_std"] ** 2)
    assert answer["parameters"] == {"num_draws": 20, "seed": 0, "level": 0.95}
    assert len(answer["model"]["digest"]) == 64


def test_classes_have_probabilities(kind: TestClient, kinds: Fitted) -> None:
    for row in predicted(kind, kinds.rows)["predictions"]:
        assert sum(row["probs"]) == pytest.approx(1)
        assert row["label"] == ["high", "low"][int(np.argmax(row["probs"]))]
        assert 0 <= row["mutual_information"] <= row["entropy"] <= math.log(2) + 1e-9
        assert 0 <= row["uncertainty"] <= 1


def test_a_row_has_the_same_answer_alone_and_in_company(price: TestClient, prices: Fitted) -> None:
    together = predicted(price, prices.rows[:9])["predictions"]
    alone = [predicted(price, [row])["predictions"][0] for row in prices.rows[:9]]
    for one, other in zip(together, alone, strict=True):
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-5, abs=1e-6)


def test_draws_seed_and_level_are_as_asked(price: TestClient, prices: Fitted) -> None:
    row = prices.rows[:1]
    one = predicted(price, row, num_draws=50, seed=7, level=0.5)
    assert one["parameters"] == {"num_draws": 50, "seed": 7, "level": 0.5}
    for _ in range(2):  # made anew, then held
        again = predicted(price, row, num_draws=50, seed=7, level=0.5)
        assert again["predictions"][0]["mean"] == pytest.approx(one["predictions"][0]["mean"], rel=1e-5)
    other = predicted(price, row, num_draws=50, seed=8, level=0.9)["predictions"][0]
    assert other["mean"] != one["predictions"][0]["mean"]
    assert other["upper"] - other["lower"] > one["predictions"][0]["upper"] - one["predictions"][0]["lower"]


def test_an_answer_is_reproduced_from_its_record(price: TestClient, prices: Fitted) -> None:
    answer = predicted(price, prices.rows[:3], num_draws=11, seed=5)
    record = price.get(f"/v1/requests/{answer['request']}").json()
    assert record["parameters"] == answer["parameters"]
    assert record["model"] == answer["model"]
    assert [item["data"] for item in record["items"]] == prices.rows[:3]
    again = price.post(f"/v1/requests/{answer['request']}/replay").json()
    assert again["largest_difference"] < 1e-5
    assert price.get(f"/v1/requests/{'0' * 32}").status_code == 404
    assert price.get("/v1/requests/..%2f..%2fetc").status_code == 404


def test_a_row_outside_what_was_learned_goes_to_a_person(price: TestClient, prices: Fitted) -> None:
    (row,) = predicted(price, [{**prices.rows[0], "x": 1e6, "colour": "octarine"}])["predictions"]
    assert row["defer"]
    assert "octarine" in row["reason"]
    assert "x = 1,000,000" in row["reason"]
    assert row["uncertainty"] == 1


def test_texts_are_read_as_the_table_was_and_numbers_are_numbers(price: TestClient, prices: Fitted) -> None:
    given = {"x": 0.5, "z": 1, "colour": "red"}
    one, two, three = predicted(price, [given, {**given, "x": "0.5"}, [0.5, 1.0, "red"]])["predictions"]
    assert one["mean"] == two["mean"] == three["mean"]


def test_many_rows_are_streamed(price: TestClient, prices: Fitted) -> None:
    rows = prices.rows * 10
    answer = predicted(price, rows)
    assert len(answer["predictions"]) == 400
    assert len({row["item"] for row in answer["predictions"]}) == 400
    stored = price.get(f"/v1/requests/{answer['request']}").json()
    assert [item["item"] for item in stored["items"]] == [row["item"] for row in answer["predictions"]]
    lines = price.post("/predict", json={"rows": rows[:40]}, headers={"accept": "application/x-ndjson"})
    told = [json.loads(line) for line in lines.text.splitlines()]
    assert [row["mean"] for row in told] == pytest.approx(
        [row["mean"] for row in answer["predictions"][:40]], rel=1e-5, abs=1e-6
    )


def test_a_bad_row_among_many_is_told_before_anything_is_answered(price: TestClient, prices: Fitted) -> None:
    before = price.get("/v1/overview").json()["counts"]["items"]
    rows = [*prices.rows * 2, {**prices.rows[0], "x": "much"}]
    answer = price.post("/predict", json={"rows": rows})
    assert answer.status_code == 422
    assert "'much'" in answer.json()["error"]
    assert price.get("/v1/overview").json()["counts"]["items"] == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"rows": [{"x": NaN}]}', 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"rows": [{"x": 1' + b"0" * 5000 + b"}]}", 400),
        (b'{"rows": []}', 422),
        (b'{"rows": 3}', 422),
        (b'"text"', 422),
        (b'{"rows": [[1, 2]]}', 422),
        (b'{"rows": [{"x": 1, "z": 2}]}', 422),
        (b'{"rows": [{"x": [1], "z": 2, "colour": "red"}]}', 422),
        (b'{"rows": [{"x": {"a": 1}, "z": 2, "colour": "red"}]}', 422),
        (b'{"rows": [[1, 2, "red"]], "num_draws": 1e9}', 422),
        (b'{"rows": [[1, 2, "red"]], "num_draws": 100000}', 422),
        (b'{"rows": [[1, 2, "red"]], "seed": -1}', 422),
        (b'{"rows": [[1, 2, "red"]], "level": 1}', 422),
        (b'{"rows": [[1, 2, "red"]], "shell": "rm"}', 422),
        (b'{"rows": [[1, 2, "\\ud800"]]}', 422),
        (b'{"rows": [{"x": 1, "z": 2, "colour": "red", "\\ud800": 1}]}', 422),
        (b'{"rows": [' + b",".join([b'[1, 2, "red"]'] * 2001) + b"]}", 422),
    ],
)
def test_hostile_bodies_are_refused_with_a_reason(price: TestClient, body: bytes, status: int) -> None:
    answer = price.post("/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


def test_odd_texts_are_kept_as_they_are(price: TestClient) -> None:
    text = "<script>alert(1)</script>\x00 ' ; drop table items; -- \u202e"
    body = json.dumps({"rows": [{"x": 1, "z": 2, "colour": text}]}).encode()
    answer = price.post("/predict", content=body).json()["predictions"][0]
    item = price.get(f"/v1/items/{answer['item']}").json()
    assert item["data"]["colour"] == text
    assert price.get("/v1/overview").json()["counts"]["items"] > 0


def test_the_same_request_under_one_name_is_answered_once(price: TestClient, prices: Fitted) -> None:
    body = {"rows": prices.rows[:20]}
    before = price.get("/v1/overview").json()["counts"]["items"]
    first, again = (price.post("/predict", json=body, headers={"idempotency-key": "k-1"}) for _ in range(2))
    assert first.json() == again.json()
    assert price.get("/v1/overview").json()["counts"]["items"] == before + 20
    other = price.post("/predict", json={"rows": prices.rows[:1]}, headers={"idempotency-key": "k-1"})
    assert other.status_code == 409


# Open Inference Protocol


def test_the_open_inference_protocol(price: TestClient, prices: Fitted) -> None:
    assert price.get("/v2").json()["name"] == "bayesdrop"
    assert price.get("/v2/health/live").json() == {"live": True}
    assert price.get("/v2/health/ready").json() == {"ready": True, "live": True}
    about = price.get("/v2/models/houses").json()
    assert {spec["name"]: spec["datatype"] for spec in about["inputs"]} == {
        "x": "FP64", "z": "FP64", "colour": "BYTES",
    }  # fmt: skip
    assert price.get("/v2/models/houses/versions/1/ready").json()["ready"]
    rows = prices.rows[:4]
    inputs = [
        {"name": "x", "shape": [4], "datatype": "FP64", "data": [row["x"] for row in rows]},
        {"name": "z", "shape": [4, 1], "datatype": "FP32", "data": [[row["z"]] for row in rows]},
        {"name": "colour", "shape": [4], "datatype": "BYTES", "data": [row["colour"] for row in rows]},
    ]
    body = {"id": "mine", "inputs": inputs, "parameters": {"seed": 0}}
    answer = price.post("/v2/models/houses/infer", json=body).json()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("mine", "houses", "1")
    outputs = {output["name"]: output for output in answer["outputs"]}
    plain = predicted(price, rows)["predictions"]
    assert outputs["mean"]["data"] == pytest.approx([row["mean"] for row in plain], rel=1e-4)
    assert outputs["mean"]["shape"] == [4]
    assert outputs["defer"]["datatype"] == "BOOL"
    chosen = price.post("/v2/models/houses/versions/1/infer", json={**body, "outputs": [{"name": "std"}]})
    assert [output["name"] for output in chosen.json()["outputs"]] == ["std"]


def test_classes_come_as_tensors(kind: TestClient, kinds: Fitted) -> None:
    rows = kinds.rows[:3]
    inputs = [
        {"name": name, "shape": [3], "datatype": kind_of, "data": [row[name] for row in rows]}
        for name, kind_of in (("x", "FP64"), ("z", "FP64"), ("colour", "BYTES"))
    ]
    answer = kind.post("/v2/models/kinds/infer", json={"inputs": inputs}).json()
    outputs = {output["name"]: output for output in answer["outputs"]}
    assert outputs["probs"]["shape"] == [3, 2]
    assert np.reshape(outputs["probs"]["data"], (3, 2)).sum(1) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("inputs", "status"),
    [
        ([{"name": "x", "shape": [2], "datatype": "FP64", "data": [1.0]}], 422),
        ([{"name": "x", "shape": [-1], "datatype": "FP64", "data": [1.0]}], 422),
        ([{"name": "x", "shape": [1], "datatype": "FP99", "data": [1.0]}], 422),
        ([{"name": "x", "shape": [1], "datatype": "INT8", "data": [1000]}], 422),
        ([{"name": "x", "shape": [1], "datatype": "FP64", "data": ["a"]}], 422),
        ([{"name": "x", "shape": [10**9, 10**9], "datatype": "FP64", "data": [1.0]}], 422),
        ([{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [[1.0], 2.0]}], 422),
        ([{"shape": [1]}], 422),
        ([], 422),
        ("x", 400),
    ],
)
def test_wrong_tensors_are_refused(price: TestClient, inputs: Any, status: int) -> None:
    answer = price.post("/v2/models/houses/infer", json={"inputs": inputs})
    assert answer.status_code == status
    assert answer.json()["error"]


def test_other_models_and_versions_are_not_there(price: TestClient) -> None:
    for path in ("/v2/models/cats", "/v2/models/houses/versions/9", "/v2/models/houses/versions/x"):
        assert price.get(path).status_code == 404


# MLflow


def test_mlflow_frames(price: TestClient, prices: Fitted) -> None:
    rows = prices.rows[:3]
    names = ["x", "z", "colour"]
    bodies = [
        {"dataframe_records": rows},
        {"dataframe_split": {"columns": names, "data": [[row[name] for name in names] for row in rows]}},
        {"inputs": {name: [row[name] for row in rows] for name in names}},
        {"instances": rows},
    ]
    plain = [row["mean"] for row in predicted(price, rows)["predictions"]]
    for body in bodies:
        answer = price.post("/invocations", json={**body, "params": {"seed": 0}})
        assert answer.status_code == 200, answer.text
        assert [row["mean"] for row in answer.json()["predictions"]] == pytest.approx(plain, rel=1e-5)
    assert price.get("/ping").status_code == 200
    assert price.get("/version").text
    assert price.post("/invocations", json={"rows": rows}).status_code == 400
    wrong = {"dataframe_split": {"columns": ["x"], "data": [[1, 2]]}}
    assert price.post("/invocations", json=wrong).status_code == 422


# images


def png(left: bool, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> str:
    pixels = np.full((size[1], size[0]), 20, dtype=np.uint8)
    half = size[0] // 2
    pixels[:, slice(0, half) if left else slice(half, None)] = 220
    file = BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def test_images_are_decoded_and_answered(image: TestClient) -> None:
    rows = [
        {"image": png(True)},
        {"image": "data:image/png;base64," + png(True)},
        png(True, (40, 40), "JPEG"),
    ]
    answers = predicted(image, rows)["predictions"]
    assert answers[0]["probs"] == pytest.approx(answers[1]["probs"])
    assert all(set(answer["probs"]) and answer["label"] in ("left", "right") for answer in answers)
    item = image.get(f"/v1/items/{answers[2]['item']}").json()
    assert base64.b64decode(item["data"]["image"])[:8] == b"\x89PNG\r\n\x1a\n"


def test_images_come_as_tensors_too(image: TestClient) -> None:
    pixels = np.full((2, 8, 8), 20)
    pixels[:, :, :4] = 220
    body = {"name": "pixels", "shape": [2, 8, 8], "datatype": "UINT8", "data": pixels.flatten().tolist()}
    answer = image.post("/v2/models/sides/infer", json={"inputs": [body]}).json()
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    plain = predicted(image, [{"image": png(True)}])["predictions"][0]
    assert outputs["probs"][:2] == pytest.approx(plain["probs"], rel=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        "not base64!",
        base64.b64encode(b"no picture").decode(),
        base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>").decode(),
        base64.b64encode(base64.b64decode(png(True))[:40]).decode(),
        "/etc/passwd",
        "http://127.0.0.1/secret.png",
        png(True, (200, 200)),
    ],
)
def test_what_is_no_picture_is_refused(image: TestClient, wrong: str) -> None:
    answer = image.post("/predict", json={"rows": [{"image": wrong}]})
    assert answer.status_code == 422
    assert "image" in answer.json()["error"]


# any module of torch


def test_any_module_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_to_serve.py").write_text(
        "import torch\n"
        "import bayesdrop as bd\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5),\n"
        "                              torch.nn.Linear(8, 1))\n"
        "    return net, torch.zeros(2, 3), bd.Gaussian(0.1)\n"
    )
    monkeypatch.chdir(tmp_path)
    with serving("mine_to_serve:build", tmp_path / "desk", num_draws=30, defer_above=1e-6) as client:
        answers = predicted(client, [[1, 2, 3], {"x": [1, 2, 3]}, [0.5, 0.5, 0.5]])["predictions"]
        assert answers[0]["mean"] == pytest.approx(answers[1]["mean"])
        assert answers[0]["lower"] < answers[0]["mean"] < answers[0]["upper"]
        assert all(answer["defer"] and "std" in answer["reason"] for answer in answers)
        for wrong in (
            "[[1, 2]]",
            '[{"y": 1}]',
            '[["a", 1, 2]]',
            "[[1e400, 1, 1]]",
            "[[1e39, 1, 1]]",
            "[[[1], 1, 1]]",
        ):
            assert client.post("/predict", content=f'{{"rows": {wrong}}}').status_code == 422
        assert client.post("/v1/refit").status_code == 422


# counting


def test_metrics_are_text_for_prometheus_and_json_for_label_studio(price: TestClient) -> None:
    predicted(price, [{"x": 1, "z": 2, "colour": "red"}])
    text = price.get("/metrics").text
    assert 'bayesdrop_requests_total{route="/predict",status="200"}' in text
    assert 'bayesdrop_request_seconds_bucket{route="/predict",le="+Inf"}' in text
    for name in ("rows_total", "deferred_total", "uncertainty_sum", "rows_waiting", "batch_rows_count"):
        assert f"bayesdrop_{name}" in text
    assert price.get("/metrics", headers={"accept": "application/json"}).json() == {}
