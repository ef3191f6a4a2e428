"""Every method on the splits of a table. Networks are trained side by side in a stack."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.data import load_uci
from bayesdrop.data.table import Split, Table, from_table
from bayesdrop.experiments.friedman import sample_data
from bayesdrop.experiments.injected.laplace import LastLayerLaplace
from bayesdrop.experiments.injected.methods import Clock, injections, plain_loss, trained
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.layers import MeanFieldGaussian, StochasticLayer, convert
from bayesdrop.likelihoods import HeteroscedasticGaussian
from bayesdrop.metrics import mean_log_likelihood, ood_auroc, regression_calibration_error, rmse
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict
from bayesdrop.stacked import Job, Settings, export, train

__all__ = ["FAR", "METRICS", "load_table", "table_piece"]

METRICS = ("log-likelihood (nats)", "calibration error", "RMSE", "AUROC, far rows")
#: foreign rows are the test rows, this many times as far from the mean of the training rows
FAR = 3.0
_BATCH = 64
_LR = 3e-3
#: steps of `fit` whose time is measured; that of all steps is taken to be in proportion
_TIMED = 150
_HIDDEN = (50, 50)


def load_table(name: str) -> Table:
    """A UCI set by its name, or "friedman", made up here."""
    if name != "friedman":
        return load_uci(name)
    x, y = sample_data(400, torch.Generator().manual_seed(0))
    return from_table(x, y, splits=20, name=name)


def table_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece, one table: scores and CPU seconds as lists over splits, see `_judged` for their names."""
    table = load_table(key["dataset"])
    splits = [_Part.of(table.split(n, dtype=torch.float32), key) for n in range(key["splits"])]
    networks = _trained(splits, key)
    seconds = _training_seconds(splits[0], key)
    found: dict[str, list[float]] = {}
    for n, part in enumerate(splits):
        own = {kind: nets[n] for kind, nets in networks.items()}
        for name, value in (_judged(part, own, key) | seconds).items():
            found.setdefault(name, []).append(value)
    return found


@dataclass(frozen=True, eq=False)
class _Part:
    """A split, and its training rows: those that are learned, and those that are held out."""

    split: Split
    rows: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, split: Split, key: Mapping[str, Any]) -> _Part:
        x, y = split.x_train[: key["most_rows"]], split.y_train[: key["most_rows"]]
        own = max(30, round(key["held_out"] * len(x)))
        return cls(split, (x[own:], y[own:]), (x[:own], y[:own]))


def _epochs(part: _Part, steps: int) -> int:
    return max(1, round(steps / math.ceil(len(part.rows[0]) / _BATCH)))


def _trained(splits: Sequence[_Part], key: Mapping[str, Any]) -> dict[str, list[list[nn.Sequential]]]:
    """For every kind of network a list over splits of its members, all trained side by side."""
    kinds = {
        "bare": (key["members"], {"p": 0.0}),
        "dropout": (1, {"p": key["p"]}),
        "mean field": (1, {"method": "meanfield", "p": 0.01, "input_p": 0.01, "length_scale": 1.0}),
    }
    jobs, places = [], []
    for kind, (members, options) in kinds.items():
        for n, part in enumerate(splits):
            epochs = _epochs(part, key["steps"])
            settings = Settings(
                hidden=_HIDDEN, noise="heteroscedastic", epochs=epochs, batch_size=_BATCH, lr=_LR,
                clip_norm=10.0, patience=5, check_every=max(1, epochs // 20), **options,
            )  # fmt: skip
            own, rows = len(part.held_out[0]), len(part.rows[0])
            x, y = (torch.cat(pair) for pair in zip(part.held_out, part.rows, strict=True))
            places_of: dict[str, Any] = {
                "validation": torch.arange(own),
                "rows": torch.arange(own, own + rows),
            }
            for member in range(members):
                jobs.append(Job(x, y, settings, seed=1000 * n + member, **places_of))
                places.append((kind, n))
    networks: dict[str, list[list[nn.Sequential]]] = {kind: [[] for _ in splits] for kind in kinds}
    for (kind, n), made in zip(places, train(jobs), strict=True):
        # Layers of rate 0 become plain ones: all of a bare network, the first of one with dropout.
        quiet: dict[str, Any] = {"bare": StochasticLayer, "dropout": "0"}
        net: Any = export(made)
        net = convert(net, "none", where=quiet[kind]) if kind in quiet else net
        networks[kind][n].append(net)
    return networks


def _training_seconds(part: _Part, key: Mapping[str, Any]) -> dict[str, float]:
    """CPU seconds that `fit` takes for one network of each kind by itself, from its first steps."""
    x, y = part.rows
    likelihood = HeteroscedasticGaussian()
    elbo = NegativeELBO(likelihood, num_data=len(x))
    prior: dict[str, Any] = {"layer": MeanFieldGaussian, "length_scale": 1.0}
    kinds: dict[str, tuple[nn.Module, Any]] = {
        "bare": (plain_network(x.shape[1]), plain_loss(likelihood)),
        "dropout, trained": (mlp(x.shape[1], _HIDDEN, 2, p=key["p"], input_p=0.0), elbo),
        "mean-field VI": (mlp(x.shape[1], _HIDDEN, 2, p=0.01, **prior), elbo),
    }
    steps = min(key["steps"], _TIMED)
    few = min(len(x), steps * _BATCH)
    # The first call of all takes longer than later ones: it is not measured.
    trained(kinds["bare"][0], (x[:_BATCH], y[:_BATCH]), kinds["bare"][1], 0, epochs=2, batch_size=_BATCH)
    found: dict[str, float] = {}
    for name, (net, objective) in kinds.items():
        clock = Clock()
        epochs = max(1, round(steps / math.ceil(few / _BATCH)))
        with clock.of(name):
            trained(net, (x[:few], y[:few]), objective, 0, epochs=epochs, batch_size=_BATCH, lr=_LR)
        found[f"{name} | train"] = clock.seconds[name] * key["steps"] / (epochs * math.ceil(few / _BATCH))
    return found | {"ensemble | train": key["members"] * found["bare | train"]}


def plain_network(inputs: int) -> nn.Sequential:
    """A network with two outputs, a mean and a log-variance, without dropout."""
    first, second = _HIDDEN
    return nn.Sequential(
        nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 2)
    )


def _judged(
    part: _Part, networks: Mapping[str, list[nn.Sequential]], key: Mapping[str, Any]
) -> dict[str, float]:
    """All methods on one split: scores by "method | metric", seconds by "method | train", "| predict"."""
    members, clock, likelihood = networks["bare"], Clock(), HeteroscedasticGaussian()
    bare, held_out = members[0], part.held_out
    with clock.of("train last-layer Laplace"):
        laplace = LastLayerLaplace(bare, part.rows[0], held_out, likelihood, key["num_draws"])
    with clock.of("train temperature"), torch.no_grad():
        mean, log_variance = likelihood.split(bare(held_out[0]))
        # The factor of all variances at which the held-out targets are likeliest.
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
        "dropout, trained": drawn(networks["dropout"][0]),
        "mean-field VI": drawn(networks["mean field"][0]),
        "ensemble": lambda rows: Prediction.from_draws(
            torch.stack([net(rows).detach() for net in members]), likelihood
        ),
    }
    found: dict[str, float] = {}
    for name, predicted in predictors.items():
        scores = _scores(name, predicted, part.split, clock)
        found |= {f"{name} | {metric}": value for metric, value in scores.items()}
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
