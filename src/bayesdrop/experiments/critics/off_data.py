"""A curve with a gap: how much surer is a method at the data than in the gap and far outside?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.experiments.injected.methods import plain_loss, seeded_network, trained
from bayesdrop.gp import GaussianProcess, NetworkKernel
from bayesdrop.inject import inject
from bayesdrop.layers import BernoulliDropout, ConcreteDropout, MeanFieldGaussian
from bayesdrop.likelihoods import Gaussian
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict

__all__ = ["CURVE_METHODS", "EXACT", "GRID", "INNER", "OUTER", "curve_piece"]

#: two methods of exact inference, then approximate ones
CURVE_METHODS = (
    "Gaussian process",
    "Bayesian network, exact",
    "dropout, p = 0.05",
    "dropout, p = 0.2",
    "Concrete dropout",
    "injected",
    "mean-field VI",
    "ensemble",
)
EXACT = CURVE_METHODS[:2]
NOISE = 0.1
#: data have |x| from INNER to OUTER; "in the gap" is |x| of at most INNER / 2, "far away" at least FAR
INNER, OUTER, FAR = 0.7, 2.0, 3.5
GRID = np.linspace(-4.5, 4.5, 181)
_MEMBERS = 5


def sample_rows(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """x (N, 1) on both sides of the gap, and y = sin(2 x) with noise (N, 1), N being `rows`."""
    generator = torch.Generator().manual_seed(seed)
    size = INNER + (OUTER - INNER) * torch.rand(rows, 1, generator=generator)
    x = torch.where(torch.arange(rows).unsqueeze(1) % 2 == 0, size, -size)
    return x, torch.sin(2 * x) + NOISE * torch.randn(rows, 1, generator=generator)


def curve_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: what a method says of the function, which is without noise.

    Returns: "spread", its standard deviation on `GRID`, and means of that at the "data", in the "gap" and
    "far" away.
    """
    x, y = sample_rows(key["rows"], key["seed"])
    grid = torch.as_tensor(GRID, dtype=torch.float32).unsqueeze(1)
    spread = _spread(key, x, y, grid).double().numpy()
    size = np.abs(GRID)
    places = {
        "data": (size >= INNER) & (size <= OUTER),
        "gap": size <= INNER / 2,
        "far": size >= FAR,
    }
    return {"spread": spread, **{name: float(spread[where].mean()) for name, where in places.items()}}


def _spread(key: Mapping[str, Any], x: Tensor, y: Tensor, grid: Tensor) -> Tensor:
    """(G,) standard deviation of the function on a grid (G, 1)."""
    method, seed = key["method"], key["seed"]
    if method == "Gaussian process":
        # Infinitely many cosine units: the squared exponential kernel.
        return _process(NetworkKernel("cosine", length_scale=0.8), x, y, grid)
    if method == "Bayesian network, exact":
        return _process(NetworkKernel("relu", bias_std=1.0, variance=2.0, depth=2), x, y, grid)
    likelihood = Gaussian(NOISE)
    options: dict[str, Any] = {"epochs": key["steps"], "batch_size": None, "lr": 5e-3}
    if method in ("injected", "ensemble"):
        nets = []
        for member in range(_MEMBERS if method == "ensemble" else 1):
            net = seeded_network(_plain, seed + 100 * member)
            nets.append(trained(net, (x, y), plain_loss(likelihood), seed + 100 * member, **options))
        if method == "ensemble":
            with torch.no_grad():
                return torch.stack([net(grid) for net in nets]).std(0, correction=0).squeeze(1)
        held_out = sample_rows(200, seed + 10_000)
        model: nn.Module = inject(nets[0], held_out, likelihood=likelihood, tolerance=0.05).model
    else:
        net = seeded_network(lambda: _noisy(method), seed)
        model = trained(net, (x, y), NegativeELBO(likelihood, num_data=len(x)), seed, **options)
    return predict(model, grid, num_draws=max(4, 4 * key["num_draws"])).epistemic.sqrt().squeeze(1)


def _process(kernel: NetworkKernel, x: Tensor, y: Tensor, grid: Tensor) -> Tensor:
    process = GaussianProcess(kernel, 1 / NOISE**2)
    return process.marginals(x.double(), y.double(), grid.double())[1]


def _plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))


def _noisy(method: str) -> nn.Sequential:
    if method == "mean-field VI":
        return mlp(1, (50, 50), 1, p=0.01, layer=MeanFieldGaussian, length_scale=1.0)
    if method == "Concrete dropout":
        return mlp(1, (50, 50), 1, p=0.1, input_p=0.0, layer=ConcreteDropout)
    return mlp(1, (50, 50), 1, p=float(method.rpartition(" ")[2]), input_p=0.0, layer=BernoulliDropout)
