"""Gal, Hron & Kendall (2017), fig. 1: epistemic and aleatoric uncertainty as the data grow.

    y = 2 x + 8 + e,        x ~ N(0, 1),  e ~ N(0, 1)

A network with three hidden layers and Concrete dropout before every weight layer gives the mean and the
logarithm of the noise variance, each by a head of its own. Trained on N = 10 to 10,000 points, it should be
less and less unsure of the function (epistemic), and find the noise (aleatoric), whose std is 1.

The default trains every network for 3,000 steps, at a learning rate of the rates that is ten times that of
the weights, so that the rates converge; the preset "paper" takes width, batches, epochs and learning rate of
the authors' program, in which a rate's logit can move by 1 or 2 at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2017_synthetic.networks import train_network
from bayesdrop.experiments.gal2017_synthetic.picture import draw
from bayesdrop.experiments.gal2017_synthetic.report import UNCERTAINTIES, make_claims, make_notes, make_rows
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import all_but

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    sizes: tuple[int, ...] = (10, 25, 100, 1000, 10_000)
    epochs: tuple[int, ...] = (3000, 3000, 3000, 300, 30)  #: of every size
    repeats: int = 3
    width: int = 256
    batch_size: int = 100
    lr: float = 1e-3
    rate_lr: float = 1e-2
    cosine: bool = True  #: whether the learning rates fall to 0 along a cosine
    p_init: float = 0.1
    temperature: float = 0.1
    length_scale: float = 1e-4
    num_test: int = 1000
    num_draws: int = 200
    seed: int = 0


SMOKE = Config(sizes=(10, 60), epochs=(4, 3), repeats=2, width=8, batch_size=20, num_test=50, num_draws=5)
PRESETS = {
    "paper": Config(
        sizes=(10, 25, 50, 100, 1000, 10_000), epochs=(2000, 1000, 500, 200, 20, 2), width=1024,
        batch_size=20, rate_lr=1e-3, cosine=False, num_draws=20,
    )
}  # fmt: skip


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train the networks of all sizes and repeats, or find them in the cache."""
    common = all_but(config, "sizes", "epochs", "repeats", "seed")
    seeds = range(config.seed, config.seed + config.repeats)
    groups = {
        size: [{"size": size, "epochs": epochs, "seed": seed, **common} for seed in seeds]
        # The longest first, so that two processes end together.
        for size, epochs in sorted(zip(config.sizes, config.epochs, strict=True), reverse=True)
    }
    pieces = run_groups(groups, train_network, cache=cache, progress=progress, label="Networks")
    names = (*UNCERTAINTIES, "rates", "rmse", "log_likelihood", "elbo")
    #: (sizes, repeats, ...)
    found = {
        what: np.array([[piece[what] for piece in pieces[size]] for size in config.sizes]) for what in names
    }
    ends = (config.sizes[0], config.sizes[-1])
    arrays: dict[str, Any] = {"sizes": np.array(config.sizes), **found, "ends": np.array(ends)}
    for end, size in zip(("first", "last"), ends, strict=True):
        kept = ("steps", "trace", "x", "y", "mean", "grid_epistemic", "grid_std")
        arrays |= {f"{end}_{what}": pieces[size][0][what] for what in kept}
    return Outcome(
        make_rows(config, found), make_claims(config, found), arrays=arrays, notes=make_notes(config)
    )
