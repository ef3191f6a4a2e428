"""Solar irradiance since 1610, reconstructed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays

__all__ = ["SolarSeries", "load_solar"]


@dataclass(frozen=True, eq=False)
class SolarSeries:
    """Yearly means, in order of time. Values are float64."""

    x: Tensor  #: (391, 1) the middle of the year: 1610.5 to 2000.5
    y: Tensor  #: (391, 1) watts a square metre: the 11-year cycle and the slow background
    cycle: Tensor  #: (391, 1) the 11-year cycle alone

    def __len__(self) -> int:
        """Number of years."""
        return self.x.shape[0]


def load_solar() -> SolarSeries:
    """The reconstruction of Lean (2004), downloaded (10 kB) if it is not there yet."""
    table = load_arrays("solar", _read, _from_home)["table"]
    year, cycle, both = torch.from_numpy(table.copy()).T.unsqueeze(-1)
    return SolarSeries(x=year, cycle=cycle, y=both)


def _read(path: Path) -> Arrays:
    return {"table": np.loadtxt(path, delimiter=",", skiprows=1)}


def _from_home(fetch: Fetch) -> Arrays:
    """A header, then year, cycle, cycle and background, with spaces between; the year without its half."""
    table = np.loadtxt(fetch("irradiance_data.txt"), skiprows=1)
    return {"table": table + np.array([0.5, 0.0, 0.0])}
