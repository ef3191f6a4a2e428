"""No thread gets another answer than it would alone, and no model is left changed."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


def test_threads_get_the_answers_of_one_thread(adversary: Callable[[str], ModuleType]) -> None:
    found = adversary("threads").outcomes(seed=0, count=400)
    assert found["wrong"] == 0
    assert found["right"] >= 360
