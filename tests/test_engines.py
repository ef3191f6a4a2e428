"""Engines: every task once, whatever happens to workers; errors keep their type."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from bayesdrop import engines
from bayesdrop.engines import LocalEngine, RayEngine, WorkersLost, make_engine


def square(number: int) -> int:
    return number * number


def dies_once(folder: str, number: int) -> int:
    """Kills its process the first time that it sees some of the tasks."""
    mark = Path(folder) / str(number)
    if number in (0, 4) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def always_dies(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fails(number: int) -> int:
    if number == 2:
        raise FileNotFoundError(f"no file {number}")
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_all_tasks_are_run_once(workers: int) -> None:
    found = list(LocalEngine(workers).run(square, list(range(9))))
    assert sorted(found) == [(number, number * number) for number in range(9)]


def test_tasks_of_workers_that_die_are_run_again(tmp_path: Path) -> None:
    found = sorted(LocalEngine(2).run(partial(dies_once, str(tmp_path)), list(range(6))))
    assert found == [(number, number) for number in range(6)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_always_kills_its_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_MOST_DEATHS", 2)
    with pytest.raises(WorkersLost, match=r"a worker died 2 times while these were under way.*: 4, 5"):
        list(LocalEngine(2).run(always_dies, [4, 5]))


def test_an_error_of_a_task_keeps_its_type() -> None:
    with pytest.raises(FileNotFoundError, match="no file 2"):
        list(LocalEngine(2).run(fails, list(range(5))))


DRIVER = """
import sys, time
from pathlib import Path
from bayesdrop import engines
from bayesdrop.engines import LocalEngine

def stay(path):
    Path(path).write_text(str(__import__("os").getpid()))
    time.sleep(1000)

if __name__ == "__main__":
    list(LocalEngine(2).run(stay, sys.argv[1:]))
"""


def test_workers_end_when_their_driver_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    files = [tmp_path / "one", tmp_path / "two"]
    driver = subprocess.Popen([sys.executable, str(program), *map(str, files)])
    while not all(file.exists() and file.read_text() for file in files):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    for file in files:
        process = int(file.read_text())
        for _ in range(600):
            if not _is_running(process):
                break
            time.sleep(0.1)
        assert not _is_running(process)


def _is_running(process: int) -> bool:
    """Whether it is there, and not only waiting for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_engines_are_made_by_name() -> None:
    assert isinstance(make_engine("local", workers=3), LocalEngine)
    assert make_engine("local").workers >= 1
    with pytest.raises(ValueError, match="`engine` must be 'local' or 'ray'; got 'spark'"):
        make_engine("spark")
    with pytest.raises(ValueError, match="`address` must be None for the engine local"):
        make_engine("local", address="auto")
    with pytest.raises(ValueError, match="`workers` must be a positive int; got 0"):
        LocalEngine(0)
    pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    assert isinstance(make_engine("ray", workers=2), RayEngine)
