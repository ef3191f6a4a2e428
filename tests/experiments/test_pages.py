"""The pages of the experiments say what the results files say."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from bayesdrop.experiments import Record, run_experiment
from bayesdrop.experiments.record import read_records, write_record

ROOT = Path(__file__).parents[2]
ADVICE = "run: python docs/render_experiments.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location(
        "render_experiments", ROOT / "docs" / "render_experiments.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_what_its_results_give(script: Any) -> None:
    pages = script.render(read_records(script.RESULTS))
    for path, text in pages.items():
        assert path.exists(), ADVICE
        assert path.read_text() == text, f"{path.name} is not up to date; {ADVICE}"
    assert set((ROOT / "docs" / "experiments").glob("*.md")) <= set(pages), ADVICE


def test_every_picture_is_of_its_results(script: Any) -> None:
    records = read_records(script.RESULTS)
    for name in script.EXPERIMENTS:
        for record in script.shown_records(name, records):
            path = script.picture_path(record)
            assert script.mark_in(path) == script.picture_mark(record), f"{path.name}: {ADVICE}"


def test_links_and_pictures_of_the_pages_are_there() -> None:
    for page in (ROOT / "docs" / "experiments").glob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.fixture
def site(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: str) -> Any:
    """The script in a project that has one experiment."""
    monkeypatch.setattr(script, "EXPERIMENTS", {"toy2020-squares": toy})
    for name, path in (("ROOT", "."), ("RESULTS", "results"), ("DOCS", "docs")):
        monkeypatch.setattr(script, name, tmp_path / path)
    (tmp_path / "results").mkdir()
    return script


def run_and_render(site: Any, **options: Any) -> Record:
    record = run_experiment("toy2020-squares", output=site.RESULTS, **options)
    site.main([])
    return record


def test_a_page_has_all_that_a_reader_asks(site: Any) -> None:
    run_and_render(site)
    run_and_render(site, preset="quick")
    run_and_render(site, preset="smoke")
    run_and_render(site, overrides={"power": "3"})
    page = (site.DOCS / "experiments" / "toy2020-squares.md").read_text()
    for piece in (
        "# Toy (2020), Table 1: the squares of small numbers\n", "More about it.", "run toy2020-squares\n",
        "| 3 | square | 9 | 9.000 |", "| 4 | square | 16 | not run | left out |", "**It holds.**",
        "- Four was not tried.", "| `numbers` | 1, 2, 3 |", "## Preset quick", "toy2020-squares-quick.png",
        "## The presets side by side", "| claim | preset default | preset quick |",
        "| Squares grow. | holds | holds |", "| setting | metric | paper | ours, default | ours, quick |",
        "| 2 | square | 4 | 4.000 | 4.000 |",
    ):  # fmt: skip
        assert piece in page
    beside = page[page.index("side by side") : page.index("## Preset default")]
    # The number 3 is in one of them alone.
    assert "| 3 |" not in beside
    assert "smoke" not in page
    assert "custom" not in page
    index = (site.DOCS / "experiments.md").read_text()
    assert "| [toy2020-squares](experiments/toy2020-squares.md) |" in index
    assert "| 3 of 4 | 1 of 1 |" in index


def test_an_experiment_without_results_is_said_not_to_be_run(site: Any) -> None:
    site.main([])
    assert "not run" in (site.DOCS / "experiments" / "toy2020-squares.md").read_text()
    assert "| not run |" in (site.DOCS / "experiments.md").read_text()


def test_new_numbers_make_the_picture_old(site: Any) -> None:
    record = run_and_render(site)
    path = site.picture_path(record)
    drawn = path.read_bytes()
    assert site.mark_in(path) == site.picture_mark(record)
    site.main([])
    assert path.read_bytes() == drawn
    rows = [dataclasses.replace(row, ours=5.0) for row in record.outcome.rows]
    changed = dataclasses.replace(record, outcome=dataclasses.replace(record.outcome, rows=rows))
    write_record(changed, site.RESULTS)
    assert site.mark_in(path) != site.picture_mark(changed)
    site.main([])
    assert site.mark_in(path) == site.picture_mark(changed)


def test_pages_of_no_experiment_are_taken_away(site: Any) -> None:
    run_and_render(site)
    for path in ("experiments/old2019.md", "assets/experiments/old2019.png"):
        (site.DOCS / path).write_text("old")
    site.main([])
    assert sorted(path.name for path in site.DOCS.rglob("*.*")) == [
        "experiments.md", "toy2020-squares.md", "toy2020-squares.png",
    ]  # fmt: skip
