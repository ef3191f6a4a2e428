"""Who gets in: tokens, logins, names of the server, pages of other sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.serve.models import Fitted, serving

from bayesdrop.serve.settings import ServeSettings, is_loopback
from bayesdrop.serve.shield import RateLimit
from bayesdrop.serve.store import Store


@pytest.fixture
def client(tmp_path: Path, kinds: Fitted) -> Iterator[TestClient]:
    with serving(kinds, tmp_path / "desk") as made:
        yield made


def store_of(client: TestClient) -> Store:
    found: Store = client.app.state.service.store  # type: ignore[attr-defined]
    return found


def with_person(client: TestClient, role: str = "labeller") -> str:
    token = store_of(client).people.add("ada", role)[1]  # type: ignore[arg-type]
    client.app.state.service.guard.forget()  # type: ignore[attr-defined]
    return token


def test_without_tokens_the_local_person_is_logged_in(client: TestClient) -> None:
    page = client.get("/desk")
    assert page.status_code == 200
    assert ">local</span>" in page.text


def test_with_tokens_a_page_asks_for_one(client: TestClient) -> None:
    token = with_person(client)
    assert client.get("/desk").url.path == "/desk/login"
    assert client.post("/desk/login", data={"token": "bd_wrong"}).status_code == 401
    page = client.post("/desk/login", data={"token": token})
    assert ">ada</span>" in page.text
    cookie = next(iter(client.cookies.jar))
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"


def test_a_form_without_its_secret_is_refused(client: TestClient) -> None:
    client.get("/desk")
    assert client.post("/desk/logout").status_code == 403
    assert client.post("/desk/logout", data={"csrf": "0" * 64}).status_code == 403
    page = client.get("/desk").text
    secret = page.partition('name="csrf" value="')[2].partition('"')[0]
    done = client.post("/desk/logout", headers={"x-csrf-token": secret}, follow_redirects=False)
    assert done.status_code == 303
    assert not client.cookies
    page = client.get("/desk").text
    secret = page.partition('name="csrf" value="')[2].partition('"')[0]
    assert client.post("/desk/logout", data={"csrf": secret}, follow_redirects=False).status_code == 303


def test_the_login_of_the_local_person_ends_with_the_first_token(client: TestClient) -> None:
    assert ">local</span>" in client.get("/desk").text
    with_person(client)
    assert client.get("/desk").url.path == "/desk/login"
    assert client.get("/v1/overview").status_code == 401


def test_the_server_answers_to_its_own_names_alone(client: TestClient) -> None:
    refused = client.get("/desk", headers={"host": "evil.example"})
    assert refused.status_code == 421
    assert client.get("/desk", headers={"host": "localhost:8080"}).status_code == 200


def test_pages_of_other_sites_cannot_send_anything(client: TestClient) -> None:
    refused = client.post("/desk/login", data={"token": "x"}, headers={"origin": "https://evil.example"})
    assert refused.status_code == 403
    assert "other sites" in refused.json()["error"]


def test_every_answer_forbids_what_pages_do_not_need(client: TestClient) -> None:
    for path in ("/desk", "/desk/static/desk.css", "/nowhere"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_names_are_escaped_in_pages(tmp_path: Path, kinds: Fitted) -> None:
    with serving(kinds, tmp_path / "desk", name="<script>alert(1)<script>") as client:
        page = client.get("/desk").text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_paths_lead_to_no_file_outside(client: TestClient) -> None:
    for path in ("/desk/static/../router.py", "/desk/static/%2e%2e/router.py", "/desk/static//etc/passwd"):
        assert client.get(path).status_code == 404


def test_large_bodies_are_refused_said_or_not(tmp_path: Path, kinds: Fitted) -> None:
    with serving(kinds, tmp_path / "desk", max_body=1000) as client:
        said = client.post("/desk/login", content=b"token=" + b"x" * 2000)
        parts = (b"x" * 100 for _ in range(20))
        form = {"content-type": "application/x-www-form-urlencoded"}
        unsaid = client.post("/desk/login", content=parts, headers=form)
    assert (said.status_code, unsaid.status_code) == (413, 413)


def test_a_rate_limit_lets_a_burst_through_and_then_a_steady_stream() -> None:
    now = 0.0
    limit = RateLimit(2.0, 3, clock=lambda: now)
    assert [limit.wait("ada") for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.wait("ben") == 0
    now = 0.5
    assert limit.wait("ada") == 0
    assert limit.wait("ada") == 0.5


def test_callers_beyond_the_rate_are_told_when_to_come_again(tmp_path: Path, kinds: Fitted) -> None:
    with serving(kinds, tmp_path / "desk", rate=0.001, burst=2) as client:
        answers = [client.get("/desk/static/desk.css") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False)],
)
def test_addresses_of_this_machine_are_known(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize(
    "wrong",
    [{"port": 70000}, {"max_rows": 0}, {"level": 1.0}, {"random_share": 2}, {"lease": 0}, {"name": "a/b"}],
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServeSettings("model", **wrong)  # type: ignore[arg-type]
