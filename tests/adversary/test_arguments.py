"""Wrong arguments of every public call are refused in its own words, and every call is right as it stands."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def arguments() -> ModuleType:
    path = Path(__file__).with_name("arguments.py")
    spec = importlib.util.spec_from_file_location("adversary_arguments", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_call_is_right_as_it_stands(arguments: ModuleType) -> None:
    for call in arguments.calls():
        call.run(**call.good())
    assert len(arguments.calls()) > 90


def test_wrong_arguments_are_refused_by_name(arguments: ModuleType) -> None:
    found = arguments.outcomes(seed=0, count=1000)
    assert found["wrong"] == 0
    assert found["refused"] > 800


def test_what_is_silent_is_found(arguments: ModuleType) -> None:
    """A call that takes nonsense, one that fails inside and one that answers NaN: all three are seen."""
    call = arguments.Call
    silent = call("silent", lambda p: 1.0, lambda: {"p": 0.5}, {"p": arguments.rate})
    inner = call("inner", lambda p: [][int(p)], lambda: {"p": 0.5}, {"p": arguments.rate})
    empty = call("empty", lambda p: float("nan"), lambda: {"p": 0.5}, {"p": arguments.rate})
    assert arguments.judge(silent, "p", "abc")[0] == "wrong"
    assert arguments.judge(inner, "p", 0.5)[0] == "wrong"
    assert arguments.judge(empty, "p", 0.5)[0] == "wrong"
    assert arguments.judge(silent, "p", 0.5)[0] == "right"
