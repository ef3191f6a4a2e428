"""One piece: a network trained on a series, and all that its pictures and claims ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from bayesdrop.errors import Diverged, must
from bayesdrop.experiments.curves.network import Network, make_network
from bayesdrop.experiments.curves.series import CURVES, Curve
from bayesdrop.predict import predict
from bayesdrop.randomness import random_state_kept

__all__ = ["ask", "make_optimizer", "train", "train_curve"]

#: how often the spread is looked at in training, with how many draws, at how many places
LOOKS, LOOK_DRAWS, LOOK_PLACES = 16, 200, 25
#: what the learning rate of Adam falls to
FINAL = 1e-2
MOMENTUM = 0.9


def train_curve(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: key -> what the trained network says on a grid, at the training rows and at the others."""
    curve: Curve = CURVES[key["data"]]()
    network = Network(**{field.name: key["network"][field.name] for field in fields(Network)})
    period = curve.period if key["head_start"] else None
    net = make_network(network, key["width"], seed=key["seed"], period=period)
    start, stop = key["watched"]
    watched = torch.linspace(start, stop, LOOK_PLACES).unsqueeze(1)
    looks: dict[str, list[float]] = {"look_step": [], "look_std": []}

    def look(step: int) -> None:
        seen = predict(net, watched, num_draws=min(LOOK_DRAWS, key["num_draws"]), seed=key["seed"])
        looks["look_step"].append(step)
        looks["look_std"].append(float(seen.epistemic.mean().sqrt()))

    loss = train(net, curve.x.float(), curve.y.float(), network, key, look)
    return ask(net, curve, key) | {name: np.array(values) for name, values in looks.items()} | {"loss": loss}


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    network: Network,
    key: Mapping[str, Any],
    look: Callable[[int], None] = lambda step: None,
) -> float:
    """Train in place on half the mean squared error, all rows at every step.

    Args:
        net: a network of `make_network`.
        x: (N, 1).
        y: (N, 1).
        network: its learning rate and decay.
        key: its `solver`, `lr`, `steps` and `seed` count.
        look: told of steps on the way, at the first and the last too; the network is then in eval mode.

    Returns: the mean loss of the last twentieth of all steps.
    """
    steps = key["steps"]
    optimizer, scheduler = make_optimizer(net, network, key)
    pauses = {round(steps * (place / LOOKS) ** 2) for place in range(LOOKS)}
    tail: list[Tensor] = []
    with random_state_kept():
        torch.manual_seed(key["seed"])
        for step in range(steps):
            if step in pauses:
                net.eval()
                look(step)
            net.train()
            optimizer.zero_grad()
            loss = 0.5 * (net(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if step >= steps - max(1, steps // 20):
                tail.append(loss.detach())
        net.eval()
        look(steps)
    last = float(torch.stack(tail).mean())
    if not np.isfinite(last):
        raise Diverged(f"train: the loss is {last} after {steps} steps.", step=steps, epoch=steps)
    return last


def make_optimizer(
    net: nn.Module, network: Network, key: Mapping[str, Any]
) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """The authors' stochastic gradient descent, biases at twice the rate; or Adam along a cosine."""
    biases = [value for name, value in net.named_parameters() if name.endswith("bias")]
    weights = [value for name, value in net.named_parameters() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases}]
    if key["solver"] == "adam":
        adam = torch.optim.Adam(groups, lr=key["lr"], weight_decay=network.decay, fused=True)
        return adam, CosineAnnealingLR(adam, key["steps"], eta_min=FINAL * key["lr"])
    if key["solver"] != "sgd":
        raise ValueError(must("make_optimizer", "solver", "'adam' or 'sgd'", key["solver"]))
    groups[1]["lr"] = 2 * network.lr
    sgd = torch.optim.SGD(groups, lr=network.lr, momentum=MOMENTUM, weight_decay=network.decay)
    return sgd, LambdaLR(sgd, lambda step: (1 + network.gamma * step) ** -network.power)


def ask(net: nn.Module, curve: Curve, key: Mapping[str, Any]) -> dict[str, Any]:
    """Means and spreads of many draws, of few, of masks that are each row's own, and of no draw at all.

    Names begin with "grid_", "train_" or "test_", where they were asked; paths are draws on the grid.
    """
    start, stop = key["between"]
    grid = torch.linspace(start, stop, key["num_grid"], dtype=torch.float64).unsqueeze(1)
    places = {"grid": grid, "train": curve.x, "test": curve.x_test}
    x = torch.cat(list(places.values())).float()
    seed, paths = key["seed"], key["num_paths"]
    many = predict(net, x, num_draws=key["num_draws"], seed=seed, keep_draws=False)
    # A seed of its own: the first draws of `many` would be among those they are compared with.
    few = predict(net, x, num_draws=key["few_draws"], seed=seed + 1)
    functions = predict(net, grid.float(), num_draws=paths, seed=seed)
    scattered = predict(
        net, grid.float(), num_draws=max(paths, key["num_draws"] // 10), seed=seed, draws="independent"
    )
    with torch.no_grad():
        standard = net(x)
    whole = {
        "mean": many.mean,
        "std": many.epistemic.sqrt(),
        "few_mean": few.mean,
        "few_std": few.epistemic.sqrt(),
        "standard": standard,
    }
    found: dict[str, Any] = {
        "grid": grid[:, 0],
        "paths": functions.draws[:, :, 0],
        "scattered_paths": scattered.draws[:paths, :, 0],
        "scattered_std": scattered.epistemic.sqrt()[:, 0],
    }
    for name, values in whole.items():
        parts = values[:, 0].split([len(part) for part in places.values()])
        found |= {f"{place}_{name}": part for place, part in zip(places, parts, strict=True)}
    return found
