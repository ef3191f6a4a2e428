"""The command line: what it prints, where it writes, how it refuses."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bayesdrop
import bayesdrop.demo
from bayesdrop.cli import build_app, main


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that takes a second."""
    config = partial(bayesdrop.demo.DemoConfig, epochs=2, width=16)
    monkeypatch.setattr(bayesdrop.demo, "DemoConfig", config)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("trained before the arguments were checked")

    monkeypatch.setattr(bayesdrop.demo, "run_demo", refuse)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_version_is_the_packages() -> None:
    result = invoke("version")
    assert (result.exit_code, result.stdout) == (0, f"{bayesdrop.__version__}\n")


def test_help_names_the_commands() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("demo", "audit", "experiments", "version"):
        assert command in result.stdout


@pytest.mark.usefixtures("quick")
def test_demo_writes_a_picture_and_prints_the_table(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    result = invoke("demo", "-o", str(picture), "--draws", "10")
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]
    for piece in ("RMSE", "log-likelihood", "95 %", "MC dropout", "standard dropout", "10 draws"):
        assert piece in result.stdout
    assert f"Picture: {picture}\n" in result.stdout
    assert "Training" in result.stderr


@pytest.mark.usefixtures("quick")
def test_quiet_prints_the_path_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("demo", "--quiet", "--draws", "2")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / 'bayesdrop-demo.png'}\n"
    assert result.stderr == ""
    assert (tmp_path / "bayesdrop-demo.png").exists()


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "none/picture.png"), "in a folder that exists"),
        (("-o", "picture.jpg"), ".png, .pdf or .svg"),
        (("-o", "folder.png"), "not a folder"),
        (("--draws", "1"), "--draws"),
        (("--draws", "many"), "--draws"),
        (("--seed", "-1"), "--seed"),
        (("--sed", "1"), "--sed"),
    ],
)
def test_bad_input_is_refused_before_training(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.png").mkdir()
    result = invoke("demo", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


@pytest.mark.usefixtures("quick")
def test_a_disk_that_fails_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bayesdrop.plots.save_figure", full)
    result = invoke("demo", "-o", str(tmp_path / "a.png"), "--draws", "2", "-q")
    assert result.exit_code == 1
    assert "could not be written" in result.stderr
    assert "No space left" in result.stderr


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("module", "extra"),
    [("typer", "cli"), ("matplotlib.figure", "plot"), ("statsmodels.datasets.co2", "data")],
)
def test_a_missing_extra_is_named(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "argv", ["bayesdrop", "demo"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    shown = capsys.readouterr()
    assert f"pip install '.[{extra}]'" in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_the_package_runs_as_a_module_and_imports_only_what_a_command_needs() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "bayesdrop", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{bayesdrop.__version__}\n"
    modules = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    packages = {module.split(".")[0] for module in modules}
    assert "typer" in packages
    assert not packages & {"matplotlib", "pandas", "statsmodels"}
    assert not any(module.startswith(("bayesdrop.demo", "bayesdrop.experiments")) for module in modules)


@pytest.mark.parametrize(
    "words", [["--version"], ["version"], ["--help"], ["fit", "--help"], ["experiments", "run", "--help"]]
)
def test_help_and_version_do_without_torch(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "bayesdrop", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    packages = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert not packages & {"torch", "numpy", "pandas", "sklearn"}
    assert "Usage" in done.stdout or done.stdout == f"{bayesdrop.__version__}\n"


PUBLIC = """
import sys
import bayesdrop.predict.call, bayesdrop.fit, bayesdrop.audit
assert "bayesdrop.public" not in sys.modules
import bayesdrop
for name in ("predict", "fit", "audit"):
    assert getattr(bayesdrop, name).__name__ == name and callable(getattr(bayesdrop, name)), name
assert {"Gaussian", "metrics", "predict", "__version__"} <= set(dir(bayesdrop))
from bayesdrop import *
assert Gaussian is bayesdrop.Gaussian
"""


def test_a_function_is_not_hidden_by_the_package_of_its_name() -> None:
    subprocess.run([sys.executable, "-c", PUBLIC], check=True)


MODULE = """
import torch
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2), nn.Dropout(0.0))
    return model, torch.zeros(2, 4)

def wrong():
    return 3
"""


def test_audit_lists_what_is_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audited_by_the_command_line.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    result = invoke("audit", "audited_by_the_command_line:build")
    assert result.exit_code == 0, result.output
    for piece in ("1 of 2 sites are random", "Dropout", "0.5", "off: p = 0"):
        assert piece in result.stdout


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("audited_by_the_command_line:wrong", "returns int"),
        ("audited_by_the_command_line:missing", "missing"),
        ("no_such_module_anywhere:build", "there is no module"),
        ("audited_by_the_command_line", "package.module:function"),
    ],
)
def test_audit_refuses_what_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, sentence: str
) -> None:
    (tmp_path / "audited_by_the_command_line.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    result = invoke("audit", target)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output
