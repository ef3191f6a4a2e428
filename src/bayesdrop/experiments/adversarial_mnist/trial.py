"""One network: trained, attacked in every way, and judged by its own uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop import metrics
from bayesdrop.attacks import fgsm, pgd
from bayesdrop.experiments.adversarial_mnist.images import Images, load_images
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliDropout, ConcreteDropout, rates
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics.scores import ClassScore
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict
from bayesdrop.randomness import random_state_kept

__all__ = ["ATTACKS", "NETWORKS", "PLAIN", "attacked_and_judged", "name_of"]

PLAIN, FIXED, LEARNED = "no dropout", "dropout", "Concrete"
NETWORKS = (PLAIN, FIXED, LEARNED)
#: attacks by name: whether in many steps, and what the attacker knows and wants
ATTACKS: dict[str, dict[str, Any]] = {
    "FGSM": {"many": False, "through": "mean", "goal": "wrong"},
    "FGSM, aware": {"many": False, "through": "draws", "goal": "wrong"},
    "PGD": {"many": True, "through": "mean", "goal": "wrong"},
    "PGD, sure": {"many": True, "through": "mean", "goal": "sure"},
    "PGD, aware": {"many": True, "through": "draws", "goal": "wrong"},
    "PGD, aware and sure": {"many": True, "through": "draws", "goal": "sure"},
}
_SEED_OFFSET = 10**6  #: added to the seed of predictions, so that their draws are not the attacker's


def name_of(radius: float, attack: str, measure: str) -> str:
    """What a number is called in a piece."""
    return f"{radius:g} | {attack} | {measure}"


def attacked_and_judged(key: Mapping[str, Any]) -> dict[str, float]:
    """Train one network, attack it in every way, and measure what it says of the attacked images.

    Returns: numbers by `name_of`; those of clean images have the attack "clean" and radius 0. For Concrete
    dropout also "rate | <layer>".
    """
    data = load_images(key["dataset"])
    net = _trained(key, data)
    # The seed chooses the images, too.
    rows = torch.randperm(len(data.y_test), generator=torch.Generator().manual_seed(key["seed"]))
    x, y = data.x_test[rows[: key["num_images"]]], data.y_test[rows[: key["num_images"]]]
    clean = _Predictions(net, key, x)
    found = {name_of(0, "clean", name): value for name, value in clean.accuracies(y)}
    for radius in key["radii"]:
        for attack, how in ATTACKS.items():
            if key["network"] == PLAIN and how["through"] == "draws":
                continue
            attacked = _Predictions(net, key, _attacked(net, key, x, y, radius, how))
            numbers = [*attacked.accuracies(y), *attacked.against(clean, y)]
            found |= {name_of(radius, attack, name): value for name, value in numbers}
    if key["network"] == LEARNED:
        found |= {f"rate | {name}": float(rate) for name, rate in rates(net).items()}
    return found


def _trained(key: Mapping[str, Any], data: Images) -> nn.Module:
    def fixed(layer: nn.Module, p: float) -> nn.Module:
        return BernoulliDropout(layer, p, length_scale=key["length_scale"])

    def learned(layer: nn.Module, p: float) -> nn.Module:
        return ConcreteDropout(layer, p, length_scale=key["length_scale"])

    p = {PLAIN: 0.0, FIXED: key["p"], LEARNED: key["p_init"]}[key["network"]]
    with random_state_kept():
        torch.manual_seed(key["seed"])
        net = data.network(p, learned if key["network"] == LEARNED else fixed)
    x, y = data.x_train[: key["num_train"]], data.y_train[: key["num_train"]]
    fit(
        net, (x, y), NegativeELBO(Categorical(), num_data=len(x)), epochs=key["epochs"],
        batch_size=key["batch_size"], lr=key["lr"], scheduler="linear", seed=key["seed"],
        channels_last=x.dim() == 4, progress=False,
    )  # fmt: skip
    return net.eval()


def _attacked(
    net: nn.Module, key: Mapping[str, Any], x: Tensor, y: Tensor, radius: float, how: Mapping[str, Any]
) -> Tensor:
    options: dict[str, Any] = {
        "eps": radius,
        "norm": key["norm"],
        "clamp": (0.0, 1.0),
        "through": how["through"],
        "goal": how["goal"],
        "num_draws": key["attack_draws"],
        "seed": key["seed"],
        "batch_size": 200,
    }
    if how["many"]:
        return pgd(net, x, y, Categorical(), steps=key["steps"], **options)
    return fgsm(net, x, y, Categorical(), **options)


class _Predictions:
    """Of one network for the same images: by one pass with averaged weights, and by draws if it has any."""

    def __init__(self, net: nn.Module, key: Mapping[str, Any], x: Tensor) -> None:
        self.single = one_pass(net, x, Categorical())
        self.drawn: Prediction | None = None
        if key["network"] != PLAIN:
            self.drawn = predict(
                net, x, num_draws=key["num_draws"], seed=_SEED_OFFSET + key["seed"],
                likelihood=Categorical(), keep_draws=True, batch_size=500,
            )  # fmt: skip

    def scored(self) -> Iterator[tuple[str, Prediction, ClassScore]]:
        """Ways to say how unsure the network is: name, prediction, and the score of that prediction."""
        yield "max softmax", self.single, "max_prob"
        if self.drawn is not None:
            yield "entropy", self.drawn, "entropy"
            yield "mutual information", self.drawn, "mutual_information"

    def accuracies(self, y: Tensor) -> Iterator[tuple[str, float]]:
        """Names and per cent right: by draws if there are any, and by averaged weights."""
        best = self.single if self.drawn is None else self.drawn
        yield "accuracy", 100 * float(metrics.accuracy(best, y))
        yield "accuracy, averaged weights", 100 * float(metrics.accuracy(self.single, y))

    def against(self, clean: _Predictions, y: Tensor) -> Iterator[tuple[str, float]]:
        """How well each score tells these attacked images from clean ones, and wrong from right among both.

        "unseen" is the percentage of attacked images with a wrong label whose score is not above a limit that
        5 % of clean images exceed.
        """
        for (name, ours, score), (_, theirs, _) in zip(self.scored(), clean.scored(), strict=True):
            yield f"AUROC, attacked, {name}", float(metrics.ood_auroc(theirs, ours, score=score))
            both, labels = _joined(theirs, ours), torch.cat([y, y])
            right = both.label == labels
            if bool(right.any()) and not bool(right.all()):
                found = metrics.misclassification_auroc(both, labels, score=score)
                yield f"AUROC, wrong, {name}", float(found)
            limit = metrics.uncertainty(theirs, score).quantile(0.95)
            unseen = (ours.label != y) & (metrics.uncertainty(ours, score) <= limit)
            yield f"unseen, {name}", 100 * float(unseen.double().mean())


def _joined(first: Prediction, second: Prediction) -> Prediction:
    return Prediction.from_draws(torch.cat([first.draws, second.draws], 1), Categorical())
