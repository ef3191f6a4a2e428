"""Cascades: a fast, weak model answers first, a strong one where it is uncertain. Accuracy against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop import metrics
from bayesdrop.cascade import passed_on
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.metrics.scores import ClassScore
from bayesdrop.plots import finish_axes, new_figure
from bayesdrop.predict import Prediction

__all__ = ["compared", "described", "draw_costs", "multiply_adds"]

_SCORES: tuple[ClassScore, ...] = get_args(ClassScore)


def described(prediction: Prediction) -> dict[str, Any]:
    """What a cascade needs of the weak model: "label" (N,), and (N,) of every score of how unsure it is."""
    return {"label": prediction.label, **{name: metrics.uncertainty(prediction, name) for name in _SCORES}}


def compared(
    weak: Mapping[str, Any],
    strong: Tensor,
    y: Tensor,
    *,
    weak_cost: float,
    strong_cost: float,
    shares: Sequence[float],
    strong_name: str,
    seed: int,
) -> Outcome:
    """Accuracy and cost of the cascade, for every score that may choose the images that are passed on.

    Args:
        weak: what `described` gives.
        strong: (N,) labels that the strong model predicts.
        y: (N,) true labels.
        weak_cost: multiply-adds for an image, all draws counted.
        strong_cost: multiply-adds for an image.
        shares: of images that are passed on; the first is 0.
        strong_name: of the strong model.
        seed: of the random order.
    """
    weak_right, strong_right = torch.as_tensor(weak["label"]) == y, strong == y
    generator = torch.Generator().manual_seed(seed)
    scores: dict[str, Tensor] = {name: torch.as_tensor(weak[name]) for name in _SCORES}
    scores["random"] = torch.rand(len(y), generator=generator, dtype=torch.float64)
    cost = [(weak_cost + share * strong_cost) / strong_cost for share in shares]
    curves = {
        name: [_accuracy(score, share, weak_right, strong_right) for share in shares]
        for name, score in scores.items()
    }
    best = 100 * float(strong_right.double().mean())
    note = f"cost {cost[0]:.3f} of {strong_name}'s"
    rows = [
        Row("weak model alone", "accuracy (%)", None, curves["entropy"][0], None, note),
        Row(f"{strong_name} alone", "accuracy (%)", None, best),
    ]
    for name in ("entropy", "mutual_information", "random"):
        rows += [
            Row(
                f"{name}, {100 * share:g} % passed on", "accuracy (%)", None, value, None, f"cost {spent:.3f}"
            )
            for share, spent, value in zip(shares, cost, curves[name], strict=True)
            if 0 < share < 1
        ]
    gap = best - curves["entropy"][0]
    closed = [
        spent for spent, value in zip(cost, curves["entropy"], strict=True) if best - value <= 0.1 * gap
    ]
    tenth = min(range(len(shares)), key=lambda index: abs(shares[index] - 0.1))
    claim = Claim(
        "4.2: a weak and fast model can classify, a slower one only what the weak one is uncertain of.",
        f"passed on by entropy, nine tenths of the way from {curves['entropy'][0]:.2f} % to {strong_name}'s "
        f"{best:.2f} % cost {100 * min(closed):.0f} % of {strong_name}; {100 * shares[tenth]:g} % passed "
        f"on give {curves['entropy'][tenth]:.2f} %, by chance {curves['random'][tenth]:.2f} %.",
        min(closed) < 1 / 3,
    )
    arrays = {"cost": cost, "strong": best, **{f"curve {name}": values for name, values in curves.items()}}
    return Outcome(rows, (claim,), arrays)


def _accuracy(score: Tensor, share: float, weak_right: Tensor, strong_right: Tensor) -> float:
    """Per cent right when the least sure `share` of images is decided by the strong model."""
    passed = passed_on(score, share)
    return 100 * float(torch.where(passed, strong_right, weak_right).double().mean())


def multiply_adds(net: nn.Module, x: Tensor) -> dict[str, int]:
    """Multiply-adds of one row through every convolution and linear layer, by the layer's name.

    Args:
        net: in eval mode.
        x: (1, ...), the row.
    """
    counted: dict[str, int] = {}
    hooks = []
    for name, part in net.named_modules():
        if isinstance(part, nn.Conv2d | nn.Linear):

            def count(module: nn.Module, _: Any, output: Tensor, name: str = name) -> None:
                weight = module.get_parameter("weight")
                counted[name] = weight[0].numel() * output.numel()

            hooks.append(part.register_forward_hook(count))
    try:
        with torch.no_grad():
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return counted


def draw_costs(outcome: Outcome, title: str, *, strong_name: str, highest: float | None = None) -> Any:
    """Accuracy against cost.

    Args:
        outcome: of `compared`.
        title: of the picture.
        strong_name: of the strong model.
        highest: accuracy, in per cent, where the axis ends.
    """
    arrays = outcome.arrays
    figure = new_figure(7, 4.6)
    ax = figure.subplots()
    cost = np.asarray(arrays["cost"], dtype=float)
    labels = {name: name.replace("_", " ") for name in (*_SCORES, "random")}
    for place, (name, label) in enumerate(labels.items()):
        style = {"color": "0.5", "linestyle": "--"} if name == "random" else {"color": f"C{place}"}
        ax.plot(cost, arrays[f"curve {name}"], marker="o", markersize=3.5, label=label, **style)
    ax.axhline(arrays["strong"], color="0.3", linestyle=":", linewidth=1)
    above = {"xytext": (0, 4), "textcoords": "offset points", "ha": "right"}
    ax.annotate(f"{strong_name} alone", (cost[-1], arrays["strong"]), **above)
    ax.set_ylim(top=highest)
    names = {
        "xlabel": f"multiply-adds an image, as a share of {strong_name}'s",
        "ylabel": "test accuracy (%)",
    }
    return finish_axes(ax, title, legend={"title": "passed on by", "loc": "lower right"}, **names).figure
