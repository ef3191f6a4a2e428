"""Every method on one split of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.data import load_uci
from bayesdrop.data.table import Split, Table, from_table
from bayesdrop.experiments.friedman import sample_data
from bayesdrop.experiments.injected.laplace import LastLayerLaplace
from bayesdrop.experiments.injected.methods import Clock, injections, plain_loss, seeded_network, trained
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.layers import MeanFieldGaussian
from bayesdrop.likelihoods import HeteroscedasticGaussian
from bayesdrop.metrics import mean_log_likelihood, ood_auroc, regression_calibration_error, rmse
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict

__all__ = ["FAR", "METRICS", "load_table", "table_piece"]

METRICS = ("log-likelihood (nats)", "calibration error", "RMSE", "AUROC, far rows")
#: foreign rows are test rows, so many times as far from the mean of the training rows
FAR = 3.0
_BATCH = 64
_HIDDEN = (50, 50)


def load_table(name: str) -> Table:
    """A UCI set by its name, or "friedman", made up here."""
    if name != "friedman":
        return load_uci(name)
    x, y = sample_data(400, torch.Generator().manual_seed(0))
    return from_table(x, y, splits=20, name=name)


def table_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """All methods on one split: measures by "method | metric", seconds by "method | train", "| predict"."""
    whole = load_table(key["dataset"]).split(key["split"], dtype=torch.float32)
    x, y = whole.x_train[: key["most_rows"]], whole.y_train[: key["most_rows"]]
    own = max(30, round(key["held_out"] * len(x)))
    held_out, rows = (x[:own], y[:own]), (x[own:], y[own:])
    likelihood, clock, seed = HeteroscedasticGaussian(), Clock(), 1000 * key["split"]
    epochs = max(5, round(key["steps"] / math.ceil(len(rows[0]) / _BATCH)))
    options: dict[str, Any] = {"epochs": epochs, "batch_size": _BATCH, "lr": 3e-3}

    def plain() -> nn.Sequential:
        first, second = _HIDDEN
        return nn.Sequential(
            nn.Linear(x.shape[1], first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 2)
        )

    members = []
    for member in range(key["members"]):
        with clock.of("train bare" if member == 0 else "train ensemble"):
            net = seeded_network(plain, seed + member)
            members.append(trained(net, rows, plain_loss(likelihood), seed + member, **options))
    bare = members[0]
    clock.seconds["train ensemble"] = clock.seconds["train bare"] + clock.seconds.get("train ensemble", 0.0)
    elbo = NegativeELBO(likelihood, num_data=len(rows[0]))
    with clock.of("train dropout, trained"):
        net = seeded_network(lambda: mlp(x.shape[1], _HIDDEN, 2, p=key["p"], input_p=0.0), seed)
        dropout = trained(net, rows, elbo, seed, **options)
    with clock.of("train mean-field VI"):
        prior: dict[str, Any] = {"layer": MeanFieldGaussian, "length_scale": 1.0}
        net = seeded_network(lambda: mlp(x.shape[1], _HIDDEN, 2, p=0.01, **prior), seed)
        factored = trained(net, rows, elbo, seed, **options)
    with clock.of("train last-layer Laplace"):
        laplace = LastLayerLaplace(bare, rows[0], held_out, likelihood, key["num_draws"])
    with clock.of("train temperature"), torch.no_grad():
        mean, log_variance = likelihood.split(bare(held_out[0]))
        # The likeliest factor of all variances.
        factor = ((held_out[1] - mean).square() / log_variance.exp()).mean()
    with_noise = injections(bare, held_out, likelihood, key["num_draws"], clock)

    def drawn(model: nn.Module) -> Callable[[Tensor], Prediction]:
        return lambda rows: predict(model, rows, likelihood=likelihood, num_draws=key["num_draws"])

    shift = torch.stack([torch.zeros(()), factor.log()])
    predictors: dict[str, Callable[[Tensor], Prediction]] = {
        "bare": lambda rows: one_pass(bare, rows, likelihood),
        "temperature": lambda rows: Prediction.from_draws(bare(rows).detach().add(shift)[None], likelihood),
        **{name: drawn(found.model) for name, found in with_noise.items()},
        "last-layer Laplace": laplace.predict,
        "dropout, trained": drawn(dropout),
        "mean-field VI": drawn(factored),
        "ensemble": lambda rows: Prediction.from_draws(
            torch.stack([net(rows).detach() for net in members]), likelihood
        ),
    }
    found: dict[str, Any] = {}
    for name, predicted in predictors.items():
        found |= {
            f"{name} | {metric}": value for metric, value in _scores(name, predicted, whole, clock).items()
        }
    for name, seconds in clock.seconds.items():
        what, _, method = name.partition(" ")
        found[f"{method} | {what}"] = seconds
    for name, made in with_noise.items():
        found |= {f"{name} | p": made.p, f"{name} | scale": made.scale}
    return found


def _scores(
    name: str, predicted: Callable[[Tensor], Prediction], split: Split, clock: Clock
) -> dict[str, float]:
    target = (split.y_test - split.y_mean) / split.y_std
    with clock.of(f"predict {name}"):
        inside = predicted(split.x_test)
    outside = predicted(FAR * split.x_test)
    score = "std" if inside.num_draws > 1 else "aleatoric"
    values = (
        float(mean_log_likelihood(inside, target)) - math.log(split.y_std),
        float(regression_calibration_error(inside, target)),
        float(rmse(inside, target)) * split.y_std,
        float(ood_auroc(inside, outside, score=score)),  # type: ignore[arg-type]
    )
    return dict(zip(METRICS, values, strict=True))
