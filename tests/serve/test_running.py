"""A server as it is started: by the command, on both databases, and stopped while it works."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.serve.models import Fitted, serving
from typer.testing import CliRunner

from bayesdrop.cli import build_app
from bayesdrop.serve.running import check_address
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.serve.store import Store


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(build_app(), list(words))
    return done.exit_code, done.output


def test_a_server_works_on_both_databases(kinds: Fitted, tmp_path: Path, database_url: str) -> None:
    options = {"database": database_url, "name": "kinds", "random_share": 1.0}
    text = "\x00 ' \N{PILE OF POO}"
    with serving(kinds, tmp_path / "desk", **options) as client:
        body = json.dumps({"rows": [*kinds.rows, {**kinds.rows[0], "colour": text}]}).encode()
        answer = client.post("/predict", content=body, headers={"idempotency-key": "one"}).json()
        item = client.post("/v1/next").json()
        assert client.post(f"/v1/items/{item['item']}/label", json={"value": "high"}).status_code == 200
    with serving(kinds, tmp_path / "desk", **options) as client:
        again = client.post("/predict", content=body, headers={"idempotency-key": "one"}).json()
        assert again == answer
        counts = client.get("/v1/overview").json()["counts"]
        assert (counts["items"], counts["labels"]) == (41, 1)
        last = client.get(f"/v1/items/{answer['predictions'][-1]['item']}").json()
        assert last["data"]["colour"] == text


def test_an_address_that_others_reach_needs_tokens(kinds: Fitted, tmp_path: Path) -> None:
    settings = ServeSettings(str(kinds.folder), home=tmp_path, host="0.0.0.0")
    with Store(settings.url) as store:
        with pytest.raises(ValueError, match="bayesdrop people"):
            check_address(settings, store)
        store.people.add("ada", "admin")
        check_address(settings, store)
    code, said = run("serve", str(kinds.folder), "--home", str(tmp_path / "other"), "--host", "0.0.0.0")
    assert code == 2
    assert "nobody has a token yet" in said


def test_people_are_added_listed_renewed_and_disabled(kinds: Fitted, tmp_path: Path) -> None:
    where = [str(kinds.folder), "--home", str(tmp_path)]
    code, said = run("people", *where, "--add", "ada", "--role", "admin")
    (token,) = re.findall(r"bd_\S+", said)
    assert code == 0
    assert "ada  admin  token" in run("people", *where)[1]
    assert token not in run("people", *where, "--renew", "ada")[1]
    assert "ada  admin  disabled" in run("people", *where, "--disable", "ada")[1]
    assert run("people", *where, "--add", "ada")[0] == 2
    assert run("people", *where, "--add", "ben", "--role", "king")[0] == 2
    assert run("people", *where, "--add", "ben", "--renew", "ada")[0] == 2


def test_the_refit_command_says_what_it_found(kinds: Fitted, tmp_path: Path) -> None:
    where = [str(kinds.folder), "--home", str(tmp_path), "--name", "kinds"]
    code, said = run("refit", *where, "--data", str(kinds.data))
    assert code == 2
    assert "no labels" in said
    with serving(kinds, tmp_path, name="kinds", random_share=1.0) as client:
        client.post(
            "/v1/import", json=[{"data": row, "annotations": [annotation(row)]} for row in kinds.rows]
        )
    code, said = run("refit", *where, "--data", str(kinds.data), "--force")
    assert code == 0, said
    assert "Version 2" in said
    assert "held_out (24 rows): log_score" in said
    assert run("refit", *where, "--back")[1].strip() == "Version 1 answers."
    assert run("refit", *where, "--back")[0] == 2


def annotation(row: dict[str, object]) -> dict[str, object]:
    choice = "high" if float(str(row["x"])) > 0 else "low"
    return {"result": [{"type": "choices", "value": {"choices": [choice]}}]}


@pytest.mark.parametrize("wrong", ["nowhere", "no_such_module:build"])
def test_a_model_that_is_not_there_is_told_in_a_sentence(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist|no module"), serving(wrong, tmp_path / "desk"):
        pass


def test_a_stop_answers_what_was_accepted(prices: Fitted, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bayesdrop", "serve", str(prices.folder), "--home", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    answers: list[int] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/predict", json.dumps({"rows": prices.rows * 50}))
        sent.release()
        answer = connection.getresponse()
        answers.append(len(json.loads(answer.read())["predictions"]))
        connection.close()

    sent = threading.Semaphore(0)
    thread = threading.Thread(target=ask)
    thread.start()
    assert sent.acquire(timeout=60)
    # The answer has begun when the first items are stored.
    with Store(f"sqlite:///{tmp_path / 'desk.sqlite'}") as store:
        while thread.is_alive() and not store.overview.counts().items:
            pass
    process.send_signal(signal.SIGTERM)
    thread.join()
    process.wait(timeout=120)
    errors = process.stderr.read()
    for stream in (process.stdout, process.stderr):
        stream.close()
    assert answers == [2000]
    assert process.returncode == 0
    assert "Traceback" not in errors
