"""No hostile table gets a wrong answer or a traceback."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tables(adversary: Callable[[str], ModuleType]) -> ModuleType:
    return adversary("tables")


def test_a_hostile_table_is_right_or_refused(tables: Any) -> None:
    found = list(tables.attacks(seed=0, count=150))
    assert [attack for attack in found if attack.outcome == "wrong"] == []
    # Neither is empty: the tables are hostile, and most of them are right all the same.
    assert sum(attack.outcome == "right" for attack in found) > 50
    assert sum(attack.outcome == "refused" for attack in found) > 20


def test_outcomes_count_attacks(tables: Any) -> None:
    found = tables.outcomes(seed=1, count=12)
    assert set(found) == {"right", "refused", "wrong"}
    assert sum(found.values()) == 12
    assert found["wrong"] == 0
