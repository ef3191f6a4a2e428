"""The networks that are timed, and the clock. Needs torch alone, so that every environment can use it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CASES", "Case", "best_times", "made", "perceptron", "segmentation", "with_dropout_on"]


class Block(nn.Module):
    """A residual block, with channel dropout between its convolutions if p > 0."""

    def __init__(self, channels: int, p: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout2d(p) if p > 0 else nn.Identity()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H, W)."""
        h = self.dropout(F.relu(self.norm1(self.conv1(x))))
        return F.relu(x + self.norm2(self.conv2(h)))


def residual(*, head: float = 0.0, block: float = 0.0) -> nn.Module:
    """Four blocks of 32 channels; dropout in the blocks, before the linear head, or both."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        *[Block(32, block) for _ in range(4)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(head) if head > 0 else nn.Identity(),
        nn.Linear(32, 10),
    )


def lenet() -> nn.Module:
    """LeNet with dropout before the last layer."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(500, 10),
    )


def perceptron(*widths: int, p: float) -> nn.Module:
    """ReLU layers with dropout before each of them, the first and the last too."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        if layers:
            layers.append(nn.ReLU())
        layers += [nn.Dropout(p), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def segmentation() -> nn.Module:
    """(N, 3, H, W) -> (N, 19, H, W): a small network whose output is large."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Conv2d(16, 19, 1),
    )


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        title: what a reader sees.
        build: makes the network.
        shape: of the input, rows first.
        num_draws: T.
        bar: what all T draws may cost, in `eval()` passes.
    """

    title: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    num_draws: int
    bar: float


CASES = {
    "lenet": Case("LeNet, dropout before the last layer, B 64", lenet, (64, 1, 28, 28), 100, 0.75),
    "residual-head": Case(
        "residual net 4 x 32 on 32x32, dropout before the head, B 16",
        lambda: residual(head=0.5),
        (16, 3, 32, 32),
        50,
        1.1,
    ),
    "residual-blocks": Case(
        "the same, Dropout2d in every block, B 16", lambda: residual(block=0.2), (16, 3, 32, 32), 20, 12.5
    ),
    "mlp-half": Case(
        "784-512-512-512-10, p 0.5 everywhere, B 256",
        lambda: perceptron(784, 512, 512, 512, 10, p=0.5),
        (256, 784),
        50,
        15,
    ),
    "mlp-tenth": Case(
        "the same, p 0.1", lambda: perceptron(784, 512, 512, 512, 10, p=0.1), (256, 784), 50, 44
    ),
    "mlp-tenth-one-row": Case(
        "the same, p 0.1, B 1", lambda: perceptron(784, 512, 512, 512, 10, p=0.1), (1, 784), 100, 20
    ),
    "regression": Case(
        "13-50-50-1, p 0.05 everywhere, B 100",
        lambda: perceptron(13, 50, 50, 1, p=0.05),
        (100, 13),
        1000,
        280,
    ),
    "wide": Case(
        "1-1024-1024-1024-1024-1, p 0.1 everywhere, B 500",
        lambda: perceptron(1, 1024, 1024, 1024, 1024, 1, p=0.1),
        (500, 1),
        20,
        17,
    ),
}


def made(case: Case) -> tuple[nn.Module, Tensor]:
    """The network, in eval mode, and its input: the same in every environment with the same torch."""
    torch.manual_seed(0)
    return case.build().eval(), torch.randn(case.shape)


def with_dropout_on(net: nn.Module) -> nn.Module:
    """The network itself with its dropout modules, and nothing else, in training mode."""
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.train()
    return net


def best_times(
    calls: Mapping[str, Callable[[], object]], *, rounds: int, least: float = 0.03
) -> dict[str, float]:
    """CPU seconds of every call, the best of some rounds.

    The calls take turns, so that a busy moment of the machine does not fall on one of them alone.

    Args:
        calls: what is timed, by name.
        rounds: how often each of them has its turn, after one that does not count.
        least: a turn repeats its call until it has taken as many seconds, and counts the mean.
    """
    for call in calls.values():
        call()
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], _mean_time(call, least))
    return best


def _mean_time(call: Callable[[], object], least: float) -> float:
    start, spent, repeats = time.process_time(), 0.0, 0
    while spent < least:
        call()
        repeats += 1
        spent = time.process_time() - start
    return spent / repeats
