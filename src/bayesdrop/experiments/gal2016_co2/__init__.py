"""Gal & Ghahramani (2016), figures 2 and 3: extrapolating carbon dioxide with dropout networks.

Deep networks with dropout after every hidden layer learn half of the Mauna Loa record: 272 monthly means,
from which a straight line is subtracted, standardised. Beyond the data, one pass with averaged weights
(standard dropout) gives a value and no sign of doubt; the spread of 1000 functions drawn from the same
network (MC dropout) says how little it knows. A Gaussian process is beside them. The point x* far from the
data is at x = 3, about eight years after the last month that was learned; the paper marks such a point and
does not say where it is.

The authors' networks are 1024 wide and take a million steps of gradient descent, days on a CPU: that is the
preset "paper". The default is 256 wide, and has 2500 steps of Adam from a head start: the first weights of
TanH networks are as steep as the seasons; in ReLU networks half of the second layer's units start as tents
that end about 8 months from their middle. Without that, a ReLU network of this size misses the seasons. The
preset "wide" has the paper's width and 4,000 such steps, about five minutes for each of its deepest networks,
and asks which of the claims that fail at the small width hold at the paper's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bayesdrop.experiments.curves.config import NETWORK_FIELDS, CurveConfig
from bayesdrop.experiments.curves.network import Network
from bayesdrop.experiments.curves.process import fit_process
from bayesdrop.experiments.curves.series import co2_curve
from bayesdrop.experiments.curves.training import train_curves
from bayesdrop.experiments.gal2016_co2.claims import make_claims
from bayesdrop.experiments.gal2016_co2.picture import draw
from bayesdrop.experiments.gal2016_co2.table import make_notes, make_rows
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import picked

__all__ = ["NETWORKS", "PRESETS", "SMOKE", "Config", "draw", "run"]

#: the paper's "5 layer" network has four hidden ones
NETWORKS = {
    "relu": Network("relu", depth=4, p=0.1, lr=1e-2, decay=1e-6),
    "shallow": Network("relu", depth=3, p=0.1, lr=1e-2, decay=1e-6, gamma=1e-5, power=0.1),
    # Fewer layers, which the paper says could not be fitted; it gives no solver for them.
    "two": Network("relu", depth=2, p=0.1, lr=1e-2, decay=1e-6),
    "one": Network("relu", depth=1, p=0.1, lr=1e-2, decay=1e-6),
    "tanh": Network("tanh", depth=4, p=0.1, lr=5e-3, decay=5e-7),
    "tanh2": Network("tanh", depth=4, p=0.2, lr=1e-2, decay=0.0),
}


@dataclass(frozen=True)
class Config(CurveConfig):
    """All that the numbers depend on, except for the networks."""

    far: float = 3.0  #: x*


SMOKE = Config(width=16, steps=4, num_draws=20, few_draws=5, num_paths=2, num_grid=69, restarts=0)
PRESETS = {
    "wide": Config(width=1024, steps=4000),
    "paper": Config(width=1024, steps=1_000_000, solver="sgd", head_start=False),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train the networks, or find them in the cache; fit the process."""
    curve = co2_curve()
    end = float(curve.x[-1])
    common = {"data": "co2", "num_grid": config.num_grid, "between": (-1.9, 4.9), "seed": config.seed}
    settings = picked(config, *NETWORK_FIELDS) | {"watched": (end, config.far)}
    keys = [{"network": asdict(network), **settings, **common} for network in NETWORKS.values()]
    made = train_curves(keys, cache=cache, progress=progress)
    found = dict(zip(NETWORKS, made, strict=True))
    key = {**common, "restarts": config.restarts}
    process = cache.get({"part": "process", **key}, lambda: fit_process(key))
    arrays: dict[str, Any] = {"x": curve.x[:, 0], "y": curve.y[:, 0], "far": config.far, "end": end}
    arrays["few_draws"] = config.few_draws
    arrays |= {"x_test": curve.x_test[:, 0], "y_test": curve.y_test[:, 0], "grid": process["grid"]}
    kept = ("grid_mean", "grid_std", "train_mean", "look_step", "look_std")
    shown = ("relu", "shallow", "tanh", "tanh2")
    arrays |= {f"{name} {what}": found[name][what] for name in shown for what in kept}
    main = ("grid_standard", "grid_few_mean", "grid_few_std", "paths", "scattered_paths")
    arrays |= {f"relu {what}": found["relu"][what] for what in main}
    arrays |= {f"process {what}": process[what] for what in ("grid_mean", "grid_std", "train_mean")}
    return Outcome(
        make_rows(config, curve, found, process),
        make_claims(config, curve, found, process),
        arrays=arrays,
        notes=make_notes(config),
    )
