"""The two series of section 5.1, prepared as their authors did."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.data.co2 import load_co2
from bayesdrop.data.solar import load_solar

__all__ = ["CO2_TRAIN", "CURVES", "GAP", "RUNS", "YEAR", "Curve", "co2_curve", "solar_curve"]

#: months that the networks are trained on: half of the record
CO2_TRAIN = 272
#: years that the networks are trained on, and the gap of held-out years between two runs of them
RUNS = (17, 55, 55, 55, 55, 38)
GAP = 20
#: rows of an oscillation: the seasons of a year, and the sun's cycle of about 11 years
YEAR, CYCLE = 12, 11


@dataclass(frozen=True, eq=False)
class Curve:
    """A series in standardised units, in order of x. Values are float64."""

    x: Tensor  #: (N, 1) inputs to train on
    y: Tensor  #: (N, 1)
    x_test: Tensor  #: (M, 1) inputs that are held out
    y_test: Tensor  #: (M, 1)
    period: float  #: of its oscillation, in units of x


def co2_curve() -> Curve:
    """Carbon dioxide: a straight line is subtracted, then x (the number of the month) and y are standardised.

    Line, means and standard deviations are those of the 272 months to train on; the 249 months that follow
    are held out. Months without a measurement are left out, and not counted.
    """
    y = load_co2().y[:, 0].double()
    x = torch.arange(len(y), dtype=torch.float64)
    train = x < CO2_TRAIN
    x = _standardised(x, train)
    # x has mean 0 and deviation 1, so that the slope is a mean of products.
    y = _standardised(y - (x * y)[train].mean() * x, train)
    return _split(x, y, train, YEAR)


def solar_curve() -> Curve:
    """Solar irradiance from 1610 to 1984: x and y standardised over all years, five gaps of 20 held out."""
    series = load_solar()
    rows = sum(RUNS) + GAP * (len(RUNS) - 1)
    whole = torch.ones(rows, dtype=torch.bool)
    train = whole.clone()
    start = 0
    for run in RUNS[:-1]:
        start += run + GAP
        train[start - GAP : start] = False
    x, y = (_standardised(values[:rows, 0].double(), whole) for values in (series.x, series.y))
    return _split(x, y, train, CYCLE)


CURVES = {"co2": co2_curve, "solar": solar_curve}


def _standardised(values: Tensor, rows: Tensor) -> Tensor:
    """Values minus their mean, divided by their (population) standard deviation, both over marked rows."""
    return (values - values[rows].mean()) / values[rows].std(correction=0)


def _split(x: Tensor, y: Tensor, train: Tensor, rows: int) -> Curve:
    """A curve whose marked rows are for training and whose oscillation takes so many `rows`."""
    x, y = x.unsqueeze(1), y.unsqueeze(1)
    return Curve(x[train], y[train], x[~train], y[~train], period=rows * float(x[1] - x[0]))
