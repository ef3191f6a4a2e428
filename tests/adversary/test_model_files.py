"""A share of the attacks on model files; `model_files.outcomes` makes any number."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def model_files(adversary: Callable[[str], ModuleType]) -> ModuleType:
    return adversary("model_files")


def test_damaged_and_hostile_files_load_as_they_say_or_are_refused(model_files: ModuleType) -> None:
    wrong = [said for end, said in (model_files.attempt(0, place) for place in range(150)) if end == "wrong"]
    assert wrong == []


def test_the_same_seed_gives_the_same_attacks_and_all_are_counted(model_files: ModuleType) -> None:
    found = model_files.outcomes(1, 12)
    assert found == model_files.outcomes(1, 12)
    assert found.keys() == {"right", "refused", "wrong"}
    assert found.total() == 12
    assert found["wrong"] == 0


def test_the_sound_files_are_read(model_files: ModuleType) -> None:
    for base in model_files.bases():
        assert base.read(base.path)[1] == base.truth()[1]
