"""Active learning on images: labels are asked for in batches until accuracy has reached a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop import acquire
from bayesdrop.experiments.caffe import cross_entropy
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.settings import all_but
from bayesdrop.fit import fit
from bayesdrop.likelihoods import Categorical
from bayesdrop.plots import finish_axes, new_figure, plot_acquisition
from bayesdrop.predict import predict

__all__ = ["Asking", "Task", "draw_curves", "learn", "run_methods"]

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
    start: int = 20  #: labels at first, the same number of each class
    batch: int = 20  #: labels asked for at a time
    most: int = 1000  #: a run that never reaches the target ends at so many labels
    target: float = 0.95  #: test accuracy at which a run ends
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
        function: key -> piece, which is what `learn` returns.
        cache: of the pieces.
        progress: whether to draw a bar.
    """
    # Stored pieces have these two fields in their keys: they stay, with one value for all runs.
    settings = all_but(config) | {"methods": (), "repeats": 0}
    groups = {
        method: [{"method": method, "repeat": repeat, **settings} for repeat in range(config.repeats)]
        for method in config.methods
    }
    found = run_groups(groups, function, cache=cache, progress=progress, label="Active learning")
    needed: dict[str, float] = {}
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    for method, runs in found.items():
        labels = [_needed(run, config) for run in runs]
        needed[method] = float(np.mean(labels))
        reached = all(max(run["accuracy"]) >= config.target for run in runs)
        note = "" if reached else "some runs never got there"
        rows.append(Row.of_runs(method, f"labels for {100 * config.target:g} %", labels, note=note))
        for repeat, run in enumerate(runs):
            arrays |= {f"{method} {repeat} {what}": run[what] for what in ("labels", "accuracy")}
    claims = []
    if {"random", "bald"} <= set(config.methods):
        share = needed["bald"] / needed["random"]
        claims.append(
            Claim(
                "BALD needs a fraction, at most 60 %, of the labels that random choice needs.",
                f"{needed['bald']:.0f} against {needed['random']:.0f} labels: {100 * share:.0f} %.",
                share <= 0.6,
            )
        )
    arrays |= {"methods": list(config.methods), "repeats": config.repeats, "target": config.target}
    return Outcome(rows, claims, arrays)


def _needed(found: Mapping[str, Any], config: Asking) -> float:
    """Labels at which accuracy first reached the target; `most` if it never did."""
    for labels, accuracy in zip(found["labels"], found["accuracy"], strict=True):
        if accuracy >= config.target:
            return float(labels)
    return float(config.most)


def learn(task: Task, config: Asking, method: str, repeat: int) -> dict[str, Any]:
    """One run of active learning.

    Returns: "labels", their number after every batch, and "accuracy" on test images with so many.
    """
    x, y = task.x, task.y
    every = len(task.x_test) // config.num_test
    test, truth = task.inputs(task.x_test[::every]), task.y_test[::every]
    generator = torch.Generator().manual_seed(1000 * config.seed + repeat)
    order = torch.randperm(len(x), generator=generator)
    # The same number of each class. All methods of a repeat start with the same labels.
    asked = torch.cat([order[y[order] == k][: config.start // 10] for k in range(10)])
    labels, accuracies = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * config.seed + repeat)
        net = task.network().eval()
        noise = torch.Generator().set_state(torch.get_rng_state())
    optimizer = torch.optim.Adam(net.parameters(), lr=config.lr)
    while True:
        rows = len(asked)
        # Training goes on, with the same optimiser, on minibatches drawn from all labels so far.
        fit(
            net,
            (task.inputs(x[asked]), y[asked]),
            cross_entropy,
            epochs=1,
            batches=lambda epoch: (torch.randint(rows, (32,)) for _ in range(config.steps)),  # noqa: B023
            optimizer=lambda groups: optimizer,
            generator=noise,
            progress=False,
        )
        labels.append(rows)
        right = one_pass(net, test, Categorical(), batch_size=500).label == truth
        accuracies.append(float(right.double().mean()))
        if accuracies[-1] >= config.target or rows + config.batch > config.most:
            return {"labels": labels, "accuracy": accuracies}
        free = torch.ones(len(x), dtype=torch.bool)
        free[asked] = False
        pool = torch.randperm(len(x), generator=generator)
        pool = pool[free[pool]][: config.pool]
        asked = torch.cat([asked, pool[_chosen(method, net, task.inputs(x[pool]), config)]])


def _chosen(method: str, net: nn.Module, x: Tensor, config: Asking) -> Tensor:
    """(batch,) places in the pool of the images to ask for."""
    if method == "random":
        # The pool is in random order already.
        return torch.arange(config.batch)
    prediction = predict(
        net, x, num_draws=config.num_draws, likelihood=Categorical(), keep_draws=True, seed=config.seed
    )
    if method == "batch_bald":
        return acquire.batch_bald(prediction, config.batch, max_configurations=500).rows
    return acquire.select(_SCORES[method](prediction), config.batch)


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
    finish_axes(ax, title, legend="lower right", ylabel="test accuracy (%)", ylim=(lowest, target + 2))
    return figure
