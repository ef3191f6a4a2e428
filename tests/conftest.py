"""Shared by all tests: one thread, so that timings and float sums do not depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_start() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def run_on_two_ranks(tmp_path: Path) -> Callable[[str], str]:
    """Runs the text of a program under torchrun with two processes, and gives what they print."""

    def run(text: str) -> str:
        program = tmp_path / "program.py"
        program.write_text(text)
        options = ["--standalone", "--nproc-per-node=2"]
        command = [sys.executable, "-m", "torch.distributed.run", *options, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run
