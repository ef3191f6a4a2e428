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


# A process that leaves while the other's connection threads still run may be aborted by them, now and then:
# both have said what they found, so both go at once.
_LEAVE = """
import os, sys
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def run_on_two_ranks(tmp_path: Path) -> Callable[[str], str]:
    """Runs the text of a program under torchrun with two processes, and gives what they print.

    The program starts the process group, as `dist`, and leaves its end to this.
    """

    def run(text: str) -> str:
        program = tmp_path / "program.py"
        program.write_text(text + _LEAVE)
        options = ["--standalone", "--nproc-per-node=2"]
        command = [sys.executable, "-m", "torch.distributed.run", *options, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        return done.stdout

    return run
