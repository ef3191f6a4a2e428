"""Active learning on MNIST after Gal, Islam & Ghahramani (2017): labels that 95 % accuracy needs.

A small convolutional network with dropout learns from the labels so far; 20 more are then asked for, those
of highest score among 1000 images of the pool, and it learns on, until its accuracy is at 95 %. The paper
asks for 10 at a time, scores the whole pool and trains a larger network from scratch each time, so that its
numbers are not set beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bayesdrop import acquire
from bayesdrop.data.mnist import load_mnist
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.likelihoods import Categorical
from bayesdrop.plots import new_figure, plot_acquisition
from bayesdrop.predict import predict
from bayesdrop.randomness import random_state_kept

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


_LABELS = {"bald": "BALD", "batch_bald": "BatchBALD"}


@dataclass(frozen=True)
class Config:
    """BALD against random, five repeats."""

    methods: tuple[str, ...] = ("random", "bald")
    repeats: int = 5
    start: int = 20  #: labels at first, two of each class
    batch: int = 20  #: labels asked for at a time
    most: int = 1000  #: labels at which a run ends that has not got there
    target: float = 0.95
    pool: int = 1000  #: images that are scored each time, drawn at random
    num_draws: int = 30
    steps: int = 80  #: of Adam after every batch of labels
    lr: float = 1e-3
    num_test: int = 2500  #: every fourth test image: the later ones are harder
    seed: int = 0


SMOKE = Config(repeats=1, most=40, pool=50, num_draws=4, steps=3, num_test=100)
#: every score, and batches chosen together
PRESETS = {"all": Config(methods=("random", "bald", "batch_bald", "entropy", "variation_ratio", "mean_std"))}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Labels needed by every method, and its curves."""
    keys = [
        {"method": method, "repeat": repeat, **asdict(replace(config, methods=(), repeats=0))}
        for method in config.methods
        for repeat in range(config.repeats)
    ]
    pieces = run_pieces(keys, _learned, cache=cache, progress=progress, label="Active learning")
    needed: dict[str, Tensor] = {}
    rows, arrays = [], {}
    for place, method in enumerate(config.methods):
        runs = pieces[place * config.repeats : (place + 1) * config.repeats]
        needed[method] = torch.tensor([_needed(run, config) for run in runs], dtype=torch.float64)
        error = float(needed[method].std() / config.repeats**0.5) if config.repeats > 1 else None
        note = (
            "" if all(max(run["accuracy"]) >= config.target for run in runs) else "some runs never got there"
        )
        rows.append(
            Row(
                method,
                f"labels for {100 * config.target:g} %",
                None,
                float(needed[method].mean()),
                error,
                note,
            )
        )
        for repeat, found in enumerate(runs):
            arrays[f"{method} {repeat} labels"] = found["labels"]
            arrays[f"{method} {repeat} accuracy"] = found["accuracy"]
    claims = []
    if {"random", "bald"} <= set(config.methods):
        share = float(needed["bald"].mean() / needed["random"].mean())
        claims.append(
            Claim(
                "BALD needs a fraction, at most 60 %, of the labels that random choice needs.",
                f"{float(needed['bald'].mean()):.0f} against {float(needed['random'].mean()):.0f} labels: "
                f"{100 * share:.0f} %.",
                share <= 0.6,
            )
        )
    arrays.update({"methods": list(config.methods), "repeats": config.repeats, "target": config.target})
    return Outcome(tuple(rows), tuple(claims), arrays)


def _needed(found: Mapping[str, Any], config: Config) -> float:
    """Labels at which accuracy first reached the target; the most there were if it never did."""
    for labels, accuracy in zip(found["labels"], found["accuracy"], strict=True):
        if accuracy >= config.target:
            return float(labels)
    return float(config.most)


def _learned(key: Mapping[str, Any]) -> dict[str, Any]:
    """One run: numbers of labels, and the accuracy at each."""
    method, repeat = key["method"], key["repeat"]
    config = Config(**{name: value for name, value in key.items() if name not in ("method", "repeat")})
    data = load_mnist()
    x, y = data.x_train, data.y_train
    every = len(data.x_test) // config.num_test
    test, truth = _inputs(data.x_test[::every]), data.y_test[::every]
    generator = torch.Generator().manual_seed(1000 * config.seed + repeat)
    order = torch.randperm(len(x), generator=generator)
    # As many of each class: all methods of a repeat start alike.
    asked = torch.cat([order[y[order] == k][: config.start // 10] for k in range(10)])
    labels, accuracies = [], []
    with random_state_kept():
        torch.manual_seed(1000 * config.seed + repeat)
        net = _network()
        optimizer = torch.optim.Adam(net.parameters(), lr=config.lr)
        while True:
            _train(net, optimizer, _inputs(x[asked]), y[asked], config.steps)
            accuracy = _accuracy(net, test, truth)
            labels.append(len(asked))
            accuracies.append(accuracy)
            if accuracy >= config.target or len(asked) + config.batch > config.most:
                return {"labels": labels, "accuracy": accuracies}
            free = torch.ones(len(x), dtype=torch.bool)
            free[asked] = False
            pool = torch.randperm(len(x), generator=generator)
            pool = pool[free[pool]][: config.pool]
            asked = torch.cat([asked, pool[_chosen(method, net, _inputs(x[pool]), config)]])


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


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, steps: int) -> None:
    net.train()
    for _ in range(steps):
        rows = torch.randint(len(x), (32,))
        optimizer.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    net.eval()


def _chosen(method: str, net: nn.Module, x: Tensor, config: Config) -> Tensor:
    """Which images of the pool to ask for; a random pool is in random order already."""
    if method == "random":
        return torch.arange(config.batch)
    prediction = predict(
        net, x, num_draws=config.num_draws, likelihood=Categorical(), keep_draws=True, seed=config.seed
    )
    if method == "batch_bald":
        return acquire.batch_bald(prediction, config.batch, max_configurations=500).rows
    score = {
        "bald": acquire.bald,
        "entropy": acquire.entropy,
        "variation_ratio": acquire.variation_ratio,
        "mean_std": acquire.mean_std,
    }[method]
    return acquire.select(score(prediction), config.batch)


def _accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        right = [net(a).argmax(1) == b for a, b in zip(x.split(500), y.split(500), strict=True)]  # type: ignore[no-untyped-call]
    return float(torch.cat(right).double().mean())


def draw(outcome: Outcome) -> Any:
    """Accuracy against labels, a thin line for every run."""
    arrays = outcome.arrays
    figure = new_figure(7.5, 4.6)
    ax = figure.subplots()
    for place, method in enumerate(arrays["methods"]):
        color = "0.45" if method == "random" else f"C{place}"
        runs = [
            [np.asarray(arrays[f"{method} {repeat} {what}"], dtype=float) for what in ("labels", "accuracy")]
            for repeat in range(int(arrays["repeats"]))
        ]
        longest = max((labels for labels, _ in runs), key=len)
        name = _LABELS.get(method, method.replace("_", " "))
        accuracies = [100 * accuracy for _, accuracy in runs]
        plot_acquisition(ax, longest, accuracies, band=None, runs=True, color=color, label=name)
    ax.axhline(100 * arrays["target"], color="0.3", linestyle=":", linewidth=1)
    ax.set(xlabel="labels asked for", ylabel="test accuracy (%)", title="Active learning on MNIST")
    ax.set_ylim(60, 97)
    ax.legend(frameon=False, loc="lower right")
    return figure
