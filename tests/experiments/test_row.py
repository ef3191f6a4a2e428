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
