"""Rows, claims and outcomes: a number is a number, and a gap is a gap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bayesdrop.experiments import Claim, Outcome, Row


def test_numbers_of_any_library_are_floats() -> None:
    row = Row("a", "b", np.float32(0.5), torch.tensor(0.25), np.float64(1))
    assert [type(value) for value in (row.paper, row.ours, row.standard_error)] == [float] * 3
    assert Claim("a", "b", np.bool_(True)).holds is True


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_row_is_finite_or_not_run(value: float) -> None:
    with pytest.raises(ValueError, match="`ours` must be finite"):
        Row("yacht", "RMSE", None, value)


def test_a_number_has_one_row() -> None:
    with pytest.raises(ValueError, match="one for each setting and metric"):
        Outcome([Row("yacht", "RMSE", 1.0, 2.0), Row("yacht", "RMSE", 1.0, 3.0)])


def test_a_row_is_found_by_setting_and_metric() -> None:
    outcome = Outcome([Row("yacht", "RMSE", 1.0, 2.0), Row("yacht", "LL", 1.0, None)])
    assert outcome.row("yacht", "RMSE").ours == 2.0
    assert not outcome.complete
    with pytest.raises(KeyError, match="no row of 'boston'"):
        outcome.row("boston", "RMSE")


def test_a_row_of_runs_is_their_mean_with_its_standard_error() -> None:
    row = Row.of_runs("yacht", "RMSE", torch.tensor([1.0, 2.0, 6.0]), paper="2.8", note="note")
    assert (row.ours, row.paper, row.note) == (3.0, "2.8", "note")
    assert row.standard_error == pytest.approx(7**0.5 / 3**0.5)
    assert Row.of_runs("yacht", "RMSE", [2.0]).standard_error is None
    assert Row.of_runs("yacht", "RMSE", []).ours is None


def test_otherwise_is_said_of_claims_that_fail_alone() -> None:
    assert Claim("a", "b", False, otherwise="instead").correction == "instead"
    assert Claim("a", "b", True, otherwise="instead").correction == ""
    assert Claim("a", "b", True, "to be precise").correction == "to be precise"


def test_an_outcome_takes_any_iterable() -> None:
    outcome = Outcome((Row(name, "RMSE", None, 1.0) for name in "ab"), notes=iter(["one"]))
    assert [row.setting for row in outcome.rows] == ["a", "b"]
    assert (outcome.claims, outcome.notes, outcome.arrays) == ((), ("one",), {})
