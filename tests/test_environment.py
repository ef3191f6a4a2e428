"""What must not creep into the environment, and what importing the package may cost."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys

import pytest
import torch

import bayesdrop


def test_torchvision_is_absent() -> None:
    """Its presence breaks other libraries where no build of it fits torch."""
    assert importlib.util.find_spec("torchvision") is None, "uninstall torchvision: nothing here needs it"


@pytest.mark.skipif(
    os.environ.get("BAYESDROP_ALLOW_CUDA") == "1",
    reason="a CUDA build was asked for by BAYESDROP_ALLOW_CUDA=1",
)
def test_torch_is_a_cpu_build() -> None:
    advice = "install with -c constraints.txt, or set BAYESDROP_ALLOW_CUDA=1 if a CUDA build is meant"
    assert torch.version.cuda is None, f"torch {torch.__version__} is a CUDA build: {advice}"
    brought = [
        name
        for distribution in importlib.metadata.distributions()
        if (name := distribution.metadata["Name"] or "").lower().startswith(("nvidia-cu", "triton"))
    ]
    assert not brought, f"{brought} came with a CUDA build: {advice}"


def imported(program: str) -> set[str]:
    """The modules that a program brings in beyond those of the dependencies that it starts with."""
    before = "import sys, torch, numpy, numpy.random\nbefore = set(sys.modules)\n"
    after = "\nprint(*sorted(set(sys.modules) - before))"
    command = [sys.executable, "-c", before + program + after]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


EAGER = {
    *("audit", "draws", "errors", "fit", "functional", "inputs", "layers", "likelihoods", "metrics"),
    *("models", "objectives", "predict", "progress", "randomness", "storage", "version"),
}
ON_DEMAND = {
    *("acquire", "calibration", "data", "estimators", "experiments", "gp", "linear", "plots", "stacked"),
    "tables",
}


def test_importing_the_package_costs_little_over_torch() -> None:
    """What an import costs is what it imports: our own small files and the standard library, nothing else."""
    found = imported("import bayesdrop")
    others = {name for name in found if name.split(".")[0] != "bayesdrop"}
    foreign = {name for name in others if name.split(".")[0] not in sys.stdlib_module_names}
    assert not foreign
    assert len(others) < 30
    ours = found - others
    assert {name.split(".")[1] for name in ours if "." in name} <= EAGER
    assert len(ours) < 170


@pytest.mark.parametrize("name", sorted(ON_DEMAND))
def test_packages_are_imported_when_they_are_asked_for(name: str) -> None:
    module = getattr(bayesdrop, name)
    assert module is importlib.import_module(f"bayesdrop.{name}")
    assert name in dir(bayesdrop)


def test_asking_for_one_package_brings_no_extra_that_it_does_not_use() -> None:
    extras = {"matplotlib", "pandas", "statsmodels", "typer", "rich", "sklearn", "scipy", "optuna", "pyarrow"}
    asked = "import bayesdrop as bd\nbd.acquire, bd.calibration, bd.data, bd.gp, bd.plots, bd.stacked"
    found = imported(f"{asked}, bd.layers, bd.likelihoods, bd.functional, bd.objectives\ndir(bd)")
    assert not extras & {name.split(".")[0] for name in found}
    assert {"bayesdrop.gp", "bayesdrop.plots"} <= found
    assert not {"bayesdrop.linear", "bayesdrop.tables", "bayesdrop.experiments"} & found


def test_a_package_whose_extra_is_missing_says_which() -> None:
    program = """
import sys
sys.modules["sklearn"] = None
import bayesdrop
try:
    bayesdrop.linear
except bayesdrop.errors.MissingExtra as error:
    print(error, file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "bayesdrop.linear needs sklearn" in run.stderr
    assert "pip install '.[sklearn]'" in run.stderr


def test_what_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'linaer'"):
        _ = bayesdrop.linaer  # type: ignore[attr-defined]
