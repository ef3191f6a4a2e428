"""Gal & Ghahramani (2016), figure D.1: solar irradiance with gaps, filled in by dropout networks.

Deep ReLU networks with dropout after every hidden layer learn 275 of 375 years of the sun's irradiance, as
Lean (2004) has reconstructed it; five gaps of 20 years are held out. The spread of functions drawn from a
network should be wider in the gaps than at the years that it has learned. A Gaussian process is beside it.

The authors' networks are 1024 wide and take a million steps of gradient descent, days on a CPU: that is the
preset "paper". The default is 256 wide, and has 2500 steps of Adam from a head start: half of the second
layer's units start as tents that end about 7 years from their middle; the sun's cycle takes 11. The preset
"wide" has the paper's width and 4,000 such steps, and asks which of the claims that fail at the small width
hold at the paper's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.curves.config import NETWORK_FIELDS, CurveConfig
from bayesdrop.experiments.curves.network import Network
from bayesdrop.experiments.curves.process import fit_process
from bayesdrop.experiments.curves.series import solar_curve
from bayesdrop.experiments.curves.training import train_curves
from bayesdrop.experiments.gal2016_solar.picture import draw
from bayesdrop.experiments.gal2016_solar.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome, Row
from bayesdrop.experiments.settings import picked

__all__ = ["NETWORKS", "PRESETS", "SMOKE", "Config", "draw", "run"]

#: the paper's "5 layer" network has four hidden ones
NETWORKS = {
    "relu": Network("relu", depth=4, p=0.1, lr=5e-2, decay=5e-6),
    "shallow": Network("relu", depth=3, p=0.1, lr=3e-2, decay=3e-6),
}


@dataclass(frozen=True)
class Config(CurveConfig):
    """All that the numbers depend on, except for the networks."""

    num_grid: int = 761


SMOKE = Config(width=16, steps=4, num_draws=20, few_draws=5, num_paths=2, num_grid=77, restarts=0)
PRESETS = {
    "wide": Config(width=1024, steps=4000),
    "paper": Config(width=1024, steps=1_000_000, solver="sgd", head_start=False),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train the networks, or find them in the cache; fit the process."""
    try:
        curve = solar_curve()
    except DataNotFound as error:
        return Outcome((Row("MC dropout", "coverage of the gaps", None, None, note=error.brief),))
    common = {"data": "solar", "num_grid": config.num_grid, "between": (-1.9, 1.9), "seed": config.seed}
    # The spread in training is watched in the gap in the middle.
    middle = curve.x_test[2 * len(curve.x_test) // 5 : 3 * len(curve.x_test) // 5]
    settings = picked(config, *NETWORK_FIELDS) | {"watched": (float(middle[0]), float(middle[-1]))}
    keys = [{"network": asdict(network), **settings, **common} for network in NETWORKS.values()]
    made = train_curves(keys, cache=cache, progress=progress)
    found = dict(zip(NETWORKS, made, strict=True))
    key = {**common, "restarts": config.restarts}
    process = cache.get({"part": "process", **key}, lambda: fit_process(key))
    arrays: dict[str, Any] = {"x": curve.x[:, 0], "y": curve.y[:, 0], "grid": process["grid"]}
    arrays["few_draws"] = config.few_draws
    arrays |= {"x_test": curve.x_test[:, 0], "y_test": curve.y_test[:, 0]}
    arrays |= {
        f"{name} {what}": piece[what] for name, piece in found.items() for what in ("grid_mean", "grid_std")
    }
    main = ("grid_standard", "grid_few_mean", "grid_few_std", "paths", "scattered_paths")
    arrays |= {f"relu {what}": found["relu"][what] for what in main}
    arrays |= {f"process {what}": process[what] for what in ("grid_mean", "grid_std")}
    return Outcome(
        make_rows(curve, found, process),
        make_claims(config, curve, found, process),
        arrays=arrays,
        notes=make_notes(config),
    )
