"""What must not creep into the environment, and what importing the package may cost."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys

import pytest
import torch


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


MEASURE = """
import time
import torch, numpy, safetensors.torch
start = time.process_time()  # other processes must not count
import bayesdrop
print(time.process_time() - start)
"""


def test_importing_the_package_costs_little_over_torch() -> None:
    def seconds() -> float:
        run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
        return float(run.stdout)

    assert min(seconds() for _ in range(3)) < 0.3


def test_importing_the_package_imports_no_extra() -> None:
    program = "import sys, bayesdrop; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    extras = {"matplotlib", "pandas", "statsmodels", "typer", "rich", "sklearn", "scipy"}
    assert not extras & set(run.stdout.split())
