"""Perceptrons on Friedman's first function, with fixed or learned rates: data, network, one piece.

    y = 10 sin(pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5 + e,     x ~ U(0, 1)^10,  e ~ N(0, 1)

Five of the ten inputs have no effect. The networks are given the variance of e, so that all that is left to
learn is the function, and how uncertain it is. (Friedman, 1991, "Multivariate adaptive regression splines".)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliDropout, ConcreteDropout
from bayesdrop.likelihoods import Gaussian
from bayesdrop.metrics import mean_log_likelihood, rmse
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict

__all__ = ["INPUTS", "LAYERS", "NOISE_STD", "make_network", "sample_data", "train_network"]

INPUTS = 10
#: about the mean and the standard deviation of y, by which it is standardised
CENTRE, SCALE = 14.4, 4.9
#: of standardised y
NOISE_STD = 1 / SCALE
#: layers whose units are dropped
LAYERS = ("input", "hidden 1", "hidden 2", "hidden 3")
#: epochs whose rates are kept, evenly spread
SHOWN = 60


def sample_data(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Standardised x (N, 10), and y (N, 1) with about mean 0 and standard deviation 1; N is `size`."""
    u = torch.rand(size, INPUTS, generator=generator)
    y = 10 * torch.sin(math.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]
    y = y + torch.randn(size, generator=generator)
    return (u - 0.5) * math.sqrt(12), ((y - CENTRE) / SCALE).unsqueeze(1)


def make_network(key: Mapping[str, Any]) -> nn.Sequential:
    """Three hidden layers with dropout before each of the four weight layers.

    Args:
        key: with `width`, `length_scale`, `p`, and `learned`: whether rates are learned from p on, or stay p.
    """
    options: dict[str, Any] = {"length_scale": key["length_scale"], "prior_on_bias": False}

    def concrete(linear: nn.Linear, p: float, **rest: Any) -> ConcreteDropout:
        return ConcreteDropout(linear, p_init=p, masks="relaxed", temperature=0.1, **rest)

    layer = concrete if key["learned"] else BernoulliDropout
    return mlp(INPUTS, [key["width"]] * 3, 1, p=key["p"], layer=layer, **options)


def train_network(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: a network trained on `size` rows with `seed`, and what it says of new ones.

    Returns: by layer (4,) "rates", and "weights", root mean squares of the paper's weights M = W / (1 - p),
    which are multiplied by masks of 0 and 1; "spread", the epistemic standard deviation, "rmse" and
    "log_likelihood" on new rows; "elbo", nats per row, at the end of training; "steps" (E,) and the rates
    after so many, "trace" (E, 4), or (E, 0) if they are fixed.
    """
    size, seed = key["size"], key["seed"]
    # The same rows for every network of a size and a seed.
    generator = torch.Generator().manual_seed(100_000 * seed + size)
    x, y = sample_data(size, generator)
    x_test, y_test = sample_data(key["num_test"], torch.Generator().manual_seed(seed + 7))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network(key)
    likelihood = Gaussian(NOISE_STD)
    epochs = max(1, round(key["steps"] / math.ceil(size / key["batch_size"])))
    history = fit(
        network, (x, y), NegativeELBO(likelihood, num_data=size), epochs=epochs,
        batch_size=key["batch_size"], lr=key["lr"], rate_lr=key["rate_lr"], scheduler="cosine", seed=seed,
        progress=False,
    )  # fmt: skip
    layers = [part for part in network if isinstance(part, BernoulliDropout | ConcreteDropout)]
    ends = [float(layer.p.detach()) for layer in layers]
    weights = [
        float(layer.layer.weight.detach().square().mean().sqrt()) / (1 - p)
        for layer, p in zip(layers, ends, strict=True)
    ]
    if any(ends):
        prediction = predict(network, x_test, num_draws=key["num_draws"], seed=seed, likelihood=likelihood)
    else:
        prediction = one_pass(network, x_test, likelihood)
    shown = np.unique(np.linspace(0, epochs - 1, SHOWN).round().astype(int))
    trace = np.array(list(history.rates.values())).T[shown] if history.rates else np.zeros((len(shown), 0))
    steps = (shown + 1) * math.ceil(size / key["batch_size"])
    # The bound of one epoch is noisy: its mean over the last part of training.
    bound = -float(np.mean(history.loss[-max(1, epochs // 20) :]))
    return {
        "rates": np.array(ends),
        "weights": np.array(weights),
        # One function has no spread; the variance of a single draw is not a number.
        "spread": math.sqrt(float(prediction.epistemic.mean())) if any(ends) else 0.0,
        "rmse": float(rmse(prediction, y_test)),
        "log_likelihood": float(mean_log_likelihood(prediction, y_test)),
        "elbo": bound,
        "steps": steps,
        "trace": trace,
    }
