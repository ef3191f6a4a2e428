"""Wrong arguments of every public call are refused in its own words, and every call is right as it stands."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def arguments(adversary: Callable[[str], ModuleType]) -> ModuleType:
    return adversary("arguments")


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
