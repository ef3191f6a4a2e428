"""Which dropout? Every posterior of this library on the same 3 UCI tables.

A network of two hidden layers of 50 units is trained in the same way with each kind of dropout on UCI
regression sets, noise learned with the weights. Kinds of masks that a Concrete layer may use in draws are
compared on the same trained network. No paper has this table; the question is everybody's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import nn

from bayesdrop.data import DataNotFound, load_uci
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome, Row
from bayesdrop.experiments.settings import all_but
from bayesdrop.fit import fit
from bayesdrop.layers import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    LearnableDropout,
    VariationalGaussianDropout,
    rates,
)
from bayesdrop.likelihoods import Gaussian
from bayesdrop.metrics import interval_coverage, mean_log_likelihood, regression_calibration_error, rmse
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.plots import finish_axes, new_figure, plot_estimates
from bayesdrop.predict import predict
from bayesdrop.randomness import random_state_kept

__all__ = ["SMOKE", "Config", "draw", "run"]

#: name -> layer, p, options; a learned p starts there
KINDS: dict[str, tuple[type[nn.Module], float, dict[str, Any]]] = {
    "Bernoulli 0.05": (BernoulliDropout, 0.05, {}),
    "Bernoulli 0.2": (BernoulliDropout, 0.2, {}),
    "Gaussian 0.05": (GaussianDropout, 0.05, {}),
    "DropConnect 0.05": (DropConnect, 0.05, {}),
    "Concrete": (ConcreteDropout, 0.1, {"masks": "relaxed"}),
    "Concrete, straight-through": (ConcreteDropout, 0.1, {"masks": "straight-through"}),
    "Learnable, per unit": (LearnableDropout, 0.1, {}),
    "Learnable, per layer": (LearnableDropout, 0.1, {"per": "layer"}),
    "Variational Gaussian": (VariationalGaussianDropout, 0.1, {"noise": "inputs"}),
}
_HARD = "Concrete, hard masks in draws"
METRICS = ("RMSE", "log-likelihood (nats)", "95 % coverage", "calibration error")


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    datasets: tuple[str, ...] = ("boston", "concrete", "energy")
    splits: int = 5
    epochs: int = 150
    batch_size: int = 64
    num_draws: int = 500
    length_scale: float = 1e-2


SMOKE = Config(datasets=("boston",), splits=1, epochs=1, num_draws=10)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train every kind on every split; means and standard errors over splits."""
    present, absent = [], []
    for name in config.datasets:
        try:
            load_uci(name)
            present.append(name)
        except DataNotFound:
            absent.append(name)
    common = all_but(config, "datasets", "splits")
    groups = {
        (name, kind): [{"dataset": name, "split": n, "kind": kind, **common} for n in range(config.splits)]
        for name, kind in product(present, KINDS)
    }
    found = run_groups(groups, train_and_score, cache=cache, progress=progress, label="Networks")
    names = [*KINDS, _HARD]
    rows = []
    for name, kind in product([*present, *absent], names):
        pieces = found.get((name, "Concrete" if kind == _HARD else kind), [])
        for k, metric in enumerate(METRICS):
            values = [piece["scores"][kind][k] for piece in pieces]
            rows.append(Row.of_runs(f"{name}, {kind}", metric, values))
    # (sets, kinds, metrics), as rows are
    shape = (len(present), len(names), len(METRICS))
    shown = rows[: np.prod(shape)]
    notes = [
        f"Trained for {config.epochs} epochs; means over {config.splits} splits, standard errors beside them."
    ]
    for kind in KINDS:
        took = [piece["seconds"] for name in present for piece in found[name, kind]]
        if took:
            notes.append(f"{kind}: {np.mean(took):.1f} CPU seconds a network.")
    arrays = {
        "datasets": present,
        "kinds": names,
        "means": np.reshape([row.ours for row in shown], shape).tolist(),
        "errors": np.reshape([row.standard_error or 0.0 for row in shown], shape).tolist(),
    }
    return Outcome(rows=rows, arrays=arrays, notes=notes)


def train_and_score(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: one network, trained and scored.

    Returns: by kind, scores in the order of `METRICS`, on test rows and in the target's units; CPU seconds of
    training; mean rates by layer.
    """
    start = time.process_time()
    split = load_uci(key["dataset"]).split(key["split"], dtype=torch.float32)
    layer, p, options = KINDS[key["kind"]]
    if layer is not VariationalGaussianDropout:
        options = {"length_scale": key["length_scale"], **options}
    with random_state_kept():
        torch.manual_seed(key["split"])
        model = mlp(split.x_train.shape[1], (50, 50), 1, p=p, layer=layer, **options)
    likelihood = Gaussian(0.5, noise="learned")
    objective = NegativeELBO(likelihood, num_data=len(split.x_train))
    fit(
        model, (split.x_train, split.y_train), objective, epochs=key["epochs"], batch_size=key["batch_size"],
        lr=3e-3, rate_lr=1e-2, scheduler="cosine", seed=key["split"], progress=False,
    )  # fmt: skip
    seconds = time.process_time() - start
    found = {key["kind"]: _scores(model, likelihood, split, key["num_draws"])}
    if key["kind"] == "Concrete":
        for part in model:
            if isinstance(part, ConcreteDropout):
                part.masks = "hard"
        found[_HARD] = _scores(model, likelihood, split, key["num_draws"])
    learned = {path: rate.mean().item() for path, rate in rates(model).items()}
    return {"scores": found, "seconds": seconds, "rates": learned}


def _scores(model: nn.Module, likelihood: Gaussian, split: Any, num_draws: int) -> list[float]:
    target = (split.y_test - split.y_mean) / split.y_std
    prediction = predict(
        model.eval(), split.x_test, likelihood=likelihood, num_draws=num_draws, targets=target
    )
    return [
        float(rmse(prediction, target)) * split.y_std,
        float(mean_log_likelihood(prediction, target)) - math.log(split.y_std),
        float(interval_coverage(prediction, target, level=0.95)),
        float(regression_calibration_error(prediction, target)),
    ]


def draw(outcome: Outcome) -> Any:
    """Log-likelihood and coverage of every kind, one column a data set."""
    arrays = outcome.arrays
    datasets, kinds = list(arrays["datasets"]), list(arrays["kinds"])
    means, errors = np.array(arrays["means"]), np.array(arrays["errors"])
    figure = new_figure(3.2 * max(len(datasets), 1) + 2.4, 6.2)
    axes = figure.subplots(2, max(len(datasets), 1), sharey=True, squeeze=False)
    for column, name in enumerate(datasets):
        for row, metric in enumerate((1, 2)):
            ax = axes[row, column]
            value, error = means[column, :, metric], errors[column, :, metric]
            plot_estimates(ax, dict(zip(kinds, zip(value, error, strict=True), strict=True)))
            finish_axes(ax, grid="x", xlabel=METRICS[metric])
            ax.locator_params(axis="x", nbins=5)
            if metric == 2:
                ax.axvline(0.95, color="#b03a2e", linewidth=1)
            else:
                ax.set_title(name)
                ax.axvline(value.max(), color="#888888", linewidth=0.8, linestyle=":")
    return figure
