"""Gal & Ghahramani (2015), section 4.2: a weak fast model first, a strong one where it is uncertain (MNIST).

A perceptron with 64 hidden units and dropout classifies all test images; those that it is least sure of go
on to LeNet. The curve is accuracy against cost, in multiply-adds an image and as a share of LeNet's. The
cost of the weak model's draws is counted: what comes before its dropout is computed once, its last layer for
every draw. The paper proposes the scheme and prints no numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from bayesdrop import metrics
from bayesdrop.data.mnist import MNIST, load_mnist
from bayesdrop.experiments.digits import Recipe, as_inputs, trained_lenet
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.fit import fit
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics.scores import ClassScore
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.plots import new_figure
from bayesdrop.predict import predict

__all__ = ["SMOKE", "Config", "draw", "run"]

_SCORES: tuple[ClassScore, ...] = get_args(ClassScore)
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
    """Accuracy and cost of the cascade, by what ranks the images."""
    data = load_mnist()
    x, y = as_inputs(data.x_test[: config.num_test]), data.y_test[: config.num_test]
    weak = cache.get({"part": "weak", **asdict(config)}, partial(_weak, config, data))
    strong_net = trained_lenet(
        Recipe(epochs=config.epochs, num_train=config.num_train, seed=config.seed), cache, progress=progress
    )
    with torch.no_grad():
        strong = torch.cat([strong_net(part).argmax(1) for part in x.split(500)])  # type: ignore[no-untyped-call]
    weak_right, strong_right = torch.from_numpy(weak["label"]) == y, strong == y
    generator = torch.Generator().manual_seed(config.seed)
    scores: dict[str, Tensor] = {name: torch.from_numpy(weak[name]) for name in _SCORES}
    scores["random"] = torch.rand(len(y), generator=generator, dtype=torch.float64)
    weak_cost = 784 * config.width + config.num_draws * 10 * config.width
    cost = [(weak_cost + share * STRONG_COST) / STRONG_COST for share in config.shares]
    curves = {
        name: [_accuracy(score, share, weak_right, strong_right) for share in config.shares]
        for name, score in scores.items()
    }
    rows = [
        Row(
            "weak model alone",
            "accuracy (%)",
            None,
            curves["entropy"][0],
            None,
            f"cost {cost[0]:.3f} of LeNet's",
        ),
        Row("LeNet alone", "accuracy (%)", None, 100 * float(strong_right.double().mean())),
    ]
    for name in ("entropy", "mutual_information", "random"):
        rows += [
            Row(
                f"{name}, {100 * share:g} % passed on", "accuracy (%)", None, value, None, f"cost {spent:.3f}"
            )
            for share, spent, value in zip(config.shares, cost, curves[name], strict=True)
            if 0 < share < 1
        ]
    best = 100 * float(strong_right.double().mean())
    gap = best - curves["entropy"][0]
    closed = [
        spent for spent, value in zip(cost, curves["entropy"], strict=True) if best - value <= 0.1 * gap
    ]
    tenth = min(range(len(config.shares)), key=lambda index: abs(config.shares[index] - 0.1))
    claims = (
        Claim(
            "4.2: a weak and fast model can classify, a slower one only what the weak one is uncertain of.",
            f"passed on by entropy, nine tenths of the way from {curves['entropy'][0]:.2f} % to LeNet's "
            f"{best:.2f} % cost {100 * min(closed):.0f} % of LeNet; {100 * config.shares[tenth]:g} % passed "
            f"on give {curves['entropy'][tenth]:.2f} %, by chance {curves['random'][tenth]:.2f} %.",
            min(closed) < 1 / 3,
        ),
    )
    arrays = {"cost": cost, "strong": best, **{f"curve {name}": values for name, values in curves.items()}}
    return Outcome(tuple(rows), claims, arrays)


def _weak(config: Config, data: MNIST) -> dict[str, Any]:
    """Labels and scores of the weak model."""
    torch.manual_seed(config.seed)
    net = mlp(784, (config.width,), 10, p=config.p, input_p=0.0)
    x, y = as_inputs(data.x_train[: config.num_train]).flatten(1), data.y_train[: config.num_train]
    objective = NegativeELBO(Categorical(), num_data=len(x))
    fit(net, (x, y), objective, epochs=config.weak_epochs, batch_size=128, seed=config.seed, progress=False)
    new = as_inputs(data.x_test[: config.num_test]).flatten(1)
    prediction = predict(net, new, num_draws=config.num_draws, seed=config.seed, likelihood=Categorical())
    return {"label": prediction.label, **{name: metrics.uncertainty(prediction, name) for name in _SCORES}}


def _accuracy(score: Tensor, share: float, weak_right: Tensor, strong_right: Tensor) -> float:
    """Per cent right when the least sure `share` of images is decided by the strong model."""
    number = round(share * len(score))
    passed = torch.zeros(len(score), dtype=torch.bool)
    passed[score.argsort(descending=True, stable=True)[:number]] = True
    return 100 * float(torch.where(passed, strong_right, weak_right).double().mean())


def draw(outcome: Outcome) -> Any:
    """Accuracy against cost."""
    arrays = outcome.arrays
    figure = new_figure(7, 4.6)
    ax = figure.subplots()
    cost = np.asarray(arrays["cost"], dtype=float)
    labels = {name: name.replace("_", " ") for name in (*_SCORES, "random")}
    for place, (name, label) in enumerate(labels.items()):
        style = {"color": "0.5", "linestyle": "--"} if name == "random" else {"color": f"C{place}"}
        ax.plot(cost, arrays[f"curve {name}"], marker="o", markersize=3.5, label=label, **style)
    ax.axhline(arrays["strong"], color="0.3", linestyle=":", linewidth=1)
    ax.annotate(
        "LeNet alone", (cost[-1], arrays["strong"]), xytext=(0, 4), textcoords="offset points", ha="right"
    )
    ax.set(
        xlabel="multiply-adds an image, as a share of LeNet's",
        ylabel="test accuracy (%)",
        title="A cascade on MNIST",
    )
    ax.set_ylim(top=100)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, title="passed on by", loc="lower right")
    return figure
