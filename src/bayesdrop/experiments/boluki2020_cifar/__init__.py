"""Boluki et al. (2020), table 1, CIFAR-10: 8 ways of dropout on the last layers of a VGG network.

A network of small convolutions is trained once for every seed, without dropout; then each method gets a new
head of two hidden layers with its own noise on both, and all weights are trained further. (The paper starts
from weights of ImageNet in the same way.) Regular dropout is the network of MC dropout, by one pass; Gaussian
and Bernoulli noise have fixed rates; Concrete and learnable rates start at the same and are learned, for
every unit, for every layer, or one for all units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_cifar.heads import METHODS
from bayesdrop.experiments.boluki2020_cifar.picture import draw
from bayesdrop.experiments.boluki2020_cifar.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.boluki2020_cifar.training import pretrain, train_and_score, weights
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run", "warm_key"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    methods: tuple[str, ...] = tuple(METHODS)
    seeds: int = 3
    depth: int | None = None  #: of a published VGG; None for `channels`
    channels: tuple[tuple[int, ...], ...] = ((16,), (32, 32), (64, 64), (128, 128))
    head: tuple[int, ...] = (256, 256)
    batch_norm: bool = True
    p: float = 0.5  #: of fixed rates, and where learned ones start
    warm_epochs: int = 9  #: without dropout, shared by the methods of a seed
    epochs: int = 5  #: of each method
    batch_size: int = 128
    warm_lr: float = 3e-3
    lr: float = 1e-3
    rate_lr: float = 2e-2
    num_train: int = 45_000
    num_validation: int = 5_000
    num_test: int = 10_000
    num_draws: int = 50
    seed: int = 0


SMOKE = Config(
    methods=("none", "regular", "bernoulli", "unit", "one"), seeds=1, channels=((4,), (8,)), head=(8, 8),
    warm_epochs=1, epochs=1, num_train=256, num_validation=100, num_test=100, num_draws=4,
)  # fmt: skip
PRESETS = {
    "quick": Config(
        methods=("none", "regular", "bernoulli", "unit"), seeds=1, channels=((16,), (32,), (64,)),
        warm_epochs=2, epochs=1, num_train=20_000, num_test=5_000, num_draws=20,
    ),
    #: the paper's network and epochs, but from convolutions trained here; weeks on a CPU
    "paper": Config(
        seeds=1, depth=19, head=(4096, 4096), batch_norm=False, warm_epochs=100, epochs=300, batch_size=64,
        lr=1e-5, rate_lr=1e-2, num_draws=10,
    ),
}  # fmt: skip


def warm_key(config: Config, seed: int) -> dict[str, Any]:
    """The key of the weights that all methods of a seed start from."""
    network = ("depth", "channels", "head", "batch_norm")
    training = ("warm_epochs", "batch_size", "warm_lr", "num_train", "num_validation")
    return {"seed": seed, **{name: getattr(config, name) for name in (*network, *training)}}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train the shared weights of every seed, then every method from them; or find them in the cache."""
    own = ("p", "epochs", "lr", "rate_lr", "num_test", "num_draws")
    warm = [warm_key(config, config.seed + number) for number in range(config.seeds)]
    kept = weights(cache.folder.parent, fresh=cache.fresh, processes=cache.processes)
    run_pieces(warm, pretrain, cache=kept, progress=progress, label="Shared weights")
    keys = [
        {"method": method, "warm": key, **{name: getattr(config, name) for name in own}}
        for key in warm
        for method in config.methods
        if method != "regular"
    ]
    function = partial(train_and_score, folder=str(cache.folder.parent))
    pieces = run_pieces(keys, function, cache=cache, progress=progress, label="Methods")
    found = {
        method: [piece for key, piece in zip(keys, pieces, strict=True) if key["method"] == method]
        for method in config.methods
    }
    if "regular" in config.methods:
        found["regular"] = [_single(piece) for piece in found["bernoulli"]]
    arrays = {
        f"{method}: {what}": np.stack([piece[what] for piece in by_seed])
        for method, by_seed in found.items()
        for what in ("pavpu", "accurate", "uncertain", "confidence", "right", "rates 1", "rates 2")
        if what in by_seed[0]
    }
    return Outcome(
        make_rows(config.methods, found),
        make_claims(found),
        arrays={"methods": list(config.methods), **arrays},
        notes=make_notes(config, found),
    )


def _single(piece: Mapping[str, Any]) -> dict[str, Any]:
    """From the piece of a network with dropout, what it reaches by one pass without noise."""
    single = "single "
    own = {name.removeprefix(single): value for name, value in piece.items() if name.startswith(single)}
    return {"seconds": piece["seconds"], **own}
