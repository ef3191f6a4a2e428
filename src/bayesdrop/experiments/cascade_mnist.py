"""Gal & Ghahramani (2015), section 4.2: a weak fast model first, a strong one where it is uncertain (MNIST).

A perceptron with 64 hidden units and dropout classifies all test images; those that it is least sure of go
on to LeNet. The curve is accuracy against cost, which is multiply-adds for an image as a share of LeNet's.
The weak model's draws are counted: what comes before its dropout is computed once, its last layer for every
draw. The paper proposes the scheme and prints no numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from bayesdrop.data.mnist import MNIST, load_mnist
from bayesdrop.experiments.cascade import compared, described, draw_costs
from bayesdrop.experiments.digits import Recipe, as_inputs, trained_lenet
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome
from bayesdrop.fit import fit
from bayesdrop.likelihoods import Categorical
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict

__all__ = ["SMOKE", "Config", "draw", "run"]

#: multiply-adds of one image through LeNet: two convolutions, two linear layers
STRONG_COST = 24 * 24 * 20 * 25 + 8 * 8 * 50 * 20 * 25 + 800 * 500 + 500 * 10


@dataclass(frozen=True)
class Config:
    """Weak and strong model, and the shares of images that are passed on."""

    width: int = 64  #: hidden units of the weak model
    p: float = 0.2
    weak_epochs: int = 5
    num_draws: int = 30
    epochs: int = 8  #: of LeNet
    num_train: int = 60_000
    num_test: int = 10_000
    shares: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 1.0)
    seed: int = 0


SMOKE = Config(width=8, weak_epochs=1, num_draws=4, epochs=1, num_train=320, num_test=300)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """A perceptron, then LeNet."""
    data = load_mnist()
    x, y = as_inputs(data.x_test[: config.num_test]), data.y_test[: config.num_test]
    weak = cache.get({"part": "weak", **asdict(config)}, partial(_weak, config, data))
    recipe = Recipe(epochs=config.epochs, num_train=config.num_train, seed=config.seed)
    net = trained_lenet(recipe, cache, progress=progress)
    strong = one_pass(net, x, Categorical(), batch_size=500).label
    return compared(
        weak,
        strong,
        y,
        weak_cost=784 * config.width + config.num_draws * 10 * config.width,
        strong_cost=STRONG_COST,
        shares=config.shares,
        strong_name="LeNet",
        seed=config.seed,
    )


def _weak(config: Config, data: MNIST) -> dict[str, Any]:
    """Labels and scores of the weak model."""
    torch.manual_seed(config.seed)
    net = mlp(784, (config.width,), 10, p=config.p, input_p=0.0)
    x, y = as_inputs(data.x_train[: config.num_train]).flatten(1), data.y_train[: config.num_train]
    objective = NegativeELBO(Categorical(), num_data=len(x))
    fit(net, (x, y), objective, epochs=config.weak_epochs, batch_size=128, seed=config.seed, progress=False)
    new = as_inputs(data.x_test[: config.num_test]).flatten(1)
    return described(
        predict(net, new, num_draws=config.num_draws, seed=config.seed, likelihood=Categorical())
    )


def draw(outcome: Outcome) -> Any:
    """Accuracy against cost."""
    return draw_costs(outcome, "A cascade on MNIST", strong_name="LeNet", highest=100)
