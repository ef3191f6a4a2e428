"""Boluki et al. (2020), table 1, CamVid: dropouts in the middle layers of an FC-DenseNet.

An FC-DenseNet without dropout is trained once for every seed, on crops; then each dropout is put into the
layers of the middle block, and all weights are trained further on whole frames. Bernoulli and Gaussian noise
have fixed rates; Concrete and learnable rates start at the same rates and are learned, one for each layer;
learnable ones also with one for each channel. Regular dropout is the network of MC dropout, which predicts by
a single pass without noise.

The default is a quarter of the resolution, 90 x 120: a pixel is the mean colour of 16, and its label is the
one that most of them have. Tests are at that resolution too. `--preset paper` has FC-DenseNet-103 and whole
frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_camvid.picture import draw
from bayesdrop.experiments.boluki2020_camvid.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.camvid.scale import MINUTES, PUBLISHED, SECONDS, Scale
from bayesdrop.experiments.camvid.training import run_methods
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config(Scale):
    """All that the numbers depend on."""

    methods: tuple[str, ...] = ("bernoulli", "gaussian", "concrete", "layer", "channel")
    p: float = 0.2  #: of fixed rates, and where learned ones start
    weight_regularizer: float = 1e-8
    dropout_regularizer: float = 1.0  #: d of `PixelLoss`, times N H W


SMOKE = Config(**SECONDS, methods=("bernoulli", "layer"))
PRESETS = {
    "quick": Config(**MINUTES, methods=("bernoulli", "layer")),
    "paper": Config(**{**PUBLISHED, "epochs": 700, "batch_size": 1, "num_draws": 10}),
}

#: by method: the noise and its options
_NOISES: dict[str, tuple[str, dict[str, Any]]] = {
    "bernoulli": ("bernoulli", {}),
    "gaussian": ("gaussian", {}),
    "concrete": ("concrete", {"masks": "straight-through"}),
    "layer": ("learnable", {"per": "layer"}),
    "channel": ("learnable", {"per": "unit"}),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train the shared weights of every seed, then every method from them; or find them in the cache."""
    methods = {
        name: {
            "noise": _NOISES[name][0], "options": _NOISES[name][1], "p": config.p, "where": "middle",
            "weight": config.weight_regularizer, "temper": config.dropout_regularizer, "patches": True,
            "scored": True, "maps": 0,
        }
        for name in config.methods
    }  # fmt: skip
    found = run_methods(config, methods, cache=cache, progress=progress)
    arrays: dict[str, Any] = {"methods": list(found)}
    for method, pieces in found.items():
        for way in ("single", "draws"):
            for what in ("pavpu", "confidence", "frequency"):
                arrays[f"{method}: {way}: {what}"] = np.stack([piece[f"{way}: {what}"] for piece in pieces])
        arrays[f"{method}: rates"] = np.stack([piece["rates"] for piece in pieces])
    return Outcome(make_rows(found), make_claims(found), arrays=arrays, notes=make_notes(config, found))
