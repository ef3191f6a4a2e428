"""The page of claims says what its table and the results files say, and no claim is left out."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayesdrop.experiments import Claim, Outcome, Record
from bayesdrop.experiments.record import read_records

ROOT = Path(__file__).parents[2]
ADVICE = "run: python docs/render_claims.py"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("render_claims", ROOT / "docs" / "render_claims.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_what_table_and_results_give(script: Any) -> None:
    assert script.PAGE.read_text() == script.render(read_records(ROOT / "results")), ADVICE


def test_no_claim_of_a_papers_experiment_is_left_out(script: Any) -> None:
    assert not list(script.unused_claims(read_records(ROOT / "results").values()))


def test_every_test_that_is_named_is_there(script: Any) -> None:
    named = [sentence.test for lines in script.read_table().values() for sentence in lines if sentence.test]
    assert named
    for test in named:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


def record(*holds: bool, preset: str = "default") -> dict[str, Record]:
    claims = tuple(Claim(f"a thing, {place}", f"number {place}", held) for place, held in enumerate(holds, 1))
    made = Record(
        experiment="gal2016-co2", title="", preset=preset, overrides={}, config={}, version="", commit="",
        seconds=0.0, outcome=Outcome((), claims),
    )  # fmt: skip
    return {"one": made}


@pytest.mark.parametrize(
    ("holds", "verdict", "told"),
    [
        ((True, True), "holds", "number 1"),
        ((False, False), "does not hold", "number 1"),
        # Where claims differ, the one that fails is told.
        ((True, False, True), "in 2 of 3", "number 2"),
    ],
)
def test_a_verdict_counts_the_claims_that_hold(
    script: Any, holds: tuple[bool, ...], verdict: str, told: str
) -> None:
    sentence = script.Sentence("1", "It is so.", experiment="gal2016-co2", words="a thing")
    found, basis = script.judge(sentence, record(*holds))
    assert found == verdict
    assert basis.startswith(f"{told}. [gal2016-co2]")


def test_what_was_not_run_is_said_to_be(script: Any) -> None:
    sentence = script.Sentence("1", "It is so.", experiment="gal2016-co2", words="a thing")
    assert script.judge(sentence, {})[0] == "not run"
    assert script.judge(sentence, record(True, preset="quick"))[0] == "not run"


def test_words_that_no_claim_has_are_an_error(script: Any) -> None:
    sentence = script.Sentence("1", "It is so.", experiment="gal2016-co2", words="another thing")
    with pytest.raises(ValueError, match="no claim of gal2016-co2 has the words 'another thing'"):
        script.judge(sentence, record(True))


@pytest.mark.parametrize(
    "basis",
    [
        {},
        {"test": "tests/a.py::test_b", "reason": "none"},
        {"experiment": "gal2016-co2"},
        {"experiment": "gal1999-co2", "words": "a"},
    ],
)
def test_a_line_rests_on_one_thing_that_exists(script: Any, basis: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"claims\.toml"):
        script.Sentence("1", "It is so.", **basis)


def test_a_claim_that_no_line_is_on_is_found(script: Any) -> None:
    left = dict(script.unused_claims(record(True).values()))
    assert left == {"gal2016-co2": "a thing, 1"}
