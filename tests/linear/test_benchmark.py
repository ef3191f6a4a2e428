"""The benchmark of linear models runs, and its page shows what it found."""

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
    yield import_module("linear")
    for name in ("linear", "networks"):
        sys.modules.pop(name, None)


def test_a_quick_run_writes_ratios(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "linear.json"
    output.write_text(json.dumps({"cases": {"books-1e-4": {"not_run": "earlier"}}}))
    benchmark.main(["--quick", "--cases", "dense-std", "path", "simulation", "--output", str(output)])
    found = json.loads(output.read_text())
    assert set(found["cases"]) == {"books-1e-4", "dense-std", "path", "simulation"}
    assert all(case["ratio"] > 0 for name, case in found["cases"].items() if name != "books-1e-4")
    assert "not run: earlier" in benchmark.report(found)
    assert benchmark.report(found) in capsys.readouterr().out


def test_the_page_shows_what_the_last_run_found(benchmark: Any) -> None:
    found = json.loads(benchmark.RESULTS.read_text())
    page = benchmark.PAGE.read_text()
    assert not found["quick"]
    assert set(found["cases"]) == set(benchmark.CASES)
    assert benchmark.rewritten(page, benchmark.report(found)) == page


def test_a_bar_that_is_missed_is_shown_as_missed(benchmark: Any) -> None:
    case = {"title": "t", "peer": "p", "ratio": 2.0, "bar": 1.5, "unit": "of its time, at most"}
    found = {"sklearn": "1", "numpy": "2", "cases": {"books-1e-4": case}}
    assert "2 (misses its bar) of its time | at most 1.5" in benchmark.report(found)
    case["ratio"] = 1.0
    assert "**1** of its time" in benchmark.report(found)


def test_a_page_without_markers_is_refused(benchmark: Any) -> None:
    with pytest.raises(ValueError, match="must hold"):
        benchmark.rewritten("# Linear", "table")
