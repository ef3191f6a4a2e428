"""A small experiment in a module of its own; invented data for all others, and no download anywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.stand_ins import write_stand_ins

from bayesdrop.experiments import registry

TOY = '''
"""Toy (2020), Table 1: the squares of small numbers.

More about it.
"""
from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import torch

from bayesdrop.experiments import Claim, Outcome, Row, run_pieces
from bayesdrop.plots import new_figure

@dataclass(frozen=True)
class Config:
    numbers: tuple[int, ...] = (1, 2, 3)
    power: float = 2.0
    name: str | None = None
    strict: bool = False

SMOKE = Config(numbers=(1,))
PRESETS = {"quick": Config(numbers=(1, 2))}

def piece(key):
    if key["number"] == 13:
        raise LookupError("thirteen")
    return {
        "value": key["number"] ** key["power"],
        "process": os.getpid(),
        "threads": torch.get_num_threads(),
    }

def run(config, *, cache, progress):
    keys = [{"number": number, "power": config.power} for number in config.numbers]
    values = [found["value"] for found in run_pieces(keys, piece, cache=cache, progress=progress)]
    rows = [Row(str(n), "square", float(n * n), value) for n, value in zip(config.numbers, values)]
    rows += [Row("4", "square", 16.0, None, note="left out")]
    claims = [Claim("Squares grow.", f"{values}", values == sorted(values))]
    arrays = {"x": np.array(config.numbers), "y": torch.tensor(values), "label": ["one", 2]}
    return Outcome(rows, claims, arrays=arrays, notes=["Four was not tried."])

def draw(outcome):
    figure = new_figure(2, 2)
    figure.subplots().plot(outcome.arrays["x"], outcome.arrays["y"])
    return figure
'''


REAL = os.environ.get("BAYESDROP_DATA", "")


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of invented files in the formats of the real ones."""
    return write_stand_ins(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_ins: Path) -> None:
    monkeypatch.setenv("BAYESDROP_DATA", str(stand_ins))
    monkeypatch.setenv("BAYESDROP_OFFLINE", "1")
    monkeypatch.setenv("BAYESDROP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real data folder instead of the invented one, for what only real data show."""
    monkeypatch.setenv("BAYESDROP_DATA", REAL)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The module's name; its experiment is called toy2020-squares."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "toy2020_squares.py").write_text(TOY.strip())
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(registry.EXPERIMENTS, "toy2020-squares", "toy2020_squares")
    yield "toy2020_squares"
    sys.modules.pop("toy2020_squares", None)
