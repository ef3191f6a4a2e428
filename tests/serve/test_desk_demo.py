"""The demo: a desk with a past, at which a visitor labels at once. The pictures of the docs are made here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.serve.site import CHROMIUM, FLAGS, Clock, log_in, running

from bayesdrop.serve.demo import DIABETES, DIGITS, Stage, prepare, seeded

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: where the pictures go: BAYESDROP_SCREENSHOTS=docs/assets renews those of the docs
PLACE = os.environ.get("BAYESDROP_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra e2e)")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield opened
        opened.close()


def staged(name: str, folder: Path, rows: int, labels: int) -> tuple[Stage, Clock]:
    clock = Clock()
    stage = prepare(name, folder)
    options = {"rows": rows, "labels": labels, "now": clock.now}
    # In another thread: the browser has a loop in this one. The past is told once.
    with ThreadPoolExecutor(1) as pool:
        assert [pool.submit(partial(seeded, stage, **options)).result() for _ in range(2)] == [rows, 0]
    return stage, clock


def pictured(tab: Any, name: str, folder: Path, *, whole_page: bool = True) -> None:
    """A picture of the page, of at most 150 kB."""
    path = (Path(PLACE) if PLACE else folder) / f"desk-{name}.png"
    tab.screenshot(path=path, full_page=whole_page)
    from PIL import Image

    with Image.open(path) as whole:
        few = whole.convert("RGB").quantize(128)
    few.save(path, optimize=True)
    assert 5_000 < path.stat().st_size < 150_000


def test_a_visitor_labels_digits_at_once(browser: Any, tmp_path: Path) -> None:
    stage, clock = staged(DIGITS, tmp_path, 600, 130)
    with running(stage.settings, clock) as site:
        before = site.service.store.overview.counts()
        assert before.queued >= 20
        assert before.labels >= 100
        with log_in(browser, site) as tab:
            pictured(tab, "queue", tmp_path)
            tab.keyboard.press("?")
            pictured(tab, "keys", tmp_path, whole_page=False)
            tab.keyboard.press("Escape")
            tab.wait_for_selector("#help", state="hidden")
            for key in "38":
                with tab.expect_navigation():
                    tab.keyboard.press(key)
            assert site.service.store.overview.counts().labels == before.labels + 2
            tab.goto(f"{site.address}/desk/health")
            titles = tab.locator(".chart figcaption").all_inner_texts()
            assert titles[:2] == ["Accuracy beside the promise", "Calibration"]
            assert {"Handed over to people", "Uncertainty", "Drift of inputs", "Labels"} <= set(titles)
            pictured(tab, "health", tmp_path)
        phone = {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark", "has_touch": True}
        with log_in(browser, site, **phone) as tab:
            pictured(tab, "phone", tmp_path)


def test_a_visitor_labels_a_table_at_once(browser: Any, tmp_path: Path) -> None:
    stage, clock = staged(DIABETES, tmp_path, 240, 25)
    with running(stage.settings, clock) as site, log_in(browser, site) as tab:
        item = tab.get_attribute(".item", "data-item")
        assert "Learned from" in tab.inner_text("table.cells")
        assert tab.is_visible(".interval svg") or tab.is_visible("text=picked at random")
        pictured(tab, "table", tmp_path)
        tab.keyboard.type("151.5")
        with tab.expect_navigation():
            tab.keyboard.press("Enter")
        # It may be an item that somebody else has been asked about too.
        assert 151.5 in [label.value for label in site.service.store.overview.item(item).labels]
        tab.goto(f"{site.address}/desk/health")
        assert "Adaptive interval" in tab.inner_text("dl.tiles")
        assert tab.locator(".chart figcaption").all_inner_texts()[0] == "Coverage beside the promise"
