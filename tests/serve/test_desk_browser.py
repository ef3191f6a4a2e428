"""The desk in a real browser: keys, leases, two people at once, hostile names, a new version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serve.site import (
    CHROMIUM,
    CLASSES,
    EVIL,
    FLAGS,
    Clock,
    Site,
    log_in,
    picture,
    running,
    write_model,
)

from bayesdrop.serve.settings import ServeSettings

pytestmark = pytest.mark.browser

#: elements that reach beyond the page; inside a box that scrolls they may
OVERFLOWING = """() => [...document.body.querySelectorAll('*')].filter(e => {
  if (e.closest('.wide, nav') && !e.matches('.wide, nav')) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 120))"""
#: contrast of every text that is shown with what is behind it, by WCAG 2; the least one
CONTRAST = """() => {
  const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const parse = (s) => s.match(/[\\d.]+/g).map(Number);
  let worst = [21, ''];
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (!e.checkVisibility()) continue;
    let back = e;
    while (back && (parse(getComputedStyle(back).backgroundColor)[3] ?? 1) === 0) back = back.parentElement;
    const ink = light(parse(getComputedStyle(e).color));
    const page = back ? light(parse(getComputedStyle(back).backgroundColor)) : 1;
    const ratio = (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 100)];
  }
  return worst;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra e2e)")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def site(model: Path, tmp_path: Path) -> Iterator[Site]:
    settings = ServeSettings(str(model), name="three", home=tmp_path, refit_apart=False, poll=600.0)
    with running(settings, Clock()) as made:
        yield made


def said(tab: Any) -> str:
    return str(tab.inner_text("p.flash"))


def shown(tab: Any) -> str:
    return str(tab.get_attribute(".item", "data-item"))


def test_a_person_labels_undoes_and_skips_by_keys(site: Site, browser: Any) -> None:
    first, second, third = (site.ask(doubt) for doubt in (0.9, 0.8, 0.7))
    store = site.service.store
    with log_in(browser, site) as tab:
        assert shown(tab) == first
        tab.keyboard.press("?")
        assert tab.is_visible("#help")
        tab.keyboard.press("1")  # says nothing while the help is open
        tab.keyboard.press("Escape")
        tab.wait_for_selector("#help", state="hidden")
        tab.keyboard.press("n")
        tab.keyboard.type("12 s u ?")  # a note is a note
        tab.keyboard.press("Escape")
        with tab.expect_navigation():
            tab.keyboard.press("2")
        assert said(tab).startswith("Saved.")
        assert shown(tab) == second
        (label,) = store.overview.item(first).labels
        assert (label.value, label.note, label.person) == ("one", "12 s u ?", "local")
        with tab.expect_navigation():
            tab.keyboard.press("u")
        assert shown(tab) == first
        assert store.overview.item(first).labels == ()
        with tab.expect_navigation():
            tab.keyboard.press("3")
        assert store.overview.item(first).agreed == CLASSES[2]
        with tab.expect_navigation():
            tab.keyboard.press("s")
        assert shown(tab) == third
        with tab.expect_navigation():
            tab.click("text=zero")
        assert "Nothing waits for you" in tab.inner_text("main")
        assert store.overview.item(second).state == "queued"  # for somebody else
        assert [store.overview.item(one).state for one in (first, third)] == ["done", "done"]


def test_a_lease_that_ran_out_saves_nothing_and_says_so(site: Site, browser: Any) -> None:
    item = site.ask(0.9)
    with log_in(browser, site) as tab:
        assert tab.inner_text("#lease span") in ("5:00", "4:59", "4:58", "4:57")
        site.clock.now += 301
        with tab.expect_navigation():
            tab.keyboard.press("1")
        assert "run out" in said(tab)
        assert site.service.store.overview.item(item).labels == ()
        assert shown(tab) == item  # it was still free, and is theirs anew
        with tab.expect_navigation():
            tab.keyboard.press("1")
        assert said(tab).startswith("Saved.")


