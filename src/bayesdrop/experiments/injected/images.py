"""Every method on one seed of a set of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.calibration import TemperatureScaling
from bayesdrop.data.mnist import load_fashion_mnist, load_mnist
from bayesdrop.errors import must, require
from bayesdrop.experiments.injected.laplace import LastLayerLaplace
from bayesdrop.experiments.injected.methods import Clock, injections, plain_loss, seeded_network, trained
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.layers import convert
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics import accuracy, expected_calibration_error, mean_log_likelihood, ood_auroc
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict

__all__ = ["METRICS", "image_piece", "load_images"]

METRICS = (
    "log-likelihood (nats)",
    "calibration error (%)",
    "accuracy (%)",
    "AUROC, entropy",
    "AUROC, max softmax",
    "AUROC, mutual information",
)
_WIDTH = 128


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images (N, 1, S, S) from 0 to 1, their labels (N,), and foreign images."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    outside: Tensor


def load_images(name: str) -> ImageSplit:
    """MNIST and, as foreign images, Fashion-MNIST; or scikit-learn's digits and the same upside down.

    Raises:
        DataNotFound: a set is not at hand.
    """
    if name == "digits":
        datasets: Any = require("sklearn.datasets", extra="sklearn", owner="injected")
        x, y = datasets.load_digits(return_X_y=True)
        images = torch.as_tensor(x, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
        labels = torch.as_tensor(y, dtype=torch.int64)
        return ImageSplit(images[:1400], labels[:1400], images[1400:], labels[1400:], images[1400:].flip(2))
    if name != "mnist":
        raise ValueError(must("injected", "images", "among mnist, digits", name))
    own, other = load_mnist(), load_fashion_mnist()
    scaled = [part.float().div(255).unsqueeze(1) for part in (own.x_train, own.x_test, other.x_test)]
    return ImageSplit(scaled[0], own.y_train, scaled[1], own.y_test, scaled[2])


def make_network(side: int) -> nn.Sequential:
    """Two convolutions and two linear maps, without dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * (side // 4) ** 2, _WIDTH), nn.ReLU(),
        nn.Linear(_WIDTH, 10),
    )  # fmt: skip


def image_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece, one seed: scores by "method | metric", CPU seconds by "method | train" and "| predict"."""
    data, seed = load_images(key["dataset"]), 1000 * key["seed"]
    order = torch.randperm(len(data.y_train), generator=torch.Generator().manual_seed(seed))
    chosen, own = order[: key["num_train"]], order[key["num_train"] :][: key["held_out_images"]]
    rows = (data.x_train[chosen], data.y_train[chosen])
    held_out = (data.x_train[own], data.y_train[own])
    inside, y = data.x_test[: key["num_test"]], data.y_test[: key["num_test"]]
    outside = data.outside[: key["num_test"]]
    likelihood, clock = Categorical(), Clock()
    options: dict[str, Any] = {"epochs": key["epochs"], "batch_size": 64, "lr": 2e-3}

    def plain() -> nn.Sequential:
        return make_network(inside.shape[-1])

    members = []
    for member in range(key["members"]):
        with clock.of("train bare" if member == 0 else "train ensemble"):
            net = seeded_network(plain, seed + member)
            members.append(trained(net, rows, plain_loss(likelihood), seed + member, **options))
    bare = members[0]
    clock.seconds["train ensemble"] = clock.seconds["train bare"] + clock.seconds.get("train ensemble", 0.0)
    elbo = NegativeELBO(likelihood, num_data=len(chosen))
    with clock.of("train dropout, trained"):
        net = convert(seeded_network(plain, seed), "bernoulli", where=nn.Linear, p=key["image_p"])
        dropout = trained(net, rows, elbo, seed, **options)
    with clock.of("train mean-field VI"):
        net = convert(seeded_network(plain, seed), "meanfield", where="weights", length_scale=1.0)
        factored = trained(net, rows, elbo, seed, **options)
    with clock.of("train last-layer Laplace"):
        laplace = LastLayerLaplace(bare, rows[0], held_out, likelihood, key["image_draws"])
    with clock.of("train temperature"):
        scaling = TemperatureScaling().fit(one_pass(bare, held_out[0], likelihood), held_out[1])
    with_noise = injections(bare, held_out, likelihood, key["image_draws"], clock)

    def drawn(model: nn.Module) -> Callable[[Tensor], Prediction]:
        return lambda x: predict(
            model, x, likelihood=likelihood, num_draws=key["image_draws"], batch_size=500, keep_draws=True
        )

    predictors: dict[str, Callable[[Tensor], Prediction]] = {
        "bare": lambda x: one_pass(bare, x, likelihood, batch_size=500),
        "temperature": lambda x: scaling.apply(one_pass(bare, x, likelihood, batch_size=500)),
        **{name: drawn(found.model) for name, found in with_noise.items()},
        "last-layer Laplace": laplace.predict,
        "dropout, trained": drawn(dropout),
        "mean-field VI": drawn(factored),
        "ensemble": lambda x: Prediction.from_draws(
            torch.stack([one_pass(net, x, batch_size=500).mean for net in members]), likelihood
        ),
    }
    found: dict[str, Any] = {}
    for name, predicted in predictors.items():
        with clock.of(f"predict {name}"), torch.no_grad():
            within = predicted(inside)
        found |= {
            f"{name} | {metric}": value for metric, value in _scores(within, predicted(outside), y).items()
        }
    for name, seconds in clock.seconds.items():
        what, _, method = name.partition(" ")
        found[f"{method} | {what}"] = seconds
    for name, made in with_noise.items():
        found |= {f"{name} | p": made.p, f"{name} | scale": made.scale}
    return found


def _scores(inside: Prediction, outside: Prediction, y: Tensor) -> dict[str, float]:
    values = {
        "log-likelihood (nats)": float(mean_log_likelihood(inside, y)),
        "calibration error (%)": 100 * float(expected_calibration_error(inside, y)),
        "accuracy (%)": 100 * float(accuracy(inside, y)),
        "AUROC, entropy": float(ood_auroc(inside, outside, score="entropy")),
        "AUROC, max softmax": float(ood_auroc(inside, outside, score="max_prob")),
    }
    if inside.num_draws > 1:
        auroc = float(ood_auroc(inside, outside, score="mutual_information"))
        values["AUROC, mutual information"] = auroc
    return values
