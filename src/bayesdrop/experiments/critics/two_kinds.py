"""Two kinds of uncertainty: do their estimates differ, and does each detect what it should?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.experiments.injected.images import load_images, make_network
from bayesdrop.experiments.injected.methods import plain_loss, seeded_network, trained
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.inject import inject
from bayesdrop.layers import convert
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics import ood_auroc
from bayesdrop.metrics.scores import ClassScore
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict

__all__ = ["DETECTED", "KIND_METHODS", "PARTS", "kinds_piece", "rank_correlation"]

KIND_METHODS = ("dropout", "injected", "ensemble")
#: the kinds of uncertainty, and the score that estimates each
PARTS: dict[str, ClassScore] = {"aleatoric": "expected_entropy", "epistemic": "mutual_information"}
#: sets of images that the scores are to tell from clean ones
DETECTED = ("blends", "foreign images")
#: share of the training images that are blends
_BLENDS = 0.2
_P = 0.3
_MEMBERS = 5


def blended(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Every image averaged with another one, and the label of one of the two, at random."""
    other = torch.randperm(len(x), generator=generator)
    first = torch.rand(len(x), generator=generator) < 0.5
    return (x + x[other]) / 2, torch.where(first, y, y[other])


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation of two scores."""
    ranks = torch.stack([score.argsort().argsort().double() for score in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def kinds_piece(key: Mapping[str, Any]) -> dict[str, float]:
    """A piece: how the two estimates of every method correlate, and what each detects.

    Returns: "<method> | correlation" over all images; "<method> | <part> | <set>", the AUROC of that set's
    images against clean ones; "<method> | <part> | foreign against blends", that of foreign images against
    blends.
    """
    data, seed = load_images(key["images"]), 1000 * key["seed"]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.y_train), generator=generator)
    size, count = key["num_train"], key["num_test"]
    x, y = data.x_train[order], data.y_train[order]
    blends = round(_BLENDS * size)
    over, either = blended(x[:blends], y[:blends], generator)
    rows = torch.cat([over, x[blends:size]]), torch.cat([either, y[blends:size]])
    # Rows that `inject` chooses the strength of its noise on: half of them clean, half blends.
    first, second = slice(size, size + 250), slice(size + 250, size + 500)
    over, either = blended(x[second], y[second], generator)
    held_out = torch.cat([x[first], over]), torch.cat([y[first], either])
    clean = data.x_test[:count]
    mixed, _ = blended(clean, data.y_test[:count], generator)
    sets = {"clean": clean, "blends": mixed, "foreign images": data.outside[:count]}
    found: dict[str, float] = {}
    for method in KIND_METHODS:
        predicted = _predictor(method, rows, held_out, key, seed)
        predictions = {name: predicted(images) for name, images in sets.items()}
        every = {
            name: torch.cat([getattr(one, score).double() for one in predictions.values()])
            for name, score in PARTS.items()
        }
        found[f"{method} | correlation"] = rank_correlation(every["aleatoric"], every["epistemic"])
        for name, score in PARTS.items():
            for place in DETECTED:
                auroc = float(ood_auroc(predictions["clean"], predictions[place], score=score))
                found[f"{method} | {name} | {place}"] = auroc
            # Among images that are not clean: do foreign ones have more of it than blends?
            found[f"{method} | {name} | foreign against blends"] = float(
                ood_auroc(predictions["blends"], predictions["foreign images"], score=score)
            )
    return found


def _predictor(
    method: str,
    rows: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    key: Mapping[str, Any],
    seed: int,
) -> Callable[[Tensor], Prediction]:
    """A function from images to the predictions of a method trained on `rows`."""
    likelihood = Categorical()
    options: dict[str, Any] = {"epochs": key["epochs"], "batch_size": 64, "lr": 2e-3}

    def plain() -> nn.Sequential:
        return make_network(rows[0].shape[-1])

    if method == "dropout":
        net = convert(seeded_network(plain, seed), "bernoulli", where=nn.Linear, p=_P)
        model = trained(net, rows, NegativeELBO(likelihood, num_data=len(rows[1])), seed, **options)
        return lambda x: predict(model, x, likelihood=likelihood, num_draws=key["num_draws"], batch_size=500)
    count = _MEMBERS if method == "ensemble" else 1
    nets = [
        trained(seeded_network(plain, seed + n), rows, plain_loss(likelihood), seed + n, **options)
        for n in range(count)
    ]
    if method == "ensemble":
        return lambda x: Prediction.from_draws(
            torch.stack([one_pass(net, x, batch_size=500).mean for net in nets]), likelihood
        )
    found = inject(nets[0], held_out, likelihood=likelihood, num_draws=key["num_draws"], tolerance=0.02).model
    return lambda x: predict(found, x, likelihood=likelihood, num_draws=key["num_draws"], batch_size=500)