def test_two_people_get_different_items_and_a_second_opinion_shows_disagreement(
    site: Site, browser: Any
) -> None:
    ada, ben = site.person("ada"), site.person("ben")
    first, second = site.ask(0.9), site.ask(0.8)
    with log_in(browser, site, ada) as one, log_in(browser, site, ben) as other:
        assert (shown(one), shown(other)) == (first, second)
        with one.expect_navigation():
            one.keyboard.press("o")
        assert "second person" in said(one)
        with one.expect_navigation():
            one.keyboard.press("1")
        assert "Nothing waits for you" in one.inner_text("main")
        # Ben is not told what Ada said before he has spoken.
        with other.expect_navigation():
            other.keyboard.press("2")
        assert shown(other) == first
        other.goto(f"{site.address}/desk/items/{first}")
        assert "ada" not in other.inner_text("main")
        other.goto(f"{site.address}/desk")
        with other.expect_navigation():
            other.keyboard.press("2")
        assert "differently" in said(other)
        other.click("text=Show it")
        table = other.inner_text("main")
        assert "people disagree" in table
        assert "ada" in table
        assert "ben" in table
        other.goto(f"{site.address}/desk/items?which=disagreeing")
        assert other.locator("tbody tr").count() == 1
    assert [label.value for label in site.service.store.overview.item(first).labels] == ["zero", "one"]


def test_hostile_names_cells_notes_and_classes_run_nothing_and_break_no_page(
    site: Site, browser: Any
) -> None:
    token = site.person(EVIL, "admin")
    wide = {
        EVIL: EVIL,
        "a" * 300: "b" * 3000,
        '"><svg onload=window.ran=1>': "$\\frac{1}{0}$",
        "größe \u202e": None,
    }
    items = [site.ask(0.9 - place / 100, data=wide, reason=EVIL) for place in range(3)]
    for width, scheme in ((1280, "light"), (390, "dark")):
        options = {"viewport": {"width": width, "height": 780}, "color_scheme": scheme}
        with log_in(browser, site, token, **options) as tab:
            if width > 1000:
                tab.fill("#note", EVIL)
                with tab.expect_navigation():
                    tab.keyboard.press("Escape")
                    tab.keyboard.press("3")
            for page in ("", "/items", f"/items/{items[0]}", "/health", "/versions", "/data"):
                answer = tab.goto(f"{site.address}/desk{page}")
                assert answer.status == 200
                assert "unsafe" not in answer.headers["content-security-policy"]
                assert tab.evaluate(OVERFLOWING) == [], page
                assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
                ratio, where = tab.evaluate(CONTRAST)
                assert ratio >= 4.5, (page, where)
            tab.goto(f"{site.address}/desk/items/{items[0]}")
            assert EVIL in tab.inner_text("main")


def test_a_file_is_brought_in_and_labels_are_taken_away(site: Site, browser: Any, tmp_path: Path) -> None:
    annotation = {"result": [{"type": "choices", "value": {"choices": ["one"]}}]}
    tasks = [{"data": picture(1)}, {"data": picture(2), "annotations": [annotation]}]
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps(tasks))
    with log_in(browser, site) as tab:
        tab.goto(f"{site.address}/desk/data")
        tab.set_input_files("#file", file)
        tab.click("text=Bring in >> nth=-1")
        tab.wait_for_selector("#import-said.good")
        assert tab.inner_text("#import-said") == "2 items are in the queue, 1 of them with a label."
        with tab.expect_download() as download:
            tab.click("text=Label Studio (JSON)")
        (task,) = json.loads(download.value.path().read_text())
        assert task["annotations"][0]["result"][0]["value"] == {"choices": ["one"]}
        tab.goto(f"{site.address}/desk")
        assert tab.is_visible(".picture img")


def test_training_at_the_desk_brings_a_new_version(site: Site, browser: Any) -> None:
    site.ask(0.9)
    with log_in(browser, site) as tab:
        with tab.expect_navigation():
            tab.keyboard.press("1")
        tab.goto(f"{site.address}/desk/versions")
        tab.click("text=Train now")
        tab.wait_for_selector("text=Version 2 answers now", timeout=120_000)
        assert tab.inner_text("tr:has(.tag.good) b >> nth=0") == "2"
        tab.goto(f"{site.address}/desk")
        assert "version 2" in tab.inner_text("footer")
        tab.goto(f"{site.address}/desk/versions")
        with tab.expect_navigation():
            tab.click("text=Use this one")
        assert site.service.registry.current.record.version == 1
