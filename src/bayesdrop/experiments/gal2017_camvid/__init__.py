"""Gal, Hron & Kendall (2017), table 1 and figs 7 and 8: Concrete dropout in all layers, on CamVid.

An FC-DenseNet without dropout is trained once for every seed, on crops; then no dropout, dropout of 0.2
behind every convolution, and Concrete dropout in its place are each trained further on whole frames, from the
same weights. Networks with noise predict twice: by the single pass without noise, and by the mean of many
draws.

The default is a quarter of the resolution, 90 x 120: a pixel is the mean colour of 16, and its label is the
one that most of them have. Tests are at that resolution too. `--preset paper` has FC-DenseNet-103 and whole
frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.camvid.scale import MINUTES, PUBLISHED, SECONDS, Scale
from bayesdrop.experiments.camvid.training import run_methods
from bayesdrop.experiments.gal2017_camvid.picture import draw
from bayesdrop.experiments.gal2017_camvid.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config(Scale):
    """All that the numbers depend on."""

    epochs: int = 16  #: of each method
    p: float = 0.2  #: of dropout, and where Concrete rates start
    starts: tuple[float, ...] = (0.05, 0.5)  #: other starts of Concrete rates, to see whether they end alike
    start_epochs: int = 8  #: of those runs
    elementwise: bool = True  #: noise of its own for every pixel; else for whole channels
    weight_regularizer: float = 1e-8  #: of the sum of squared weights
    dropout_regularizer: float = 0.01  #: divided by N H W: training frames, and pixels of one
    maps: int = 2  #: test frames whose maps are drawn


SMOKE = Config(**SECONDS, start_epochs=1, maps=1)
PRESETS = {"quick": Config(**MINUTES, starts=(), maps=1), "paper": Config(**PUBLISHED, start_epochs=100)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train the shared weights of every seed, then every method from them; or find them in the cache."""
    common: dict[str, Any] = {
        "where": "all", "weight": config.weight_regularizer, "temper": config.dropout_regularizer,
        "patches": False, "maps": 0, "scored": True,
    }  # fmt: skip
    noise = {"elementwise": config.elementwise}
    methods: dict[str, dict[str, Any]] = {
        "none": {**common, "noise": None, "p": 0.0, "options": {}},
        "bernoulli": {**common, "noise": "bernoulli", "p": config.p, "options": noise},
        "concrete": {
            **common, "noise": "concrete", "p": config.p, "options": noise, "maps": config.maps,
        },
    }  # fmt: skip
    for start in config.starts:
        methods[f"start {start:g}"] = {
            **common, "noise": "concrete", "p": start, "options": noise, "scored": False,
            "epochs": config.start_epochs,
        }  # fmt: skip
    found = run_methods(config, methods, cache=cache, progress=progress)
    arrays: dict[str, Any] = {"starts": [f"start {start:g}" for start in config.starts]}
    for method, pieces in found.items():
        for what in ("confidence", "frequency"):
            for way in ("single", "draws"):
                name = f"{way}: {what}"
                if name in pieces[0]:
                    arrays[f"{method}: {name}"] = np.stack([piece[name] for piece in pieces])
        if "rates" in pieces[0]:
            arrays[f"{method}: rates"] = np.stack([piece["rates"] for piece in pieces])
    arrays |= {name: value for name, value in found["concrete"][0].items() if name.startswith("map: ")}
    return Outcome(
        make_rows(config, found), make_claims(config, found), arrays=arrays, notes=make_notes(config, found)
    )
