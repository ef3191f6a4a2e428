"""Active learning on CIFAR-10: labels that 60 % accuracy needs, asked for as on MNIST.

What holds on digits need not hold on photographs: the loop of active-learning-mnist, with a somewhat larger
network, 500 labels at first and 250 more at a time, those of highest score among 2000 images of the pool.
BALD and the epistemic part under zero-one loss ask for what draws disagree about. Entropy asks for whatever
is uncertain, even where another label would not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from bayesdrop.data import load_cifar10
from bayesdrop.experiments.active_learning import Asking, Task, draw_curves, learn, run_methods
from bayesdrop.experiments.boluki2020_cifar.training import as_inputs
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2


@dataclass(frozen=True)
class Config(Asking):
    """Four ways to ask, three repeats."""

    methods: tuple[str, ...] = ("random", "bald", "zero_one", "entropy")
    repeats: int = 3
    start: int = 500
    batch: int = 250
    most: int = 5000
    target: float = 0.6
    pool: int = 2000
    steps: int = 300


SMOKE = Config(repeats=1, start=20, batch=10, most=30, pool=40, num_draws=4, steps=2, num_test=100)
PRESETS = {"quick": Config(methods=("random", "bald"), repeats=1, most=1500, target=0.5, steps=150)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Every way to ask, from the same first labels."""
    return run_methods(config, _learn, cache=cache, progress=progress)


def draw(outcome: Outcome) -> Any:
    """Accuracy against labels."""
    return draw_curves(outcome, "Active learning on CIFAR-10", lowest=25)


def _learn(key: Mapping[str, Any]) -> dict[str, Any]:
    config = Config(**{name: value for name, value in key.items() if name not in ("method", "repeat")})
    data = load_cifar10(num_batches=2 if config.most > 100 else 1)
    task = Task(data.x_train, data.y_train, data.x_test, data.y_test, as_inputs, _network)
    return learn(task, config, key["method"], key["repeat"])


def _network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    head = [nn.Flatten(), nn.Dropout(0.25), nn.Linear(1024, 128), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, *head, nn.Linear(128, 10))
