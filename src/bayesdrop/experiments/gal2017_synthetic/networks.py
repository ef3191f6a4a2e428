"""One piece: data from the line, a network with two heads, and what it says of fresh points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.fit import fit
from bayesdrop.layers import ConcreteDropout
from bayesdrop.likelihoods import HeteroscedasticGaussian
from bayesdrop.metrics import mean_log_likelihood, rmse
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict

__all__ = ["GRID", "TRUTH", "TwoHeads", "sample_data", "train_network"]

#: points of the example fits, from -3 to 3
GRID = 81
#: standard deviation of the noise
TRUTH = 1.0


class TwoHeads(nn.Module):
    """Mean and log-variance of y, each by its own weights and masks from three common hidden layers.

    Shape: (N, 1) -> (N, 2).
    """

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int) -> ConcreteDropout:
            # The published regulariser is one of weights alone.
            return ConcreteDropout(
                nn.Linear(inputs, outputs), masks="relaxed", prior_on_bias=False, **options
            )

        self.body = nn.Sequential(
            layer(1, width), nn.ReLU(), layer(width, width), nn.ReLU(), layer(width, width), nn.ReLU()
        )
        self.mean = layer(width, 1)
        self.log_variance = layer(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Means, then log-variances."""
        hidden = self.body(x)
        return torch.cat([self.mean(hidden), self.log_variance(hidden)], dim=-1)


def sample_data(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x and y of the paper's line, each (size, 1)."""
    x, noise = torch.randn(2, size, 1, generator=generator)
    return x, 2 * x + 8 + TRUTH * noise


def train_network(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: one network, trained on `size` points and asked about fresh ones.

    Returns: stds, scores and the bound; `rates` (5,) at the end; `trace` (S, 5), rates after each of the
    `steps` (S,); at most 500 of the data; and the fit on the grid: its mean, its epistemic std and its std.
    """
    size, epochs, seed = key["size"], key["epochs"], key["seed"]
    generator = torch.Generator().manual_seed(1000 * seed + size)
    x, y = sample_data(size, generator)
    x_test, y_test = sample_data(key["num_test"], generator)
    steps = epochs * math.ceil(size / key["batch_size"])
    options = {name: key[name] for name in ("p_init", "temperature", "length_scale")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = TwoHeads(key["width"], **options)
    likelihood = HeteroscedasticGaussian()
    history = fit(
        network,
        (x, y),
        NegativeELBO(likelihood, num_data=size),
        epochs=epochs,
        batch_size=key["batch_size"],
        lr=key["lr"],
        rate_lr=key["rate_lr"],
        scheduler="cosine" if key["cosine"] else None,
        seed=seed,
        progress=False,
    )
    draws: dict[str, Any] = {"num_draws": key["num_draws"], "seed": seed, "likelihood": likelihood}
    prediction = predict(network, x_test, **draws)
    grid = torch.linspace(-3, 3, GRID).reshape(-1, 1)
    fan = predict(network, grid, **draws)
    rates = np.array(list(history.rates.values())).T
    shown = np.unique(np.linspace(0, epochs - 1, 120).round().astype(int))
    epistemic, aleatoric = float(prediction.epistemic.mean()), float(prediction.aleatoric.mean())
    return {
        "epistemic": math.sqrt(epistemic),
        "aleatoric": math.sqrt(aleatoric),
        "predictive": math.sqrt(epistemic + aleatoric),
        "rmse": float(rmse(prediction, y_test)),
        "log_likelihood": float(mean_log_likelihood(prediction, y_test)),
        # One epoch's bound is noisy: the mean over the last twentieth of the epochs.
        "elbo": -float(np.mean(history.loss[-max(1, epochs // 20) :])),
        "rates": rates[-1],
        "steps": (shown + 1) * (steps // epochs),
        "trace": rates[shown],
        "x": x[:500, 0],
        "y": y[:500, 0],
        "mean": fan.mean[:, 0],
        "grid_epistemic": fan.epistemic.sqrt()[:, 0],
        "grid_std": fan.std[:, 0],
    }
