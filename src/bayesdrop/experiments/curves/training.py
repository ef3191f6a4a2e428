"""A network is trained on a series in stretches; what it then says, for pictures and claims.

A stretch is a piece: it goes from one look at the spread to the next. `bayesdrop.fit` writes a checkpoint
every `CHECKPOINT_STEPS` steps and at the end of a stretch, from which the next one goes on bit for bit, so
that an interrupted run loses at most `CHECKPOINT_STEPS` steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from bayesdrop.errors import must
from bayesdrop.experiments.caffe import descent
from bayesdrop.experiments.curves.network import Network, make_network
from bayesdrop.experiments.curves.series import CURVES, Curve
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.fit import History, fit
from bayesdrop.metrics import rmse
from bayesdrop.predict import predict

__all__ = ["ask", "few_errors", "make_optimizer", "make_schedule", "stops", "train", "train_curves"]

#: how often the spread is looked at in training, with how many draws, at how many places
LOOKS, LOOK_DRAWS, LOOK_PLACES = 16, 200, 25
#: steps from one checkpoint to the next
CHECKPOINT_STEPS = 2000
#: the learning rate of Adam falls to this share of what it was
FINAL = 1e-2


def stops(steps: int) -> list[int]:
    """Steps after which the spread is looked at, from 0 to the last; closer together at first.

    >>> stops(10)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    return sorted({round(steps * (place / LOOKS) ** 2) for place in range(LOOKS + 1)})


def train_curves(
    keys: Sequence[Mapping[str, Any]], *, cache: PieceCache, progress: bool
) -> list[dict[str, Any]]:
    """Train networks, or find them in the cache, and ask each what it says of its series.

    Args:
        keys: one for every network, with its series and settings; all have the same number of steps.
        cache: where stretches of training are found and kept.
        progress: show bars.

    Returns: for every key what `ask` gives, and "look_step" (L,) and "look_std" (L,): the spread between the
    two ends of `watched`, root mean square, after so many steps.
    """
    looks = stops(keys[0]["steps"])
    function = partial(_train_stretch, cache=cache)
    made: list[list[dict[str, Any]]] = []
    for start, stop in zip([0, *looks], looks, strict=False):
        stretches = [{**key, "from": start, "until": stop} for key in keys]
        label = f"Networks, to step {stop:,}"
        made.append(run_pieces(stretches, function, cache=cache, progress=progress, label=label))
    found = []
    for place in range(len(keys)):
        spread = np.array([stretch[place]["look_std"] for stretch in made])
        found.append({**made[-1][place], "look_step": np.array(looks), "look_std": spread})
    return found


