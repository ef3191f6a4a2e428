"""Pages of the desk without a browser: who may do what, and what is shown of an item."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import httpx2 as httpx
import pytest
from tests.serve.site import EVIL, Clock, Site, running, write_model

from bayesdrop.serve.desk.charts import drift_chart, people_chart
from bayesdrop.serve.desk.showing import choices_of, show
from bayesdrop.serve.promises import Drift
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.serve.store import Item, SavedPrediction


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    settings = ServeSettings(
        str(write_model(folder)), name="three", home=folder / "home", refit_apart=False, poll=600.0
    )
    with running(settings, Clock()) as made:
        yield made


@contextmanager
def visitor(site: Site, token: str) -> Iterator[tuple[httpx.Client, str]]:
    """Somebody who is logged in, and what their forms must send back."""
    with httpx.Client(base_url=site.address, follow_redirects=True, timeout=60) as client:
        page = client.post("/desk/login", data={"token": token})
        yield client, re.findall('name="csrf" value="([^"]+)"', page.text)[0]


def test_strangers_are_sent_to_the_login(site: Site) -> None:
    site.person("first", "admin")
    with httpx.Client(base_url=site.address, timeout=60) as client:
        for page in ("", "/items", "/health", "/versions", "/data"):
            answer = client.get(f"/desk{page}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/desk/login")
        assert client.post("/desk/label", data={"item": "x", "value": "one"}).status_code == 401
        wrong = client.post("/desk/login", data={"token": EVIL})
        assert wrong.status_code == 401
        assert EVIL not in wrong.text


def test_readers_look_and_change_nothing(site: Site) -> None:
    item = site.ask(0.9)
    with visitor(site, site.person("rea", "reader")) as (client, csrf):
        assert "labelling needs the role labeller" in client.get("/desk").text
        assert client.get(f"/desk/items/{item}").status_code == 200
        for action in ("label", "skip", "undo", "opinion", f"items/{item}/opinion", "versions/refit"):
            data = {"csrf": csrf, "item": item, "value": "one"}
            assert client.post(f"/desk/{action}", data=data).status_code == 403
    assert site.service.store.overview.item(item).labels == ()  # type: ignore[union-attr]


def test_forms_without_the_secret_of_the_page_are_refused(site: Site) -> None:
    with visitor(site, site.person("lab")) as (client, csrf):
        for sent in ({}, {"csrf": "x"}, {"csrf": csrf[:-1]}):
            assert client.post("/desk/undo", data=sent).status_code == 403
        assert client.post("/desk/undo", data={"csrf": csrf}).status_code == 200
        elsewhere = {"origin": "https://elsewhere.example"}
        assert client.post("/desk/undo", data={"csrf": csrf}, headers=elsewhere).status_code == 403


def test_what_is_no_answer_is_not_saved(site: Site) -> None:
    site.ask(0.99)
    with visitor(site, site.person("cat")) as (client, csrf):
        item = re.findall('data-item="([0-9a-f]+)"', client.get("/desk").text)[0]
        page = client.post("/desk/label", data={"csrf": csrf, "item": item, "value": "a class of my own"})
        assert "not one of the answers" in page.text
        assert client.get("/desk/items/nonsense").status_code == 404
        assert client.get("/desk/items?which=nonsense").status_code == 404
        assert "nonsense" not in client.get("/desk?said=nonsense&item=nonsense").text
    assert site.service.store.overview.item(item).labels == ()  # type: ignore[union-attr]


def test_an_admin_withdraws_an_item(site: Site) -> None:
    item = site.ask(0.5)
    with visitor(site, site.person("boss", "admin")) as (client, csrf):
        page = client.post(f"/desk/items/{item}/withdraw", data={"csrf": csrf})
        assert "Nobody is asked" in page.text
    assert site.service.store.overview.item(item).state == "withdrawn"  # type: ignore[union-attr]


def test_keys_are_names_where_they_can_be_and_never_those_of_the_desk() -> None:
    assert [one.key for one in choices_of(["a", "b", "s"])] == ["1", "2", "3"]
    many = choices_of([f"class {place}" for place in range(60)])
    keys = [one.key for one in many if one.key]
    assert keys[:10] == list("1234567890")
    assert len(set(keys)) == len(keys)
    assert not set(keys) & set("sunmo?")
    assert len(many) == 60


def item(answer: dict[str, Any], data: dict[str, Any]) -> Item:
    said = SavedPrediction(1, 10, 0, 0.9, answer, 0.5, True, "std = 3, above 2", 0.0)
    return Item("i", "r", 0, None, data, "queued", False, 0.5, 1, 0.0, (said,), (), 250.0)


def test_an_interval_is_drawn_in_its_place() -> None:
    served: Any = SimpleNamespace(classes=(), about={}, kind="torch", task="regression")
    shown = show(
        item({"mean": 5.0, "lower": 0.0, "upper": 10.0, "std": 3.0}, {"x": [1.0, 2.0]}), served, now=10.0
    )
    assert shown.interval is not None
    picture = shown.interval.picture
    assert picture is not None
    assert picture["mean"] == pytest.approx(picture["lower"] + picture["width"] / 2)
    assert shown.interval.level == "90 %"
    assert (shown.seconds, shown.lease_text) == (240, "4:00")
    assert [(cell.name, cell.value) for cell in shown.cells] == [("x", "[1.0, 2.0]")]
    # An end without a bound is told, not drawn.
    shown = show(item({"mean": 5.0, "lower": None, "upper": 10.0}, {"x": 1}), served, now=0.0)
    assert shown.interval is not None
    assert (shown.interval.lower, shown.interval.picture) == ("unknown", None)


def test_an_image_that_is_none_is_shown_as_a_text() -> None:
    served: Any = SimpleNamespace(classes=(), about={}, kind="image", task="classification")
    for content in ("javascript:alert(1)", "PHN2Zz4=", 7):
        found = show(item({}, {"image": content}), served, now=0.0)
        assert found.image == ""
        assert found.cells
    assert replace(found, reason="").why == ""


def test_names_in_pictures_are_texts() -> None:
    people = [(EVIL, 0.0), ("_hidden", 60.0), ("$\\frac", 90.0), *((f"p{n}", 100.0 + n) for n in range(9))]
    for svg in (people_chart(people), drift_chart([Drift(EVIL, 0.5, 0.2), Drift("$\\x$", 0.1, 0.2)])):
        root = ElementTree.fromstring(str(svg))
        assert not list(root.iter("script"))
        assert not list(root.iter("img"))
        assert any("script" in "".join(text.itertext()) for text in root.iter("text"))
