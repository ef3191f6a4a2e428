"""Active learning on MNIST after Gal, Islam & Ghahramani (2017): labels that 95 % accuracy needs.

A small convolutional network with dropout learns from the labels so far; 20 more are then asked for, those
of highest score among 1000 images of the pool, and it is trained further, until its accuracy is 95 %. The
paper asks for 10 at a time, scores the whole pool and trains a larger network from scratch each time, so that
its numbers are not set beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bayesdrop.data.mnist import load_mnist
from bayesdrop.experiments.active_learning import Asking as Config
from bayesdrop.experiments.active_learning import Task, draw_curves, learn, run_methods
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2
SMOKE = Config(repeats=1, most=40, pool=50, num_draws=4, steps=3, num_test=100)
#: every score, and batches chosen together
PRESETS = {"all": Config(methods=("random", "bald", "batch_bald", "entropy", "variation_ratio", "mean_std"))}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """BALD against random."""
    return run_methods(config, _learn, cache=cache, progress=progress)


def draw(outcome: Outcome) -> Any:
    """Accuracy against labels."""
    return draw_curves(outcome, "Active learning on MNIST", lowest=60)


def _learn(key: Mapping[str, Any]) -> dict[str, Any]:
    config = Config(**{name: value for name, value in key.items() if name not in ("method", "repeat")})
    data = load_mnist()
    task = Task(data.x_train, data.y_train, data.x_test, data.y_test, _inputs, _network)
    return learn(task, config, key["method"], key["repeat"])


def _inputs(images: Tensor) -> Tensor:
    """Images (N, 28, 28) of bytes as (N, 1, 28, 28), with about mean 0 and variance 1."""
    return ((images.float() / 256 - 0.13) / 0.31).unsqueeze(1)


def _network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )
