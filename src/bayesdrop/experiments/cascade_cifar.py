"""Gal & Ghahramani (2015), section 4.2: a weak fast model first, a strong one where it is uncertain (CIFAR).

The scheme of cascade-mnist on photographs: three small convolutions and a hidden layer with dropout classify
all test images; those that they are least sure of go on to the VGG network of boluki2020-cifar, as it is
trained there without dropout. Costs are multiply-adds for an image; of the weak model, the last layer is
counted once for every draw, and all before it once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from bayesdrop.experiments.boluki2020_cifar import Config as Dropouts
from bayesdrop.experiments.boluki2020_cifar import warm_key
from bayesdrop.experiments.boluki2020_cifar.training import AUGMENT, CifarSplit, load_split, pretrained
from bayesdrop.experiments.cascade import compared, described, draw_costs, multiply_adds
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliDropout
from bayesdrop.likelihoods import Categorical
from bayesdrop.models import vgg
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """Weak and strong model, and the shares of images that are passed on."""

    channels: tuple[tuple[int, ...], ...] = ((8,), (16,), (32,))  #: of the weak model
    width: int = 64  #: its hidden units
    p: float = 0.2
    weak_epochs: int = 10
    num_draws: int = 30
    strong_channels: tuple[tuple[int, ...], ...] = Dropouts.channels
    strong_head: tuple[int, ...] = Dropouts.head
    epochs: int = Dropouts.warm_epochs  #: of the strong model
    num_train: int = Dropouts.num_train
    num_validation: int = Dropouts.num_validation  #: left out, as in boluki2020-cifar
    num_test: int = 10_000
    shares: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
    seed: int = 0


SMOKE = Config(
    channels=((4,),), width=8, weak_epochs=1, num_draws=4, strong_channels=((4,), (8,)), strong_head=(8, 8),
    epochs=1, num_train=256, num_validation=100, num_test=200,
)  # fmt: skip
PRESETS = {"quick": Config(weak_epochs=3, epochs=3, num_train=10_000, num_test=2_000)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Small convolutions, then VGG."""
    strong_config = Dropouts(
        channels=config.strong_channels,
        head=config.strong_head,
        warm_epochs=config.epochs,
        num_train=config.num_train,
        num_validation=config.num_validation,
    )
    warm = warm_key(strong_config, config.seed)
    split = load_split(warm, config.num_test)
    (x, y), one = split.test, split.test[0][:1]
    weak = cache.get({"part": "weak", **asdict(config)}, partial(_weak, config, split))
    net = pretrained(warm, cache)
    strong = one_pass(net, x, Categorical(), batch_size=500).label
    costs = list(multiply_adds(_small(config).eval(), one).values())
    return compared(
        weak,
        strong,
        y,
        weak_cost=sum(costs[:-1]) + config.num_draws * costs[-1],
        strong_cost=sum(multiply_adds(net, one).values()),
        shares=config.shares,
        strong_name="VGG",
        seed=config.seed,
    )


def _small(config: Config) -> nn.Sequential:
    return vgg(
        channels=config.channels, head=config.width, input_size=32, batch_norm=True, p=config.p,
        layer=BernoulliDropout,
    )  # fmt: skip


def _weak(config: Config, split: CifarSplit) -> dict[str, Any]:
    """Labels and scores of the weak model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        net = _small(config)
    fit(
        net, split.train, NegativeELBO(Categorical(), num_data=len(split.train[0])),
        epochs=config.weak_epochs, lr=3e-3, scheduler="one-cycle", augment=AUGMENT, channels_last=True,
        seed=config.seed, progress=False,
    )  # fmt: skip
    return described(
        predict(
            net.eval(), split.test[0], num_draws=config.num_draws, seed=config.seed, likelihood=Categorical(),
            batch_size=500,
        )
    )  # fmt: skip


def draw(outcome: Outcome) -> Any:
    """Accuracy against cost."""
    return draw_costs(outcome, "A cascade on CIFAR-10", strong_name="VGG")
