"""The speed benchmark runs, and the page shows what it found."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("stacked")
    sys.modules.pop("stacked", None)


def test_a_quick_run_compares_the_ways(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "SPLITS", 2)
    monkeypatch.setattr(benchmark, "SETTINGS", 2)
    output, page = tmp_path / "stacked.json", tmp_path / "stacked.md"
    page.write_text(f"# Page\n{benchmark.START}\n{benchmark.END}\n")
    benchmark.main(["--quick", "--output", str(output), "--page", str(page)])
    found = json.loads(output.read_text())
    assert set(found["networks"]) == set(benchmark.NETWORKS)
    assert all(case["ratio"] > 0 for case in found["networks"].values())
    assert benchmark.report(found) in capsys.readouterr().out
    assert benchmark.report(found) in page.read_text()


def test_the_page_shows_what_the_last_run_found(benchmark: Any) -> None:
    found = json.loads(benchmark.RESULTS.read_text())
    assert not found["quick"]
    assert benchmark.report(found) in benchmark.PAGE.read_text()
    assert found["networks"]["13-50-1"]["ratio"] >= found["bar"]


def test_a_page_without_markers_is_refused(benchmark: Any) -> None:
    with pytest.raises(ValueError, match="must hold"):
        benchmark.rewritten("# Many", "table")
