"""SIGKILL in the middle of requests and labels: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.serve.models import Fitted

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("serve_kills")
    sys.modules.pop("serve_kills", None)


def test_nothing_acknowledged_is_lost_or_doubled_by_kills(
    kills: Any, kinds: Fitted, database_url: str, tmp_path: Path
) -> None:
    program = str(Path(__file__).with_name("nursery.py"))
    nursery = subprocess.Popen(
        [sys.executable, program, str(kinds.folder), str(tmp_path), database_url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    started: list[int] = []

    def start() -> Any:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write("start\n")
        nursery.stdin.flush()
        line = nursery.stdout.readline()
        nursery.stdout.readline()  # where the desk is
        number = int(line.split()[0])
        started.append(number)
        return kills.Running(int(line.rsplit(":", 1)[1]), lambda: os.kill(number, signal.SIGKILL))

    try:
        assert nursery.stdout.readline() == "ready\n"
        found = kills.survive(start, database_url, kinds.rows, kills=4, requests=40, labels=8)
    finally:
        nursery.kill()
        nursery.wait()
        for stream in (nursery.stdin, nursery.stdout):
            stream.close()
    assert len(started) == 5
    assert found["requests"] >= 60
    assert found["labels"] >= 4
    bad = ("lost", "doubled", "unanswered", "refused", "items without", "damaged")
    assert {name: count for name, count in found.items() if name.startswith(bad) and count} == {}
