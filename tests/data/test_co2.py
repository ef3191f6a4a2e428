"""The Mauna Loa record that comes with statsmodels."""

from __future__ import annotations

import math
import sys
from collections import defaultdict

import pytest
import torch

from bayesdrop.data import load_co2
from bayesdrop.errors import MissingExtra


def weekly() -> list[tuple[int, int, float]]:
    """(year, month, ppm) of every week, missing ones as NaN, without pandas' own grouping."""
    from statsmodels.datasets import co2

    series = co2.load_pandas().data["co2"]
    return [(day.year, day.month, float(ppm)) for day, ppm in series.items()]


def test_the_weekly_record_is_the_one_we_describe() -> None:
    rows = weekly()
    assert len(rows) == 2284
    assert sum(math.isnan(ppm) for _, _, ppm in rows) == 59


def test_months_are_means_of_their_weeks() -> None:
    weeks = defaultdict(list)
    for year, month, ppm in weekly():
        if not math.isnan(ppm):
            weeks[year, month].append(ppm)
    series = load_co2()
    assert len(series) == len(weeks) == 521
    assert series.x.shape == series.y.shape == (521, 1)
    x = torch.tensor([year + (month - 0.5) / 12 for year, month in sorted(weeks)])
    y = torch.tensor([sum(weeks[key]) / len(weeks[key]) for key in sorted(weeks)])
    torch.testing.assert_close(series.x[:, 0], x)
    torch.testing.assert_close(series.y[:, 0], y)


def test_the_record_runs_from_march_1958_to_december_2001_in_order() -> None:
    x = load_co2().x[:, 0]
    assert bool((x.diff() > 0).all())
    assert float(x[0]) == pytest.approx(1958 + 2.5 / 12)
    assert float(x[-1]) == pytest.approx(2001 + 11.5 / 12)


def test_five_months_have_no_measurement_and_are_left_out() -> None:
    present = {round((float(x) - 1958) * 12 - 0.5) for x in load_co2().x[:, 0]}
    missing = set(range(2, 44 * 12)) - present
    # June and October 1958; February to April 1964
    assert missing == {5, 9, 6 * 12 + 1, 6 * 12 + 2, 6 * 12 + 3}


def test_between_takes_the_start_and_leaves_the_end() -> None:
    series = load_co2()
    part = series.between(float(series.x[3]), float(series.x[7]))
    assert torch.equal(part.x, series.x[3:7])
    assert torch.equal(part.y, series.y[3:7])


def test_the_default_dtype_is_respected() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert load_co2().x.dtype == load_co2().y.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_without_statsmodels_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.datasets.co2", None)
    with pytest.raises(MissingExtra, match=r"\.\[data\]"):
        load_co2()
