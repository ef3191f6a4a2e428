"""Active learning on images: labels are asked for in batches until accuracy is where it should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bayesdrop import acquire
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.likelihoods import Categorical
from bayesdrop.plots import new_figure, plot_acquisition
from bayesdrop.predict import predict
from bayesdrop.randomness import random_state_kept

__all__ = ["Asking", "Task", "draw_curves", "learned", "run_methods"]

_NAMES = {"bald": "BALD", "batch_bald": "BatchBALD", "zero_one": "zero-one epistemic"}
_SCORES = {
    "bald": acquire.bald,
    "entropy": acquire.entropy,
    "mean_std": acquire.mean_std,
    "variation_ratio": acquire.variation_ratio,
    "zero_one": acquire.zero_one,
}


@dataclass(frozen=True)
class Asking:
    """How labels are asked for."""

    methods: tuple[str, ...] = ("random", "bald")
    repeats: int = 5
    start: int = 20  #: labels at first, as many of each class
    batch: int = 20  #: labels asked for at a time
    most: int = 1000  #: labels at which a run ends that has not got there
    target: float = 0.95
    pool: int = 1000  #: images that are scored each time, drawn at random
    num_draws: int = 30
    steps: int = 80  #: of Adam after every batch of labels
    lr: float = 1e-3
    num_test: int = 2500  #: of the test images, evenly spaced: the later ones may be harder
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Task:
    """Images with ten classes, and a network for them."""

    x: Tensor  #: (N, ...) of bytes, all that may be asked for
    y: Tensor  #: (N,)
    x_test: Tensor
    y_test: Tensor
    inputs: Callable[[Tensor], Tensor]  #: from bytes to what the network takes
    network: Callable[[], nn.Module]  #: a new one, with dropout


def run_methods(
    config: Asking,
    function: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    cache: PieceCache,
    progress: bool,
) -> Outcome:
    """Labels needed by every method, and its curves.

    Args:
        config: how labels are asked for.
        function: a piece, from its key to what `learned` gives.
        cache: of the pieces.
        progress: whether to draw a bar.
    """
    keys = [
        {"method": method, "repeat": repeat, **asdict(replace(config, methods=(), repeats=0))}
        for method in config.methods
        for repeat in range(config.repeats)
    ]
    pieces = run_pieces(keys, function, cache=cache, progress=progress, label="Active learning")
    needed: dict[str, Tensor] = {}
    rows, arrays = [], {}
    for place, method in enumerate(config.methods):
        runs = pieces[place * config.repeats : (place + 1) * config.repeats]
        needed[method] = torch.tensor([_needed(run, config) for run in runs], dtype=torch.float64)
        error = float(needed[method].std() / config.repeats**0.5) if config.repeats > 1 else None
        note = (
            "" if all(max(run["accuracy"]) >= config.target for run in runs) else "some runs never got there"
        )
        metric = f"labels for {100 * config.target:g} %"
        rows.append(Row(method, metric, None, float(needed[method].mean()), error, note))
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


def _needed(found: Mapping[str, Any], config: Asking) -> float:
    """Labels at which accuracy first reached the target; the most there were if it never did."""
    for labels, accuracy in zip(found["labels"], found["accuracy"], strict=True):
        if accuracy >= config.target:
            return float(labels)
    return float(config.most)


def learned(task: Task, config: Asking, method: str, repeat: int) -> dict[str, Any]:
    """One run: numbers of labels, and the accuracy at each."""
    x, y = task.x, task.y
    every = len(task.x_test) // config.num_test
    test, truth = task.inputs(task.x_test[::every]), task.y_test[::every]
    generator = torch.Generator().manual_seed(1000 * config.seed + repeat)
    order = torch.randperm(len(x), generator=generator)
    # As many of each class: all methods of a repeat start alike.
    asked = torch.cat([order[y[order] == k][: config.start // 10] for k in range(10)])
    labels, accuracies = [], []
    with random_state_kept():
        torch.manual_seed(1000 * config.seed + repeat)
        net = task.network()
        optimizer = torch.optim.Adam(net.parameters(), lr=config.lr)
        while True:
            _train(net, optimizer, task.inputs(x[asked]), y[asked], config.steps)
            accuracy = _accuracy(net, test, truth)
            labels.append(len(asked))
            accuracies.append(accuracy)
            if accuracy >= config.target or len(asked) + config.batch > config.most:
                return {"labels": labels, "accuracy": accuracies}
            free = torch.ones(len(x), dtype=torch.bool)
            free[asked] = False
            pool = torch.randperm(len(x), generator=generator)
            pool = pool[free[pool]][: config.pool]
            asked = torch.cat([asked, pool[_chosen(method, net, task.inputs(x[pool]), config)]])


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, steps: int) -> None:
    net.train()
    for _ in range(steps):
        rows = torch.randint(len(x), (32,))
        optimizer.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    net.eval()


def _chosen(method: str, net: nn.Module, x: Tensor, config: Asking) -> Tensor:
    """Which images of the pool to ask for; a random pool is in random order already."""
    if method == "random":
        return torch.arange(config.batch)
    prediction = predict(
        net, x, num_draws=config.num_draws, likelihood=Categorical(), keep_draws=True, seed=config.seed
    )
    if method == "batch_bald":
        return acquire.batch_bald(prediction, config.batch, max_configurations=500).rows
    return acquire.select(_SCORES[method](prediction), config.batch)


def _accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        right = [net(a).argmax(1) == b for a, b in zip(x.split(500), y.split(500), strict=True)]  # type: ignore[no-untyped-call]
    return float(torch.cat(right).double().mean())


def draw_curves(outcome: Outcome, title: str, *, lowest: float) -> Any:
    """Accuracy against labels, a thin line for every run.

    Args:
        outcome: of `run_methods`.
        title: of the picture.
        lowest: accuracy, in per cent, where the axis begins.
    """
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
        name = _NAMES.get(method, method.replace("_", " "))
        accuracies = [100 * accuracy for _, accuracy in runs]
        plot_acquisition(ax, longest, accuracies, band=None, runs=True, color=color, label=name)
    target = 100 * float(arrays["target"])
    ax.axhline(target, color="0.3", linestyle=":", linewidth=1)
    ax.set(xlabel="labels asked for", ylabel="test accuracy (%)", title=title)
    ax.set_ylim(lowest, target + 2)
    ax.legend(frameon=False, loc="lower right")
    return figure
