"""show(): the demo as a whole: two servers, callers that ask them, and a browser at the first desk."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from bayesdrop.serve.demo.models import DIABETES, DIGITS, Stage, prepare
from bayesdrop.serve.demo.past import seeded

__all__ = ["show"]

#: rows and labels of the week before, by model
_PAST = {DIGITS: (600, 130), DIABETES: (330, 35)}
_READY_WITHIN = 120.0


def show(
    folder: Path,
    *,
    port: int = 8080,
    traffic: float = 5.0,
    browser: bool = True,
    say: Callable[[str], None] = print,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run the demo until it is interrupted.

    Args:
        folder: of models and stores; what is there is gone on with.
        port: of the digits; the table has the one after it.
        traffic: seconds between requests of the simulated callers; 0 for none.
        browser: open the desk in a browser.
        say: is told how it goes.
        asked_to_stop: is asked between requests.
    """
    stages = []
    for place, name in enumerate((DIGITS, DIABETES)):
        say(f"Preparing {name}: a small model, and a week in which callers asked it and two people labelled.")
        stage = prepare(name, folder, port=port + place)
        rows, labels = _PAST[name]
        seeded(stage, rows=rows, labels=labels)
        stages.append(stage)
    servers = [subprocess.Popen(_command(stage)) for stage in stages]
    try:
        for stage, server in zip(stages, servers, strict=True):
            _wait_for(stage, server)
            say(f"{stage.settings.model_name}: label at {_address(stage)}/desk")
        if browser:
            webbrowser.open(f"{_address(stages[0])}/desk")
        _ask(stages, servers, traffic, asked_to_stop)
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()


def _command(stage: Stage) -> list[str]:
    settings = stage.settings
    asked = ["--port", settings.port, "--home", settings.home, "--second-share", settings.second_share]
    asked += ["--data", settings.data] if settings.data is not None else []
    asked += ["--adaptive"] if settings.adaptive else []
    return [sys.executable, "-m", "bayesdrop", "serve", settings.model, *map(str, asked)]


def _address(stage: Stage) -> str:
    return f"http://{stage.settings.host}:{stage.settings.port}"


def _wait_for(stage: Stage, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _READY_WITHIN
    while time.monotonic() < end:
        if server.poll() is not None:
            raise ValueError(f"the server of {stage.settings.model_name} stopped; see above.")
        try:
            with urlopen(f"{_address(stage)}/v2/health/ready", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise ValueError(f"the server of {stage.settings.model_name} was not ready after {_READY_WITHIN:.0f} s.")


def _ask(
    stages: list[Stage],
    servers: list[subprocess.Popen[bytes]],
    every: float,
    asked_to_stop: Callable[[], bool],
) -> None:
    """Send the rows after those of the past, a few at a time, until asked to stop or a server has ended."""
    place = max(rows for rows, _ in _PAST.values())
    while all(server.poll() is None for server in servers) and not asked_to_stop():
        time.sleep(every or 1.0)
        if not every:
            continue
        for stage in stages:
            rows = [stage.rows[(place + one) % len(stage.rows)] for one in range(3)]
            body = json.dumps({"rows": rows}).encode()
            headers = {"content-type": "application/json"}
            try:
                with urlopen(Request(f"{_address(stage)}/predict", body, headers), timeout=30) as answer:
                    answer.read()
            except URLError:
                break  # it is stopping
        place += 3
