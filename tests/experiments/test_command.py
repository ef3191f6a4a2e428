"""`bayesdrop experiments`: what it lists, runs, prints and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bayesdrop.cli import build_app
from bayesdrop.data import DataNotFound
from bayesdrop.experiments import load_experiment
from bayesdrop.experiments.record import NotReusable

pytestmark = pytest.mark.usefixtures("toy")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def invoke(*arguments: str) -> Any:
    environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(build_app(), ["experiments", *arguments], env=environment)


def test_list_has_a_line_for_each() -> None:
    result = invoke("list")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("toy2020-squares "))
    assert line.endswith("  Toy (2020), Table 1: the squares of small numbers.")


def test_run_writes_and_prints() -> None:
    result = invoke("run", "toy2020-squares")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in Path("results").iterdir()) == [
        "toy2020-squares.json",
        "toy2020-squares.png",
    ]
    for piece in ("square", "9.000", "not run", "holds: Squares grow.", "Four was not tried."):
        assert piece in result.stdout
    assert f"Written: {Path('results/toy2020-squares.json').resolve()}\n" in result.stdout


def test_run_takes_a_preset_settings_and_a_folder() -> None:
    options = ("--preset", "quick", "--set", "power=3", "--set", "numbers=2,5", "-o", "elsewhere")
    result = invoke("run", "toy2020-squares", *options)
    assert result.exit_code == 0, result.output
    assert "125.0" in result.stdout
    assert "preset quick, power = 3.0, numbers = [2, 5]" in result.stdout
    assert Path("elsewhere/toy2020-squares-quick-custom.json").exists()


def test_fresh_computes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("run", "toy2020-squares")
    module = load_experiment("toy2020-squares").module
    monkeypatch.setattr(module, "piece", lambda key: {"value": 55.0})
    assert "55.00" not in invoke("run", "toy2020-squares").stdout
    assert "55.00" in invoke("run", "toy2020-squares", "--fresh").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "toy2020-sqares"), "Did you mean 'toy2020-squares'?"),
        (("run", "toy2020-squares", "--preset", "quik"), "Did you mean 'quick'?"),
        (("run", "toy2020-squares", "--preset", "smoke", "--quick"), "--quick is --preset quick"),
        (("run", "toy2020-squares", "--set", "power"), "KEY=VALUE"),
        (("run", "toy2020-squares", "--set", "pover=2"), "Did you mean 'power'?"),
        (("run", "toy2020-squares", "--set", "power=two"), "must be a number"),
        (("run", "toy2020-squares", "--processes", "0"), "--processes"),
        (("run", "toy2020-squares", "-o", "file"), "must be a folder"),
        (("run", "toy2020-squares", "--from", "file"), "None: it cannot use a results file"),
        (("run", "gal2016-uci-table1", "--from", "nowhere"), "nowhere, which is not there"),
        (("run", "gal2016-uci-table1", "--from", "file"), "file is not a results file"),
        (("table", "toy2020-sqares"), "Did you mean 'toy2020-squares'?"),
    ],
)
def test_what_is_asked_wrongly_is_refused_before_the_run(arguments: tuple[str, ...], sentence: str) -> None:
    Path("file").touch()
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert [path.name for path in Path().iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (DataNotFound("MNIST is not here."), 1, "MNIST is not here."),
        (NotReusable("Another version."), 1, "Another version."),
        (KeyboardInterrupt(), 130, "goes on from"),
    ],
)
def test_a_run_that_cannot_end_says_so(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, sentence: str
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(load_experiment("toy2020-squares").module, "run", fail)
    result = invoke("run", "toy2020-squares")
    assert result.exit_code == code
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_table_reads_results_and_names_gaps() -> None:
    result = invoke("table", "toy2020-squares")
    assert result.exit_code == 0, result.output
    assert "toy2020-squares: not run" in result.stdout
    invoke("run", "toy2020-squares")
    invoke("run", "toy2020-squares", "--quick")
    both = invoke("table", "toy2020-squares").stdout
    assert "preset default" in both
    assert "preset quick" in both
    one = invoke("table", "toy2020-squares-quick", "--markdown").stdout
    assert one.startswith("## Toy (2020), Table 1: the squares of small numbers\n\n| setting |")
    assert "| 2 | square | 4 | 4.000 |" in one
    assert "| 3 |" not in one
    assert "preset default" in invoke("table", "-r", "results").stdout