def _train_stretch(key: Mapping[str, Any], *, cache: PieceCache) -> dict[str, Any]:
    """A piece: training from step `from` to step `until`, and the spread there; at the end what `ask` gives.

    Before the first step (`until` is 0) nothing is trained.
    """
    curve: Curve = CURVES[key["data"]]()
    network = Network(**{field.name: key["network"][field.name] for field in fields(Network)})
    period = curve.period if key["head_start"] else None
    net = make_network(network, key["width"], seed=key["seed"], period=period)
    stop = key["until"]
    loss = None
    if stop:
        path = _checkpoint(key, stop, cache)
        before = _checkpoint(key, key["from"], cache)
        if before.exists() and not path.exists():
            shutil.copyfile(before, path)
        history = train(net, curve.x.float(), curve.y.float(), network, key, steps=stop, checkpoint=path)
        before.unlink(missing_ok=True)
        loss = float(np.mean(history.loss[-max(1, stop // 20) :]))
    else:
        # A run that begins anew must not go on from checkpoints of an earlier one.
        for later in stops(key["steps"]):
            _checkpoint(key, later, cache).unlink(missing_ok=True)
    net.eval()
    first, last = key["watched"]
    watched = torch.linspace(first, last, LOOK_PLACES).unsqueeze(1)
    seen = predict(net, watched, num_draws=min(LOOK_DRAWS, key["num_draws"]), seed=key["seed"])
    found: dict[str, Any] = {"look_std": float(seen.epistemic.mean().sqrt()), "loss": loss}
    if stop == key["steps"]:
        found |= ask(net, curve, key)
        _checkpoint(key, stop, cache).unlink(missing_ok=True)
    return found


def _checkpoint(key: Mapping[str, Any], stop: int, cache: PieceCache) -> Path:
    """The file of the checkpoint after `stop` steps."""
    own = {name: value for name, value in key.items() if name not in ("from", "until")}
    path = cache.path({**own, "checkpoint": stop}).with_suffix(".checkpoint")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def half_squared_error(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Half the mean squared error."""
    loss: Tensor = 0.5 * (net(x) - y).square().mean()
    return loss


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    network: Network,
    key: Mapping[str, Any],
    *,
    steps: int,
    checkpoint: Path | None = None,
) -> History:
    """Train in place on half the mean squared error, all rows at every step.

    Args:
        net: a network of `make_network`.
        x: (N, 1).
        y: (N, 1).
        network: its learning rate and decay.
        key: with `solver`, `lr`, `seed`, and `steps`, which the learning rate's schedule is for.
        steps: training ends after so many, those of the checkpoint included.
        checkpoint: the file to go on from, and to write to.
    """
    return fit(
        net, (x, y), half_squared_error, epochs=steps, batch_size=None, lr=key["lr"],
        optimizer=lambda groups: make_optimizer(net, network, key),
        scheduler=lambda optimizer: make_schedule(optimizer, network, key), checkpoint=checkpoint,
        checkpoint_every=CHECKPOINT_STEPS, seed=key["seed"], progress=False,
    )  # fmt: skip


def make_optimizer(net: nn.Module, network: Network, key: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The authors' stochastic gradient descent, biases at twice the rate; or Adam."""
    if key["solver"] == "adam":
        return torch.optim.Adam(net.parameters(), lr=key["lr"], weight_decay=network.decay, fused=True)
    if key["solver"] != "sgd":
        raise ValueError(must("make_optimizer", "solver", "'adam' or 'sgd'", key["solver"]))
    return descent(net, network.lr, network.decay)


def make_schedule(optimizer: torch.optim.Optimizer, network: Network, key: Mapping[str, Any]) -> LRScheduler:
    """The authors' schedule; or, for Adam, a cosine over all steps."""
    if key["solver"] == "adam":
        return CosineAnnealingLR(optimizer, key["steps"], eta_min=FINAL * key["lr"])
    return LambdaLR(optimizer, lambda step: (1 + network.gamma * step) ** -network.power)


def ask(net: nn.Module, curve: Curve, key: Mapping[str, Any]) -> dict[str, Any]:
    """What a trained network says on the grid, at the training rows and at the held-out rows.

    Args:
        net: of `make_network`, trained.
        curve: the series that it was trained on.
        key: with `between` and `num_grid`, the ends of the grid and its size; `seed`; and how many draws:
            `num_draws`, `few_draws` and `num_paths`.

    Returns: after "grid_", "train_" or "test_": "mean" and "std" of the function over many draws, "few_mean"
    and "few_std" over few, "standard" of one pass with averaged weights, and "rmse" (not on the grid);
    "paths" (num_paths, G), draws on the grid, and "scattered_paths" and "scattered_std" of passes in which
    every row has a mask of its own; what `few_errors` gives.
    """
    start, stop = key["between"]
    grid = torch.linspace(start, stop, key["num_grid"], dtype=torch.float64).unsqueeze(1)
    seed, paths = key["seed"], key["num_paths"]
    places = {"grid": (grid, None), "train": (curve.x, curve.y), "test": (curve.x_test, curve.y_test)}
    found: dict[str, Any] = {"grid": grid[:, 0]}
    for place, (rows, y) in places.items():
        x = rows.float()
        # The same seed gives the same functions, whatever the rows.
        many = predict(net, x, num_draws=key["num_draws"], seed=seed, keep_draws=False)
        # With the same seed they would be the first draws of `many`, which they are compared with.
        few = predict(net, x, num_draws=key["few_draws"], seed=seed + 1)
        values = {
            "mean": many.mean, "std": many.epistemic.sqrt(), "few_mean": few.mean,
            "few_std": few.epistemic.sqrt(), "standard": one_pass(net, x).mean,
        }  # fmt: skip
        found |= {f"{place}_{name}": value[:, 0] for name, value in values.items()}
        if y is not None:
            found[f"{place}_rmse"] = float(rmse(many, y.float()))
    found |= few_errors(
        predict(net, grid.float(), num_draws=key["num_draws"], seed=seed + 1).draws[:, :, 0],
        key["few_draws"], mean=found["grid_mean"], std=found["grid_std"],
    )  # fmt: skip
    functions = predict(net, grid.float(), num_draws=paths, seed=seed)
    scattered = predict(
        net, grid.float(), num_draws=max(paths, key["num_draws"] // 10), seed=seed, draws="independent"
    )
    return found | {
        "paths": functions.draws[:, :, 0],
        "scattered_paths": scattered.draws[:paths, :, 0],
        "scattered_std": scattered.epistemic.sqrt()[:, 0],
    }


def few_errors(draws: Tensor, few: int, *, mean: Tensor, std: Tensor) -> dict[str, float]:
    """How far mean and standard deviation of a few draws are off, root mean square over sets and places.

    Args:
        draws: (T, G) draws on a grid; they are cut into sets of `few`.
        few: draws of a set, at least 2.
        mean: (G,) of many other draws.
        std: (G,) of many other draws; errors are in units of it.

    Returns: "few_mean_error" and "few_std_error".
    """
    sets = draws[: len(draws) // few * few].reshape(-1, few, draws.shape[1])
    off = {"mean": sets.mean(1) - mean, "std": sets.std(1, correction=0) - std}
    return {f"few_{name}_error": float((value / std).square().mean().sqrt()) for name, value in off.items()}
