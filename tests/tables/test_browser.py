"""Reports in a real browser: nothing is cut off, nothing runs, nothing is fetched, by day and by night."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bayesdrop.tables import FitOptions, explain_row, fit_table
from bayesdrop.tables.evaluate import fit_evaluation
from bayesdrop.tables.explain_page import explanation_page

pytestmark = pytest.mark.browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
]
TINY = {"preset": "quick", "hidden": (8,), "epochs": 10, "num_draws": 16, "search": "none", "restarts": 2}
EVIL = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
#: names that try to run, to break out of an attribute, to be mathematics, to be wide, to turn the writing
NAMES = (
    EVIL,
    '"><svg onload=window.ran=1>',
    "$\\frac{1}{0}$ $",
    "a" * 300,
    "größe \u202e 日本 🦄",
    "&lt;b&gt;",
)


def evil_table(rows: int = 120) -> Any:
    source = np.random.default_rng(0)
    frame = pd.DataFrame({name: source.normal(size=rows).round(3).astype(str) for name in NAMES})
    for place in range(8):
        frame[f"a rather long name of column {place}"] = source.normal(size=rows).astype(str)
    frame["kind"] = source.choice([EVIL, "</svg></style><b>b", "c" * 200], rows)
    return frame.assign(number=(source.normal(size=rows) * 1e6).round(1).astype(str))


def wide_table(rows: int = 300) -> Any:
    """40 columns and 12 labels, whose names have 80 characters and begin alike."""
    source = np.random.default_rng(1)
    name = "the measured concentration of substance {} in the water of the river, in milligrams"
    columns = {name.format(place)[:80]: source.normal(size=rows) * 10 ** (place % 7) for place in range(38)}
    frame = pd.DataFrame({**columns, "x" * 80: source.normal(size=rows)}).round(3)
    frame["sort"] = source.choice(
        [f"a value that goes on and on, number {place}" for place in range(6)], rows
    )
    labels = [
        f"the label of the kind with the number {place}, with a long name to the end" for place in range(12)
    ]
    frame["kind"] = source.choice(labels, rows)
    return frame.assign(price=-1e6 * frame["x" * 80]).astype(str)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    evil, wide, written = evil_table(), wide_table(), {}
    for name, target, frame in (
        ("numbers", "number", evil),
        ("labels", "kind", evil),
        ("wide-numbers", "price", wide),
        ("wide-labels", "kind", wide),
    ):
        fitted = fit_table(frame, FitOptions(target, estimator=TINY, held_out=0.5))
        found = explain_row(fitted.model, frame.iloc[[0]])
        for kind, page in (
            ("report", fit_evaluation(fitted).report(f"{EVIL} of {target}")),
            ("explanation", explanation_page(found, EVIL)),
        ):
            path = folder / f"{kind}-{name}.html"
            path.write_text(page, encoding="utf-8")
            written[path.stem] = path
    return written


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra e2e)")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        context = started.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"), executable_path=CHROMIUM, headless=True, args=FLAGS
        )
        yield context
        context.close()


#: elements that reach beyond the page; inside a box that scrolls they may
OVERFLOWING = """() => [...document.body.querySelectorAll('*')].filter(e => {
  if (e.closest('.wide') && !e.matches('.wide')) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 120))"""
#: texts of pictures that reach beyond their picture
CUT_OFF = """() => [...document.querySelectorAll('svg text')].filter(e => {
  const box = e.getBoundingClientRect(), all = e.ownerSVGElement.getBoundingClientRect();
  return box.left < all.left - 3 || box.right > all.right + 3 ||
    box.top < all.top - 3 || box.bottom > all.bottom + 3;
}).map(e => e.textContent)"""
#: boxes of tables that are wider than the page
SCROLLING = """() => [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.textContent.slice(0, 120))"""
ACTIVE = """() => [...document.querySelectorAll('*')].filter(e =>
  e.matches('script, iframe, object, embed, link, img, image, foreignObject, a, form, base') ||
  [...e.attributes].some(a => a.name.startsWith('on'))).map(e => e.outerHTML.slice(0, 120))"""
COLORS = "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]; }"


def luminance(color: str) -> float:
    """Of "rgb(r, g, b)", as the guidelines for accessible pages (WCAG 2) define it."""
    parts = [float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize(
    "name",
    [
        f"{kind}-{of}"
        for kind in ("report", "explanation")
        for of in ("numbers", "labels", "wide-numbers", "wide-labels")
    ],
)
def test_a_page_is_whole_and_harmless(
    name: str, browser: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    path = pages[name]
    assert path.stat().st_size < 500_000
    shots, backgrounds = {}, {}
    for width in (1400, 420):
        for scheme in ("light", "dark"):
            tab = browser.new_page()
            seen: list[str] = []
            tab.on("dialog", lambda dialog, seen=seen: (seen.append(dialog.message), dialog.dismiss()))
            tab.on("console", lambda message, seen=seen: seen.append(message.text))
            tab.on("pageerror", lambda error, seen=seen: seen.append(str(error)))
            tab.on("request", lambda request, seen=seen: seen.append(request.url))
            tab.set_viewport_size({"width": width, "height": 900})
            tab.emulate_media(color_scheme=scheme)
            tab.goto(path.as_uri())
            shots[width, scheme] = tmp_path / f"{width}-{scheme}.png"
            tab.screenshot(path=shots[width, scheme], full_page=True)
            assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
            assert tab.evaluate(OVERFLOWING) == []
            assert tab.evaluate(CUT_OFF) == []
            # Of all tables, only that of labels by labels may need to be moved, and on a phone only.
            assert len(tab.evaluate(SCROLLING)) <= (width == 420 and name.startswith("report"))
            assert tab.evaluate(ACTIVE) == []
            assert tab.evaluate("() => window.ran === undefined")
            assert seen == [path.as_uri()]
            ink, back = map(luminance, tab.evaluate(COLORS))
            assert (max(ink, back) + 0.05) / (min(ink, back) + 0.05) > 7
            backgrounds[scheme] = back
            tab.close()
    assert backgrounds["dark"] < 0.05
    assert backgrounds["light"] > 0.9
    for (width, scheme), shot in shots.items():
        with Image.open(shot) as picture:
            assert picture.width == width
            assert (np.asarray(picture.convert("L")).mean() > 128) == (scheme == "light")


def test_a_page_prints_on_paper_of_its_width(browser: Any, pages: dict[str, Path]) -> None:
    for name in ("report-numbers", "report-labels"):
        tab = browser.new_page()
        tab.set_viewport_size({"width": 720, "height": 1000})
        tab.emulate_media(media="print", color_scheme="dark")
        tab.goto(pages[name].as_uri())
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= 720
        # On paper the ink is dark, whatever the screen is.
        ink, back = map(luminance, tab.evaluate(COLORS))
        assert ink < 0.05
        assert back > 0.9
        printed = BytesIO(tab.pdf(format="A4")).getvalue()
        assert printed.startswith(b"%PDF")
        tab.close()


def test_the_checks_of_this_file_can_fail(browser: Any, tmp_path: Path) -> None:
    """A page that runs, overflows and fetches is told of."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body><script>window.ran = 1</script><div style='width: 3000px'>wide</div><img src=x></body>"
    )
    tab = browser.new_page()
    tab.set_viewport_size({"width": 420, "height": 900})
    tab.goto(bad.as_uri())
    assert tab.evaluate("() => window.ran") == 1
    assert len(tab.evaluate(OVERFLOWING)) == 1
    assert len(tab.evaluate(ACTIVE)) == 2
    tab.close()
