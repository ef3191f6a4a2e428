"""Carbon dioxide in the air of Mauna Loa, 1958 to 2001, from statsmodels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import require

__all__ = ["CO2Series", "load_co2"]


@dataclass(frozen=True, eq=False)
class CO2Series:
    """Monthly means, in order of time; months without a measurement are left out."""

    x: Tensor  #: (N, 1) decimal year of the middle of the month: March 1958 is 1958 + 2.5 / 12
    y: Tensor  #: (N, 1) carbon dioxide in parts per million (ppm)

    def __len__(self) -> int:
        """Number of months."""
        return self.x.shape[0]

    def between(self, start: float, end: float) -> CO2Series:
        """The months with start <= x < end, in decimal years."""
        inside = (self.x[:, 0] >= start) & (self.x[:, 0] < end)
        return CO2Series(self.x[inside], self.y[inside])


def load_co2() -> CO2Series:
    """Monthly means of the weekly Mauna Loa measurements (needs the extra "data"; nothing is downloaded).

    The weekly series has 2,284 rows of which 59 are missing; 521 of its 526 months have a measurement.

    Returns: tensors of torch's default dtype.
    Reference: Keeling & Whorf, Scripps Institution of Oceanography, as packed with statsmodels.
    """
    module = require("statsmodels.datasets.co2", extra="data", owner="load_co2")
    weekly = module.load_pandas().data["co2"].dropna()
    monthly = weekly.groupby(weekly.index.to_period("M")).mean()
    year, month = monthly.index.year.to_numpy(), monthly.index.month.to_numpy()
    dtype = torch.get_default_dtype()
    return CO2Series(
        x=torch.tensor(year + (month - 0.5) / 12, dtype=dtype).reshape(-1, 1),
        y=torch.tensor(monthly.to_numpy(), dtype=dtype).reshape(-1, 1),
    )
