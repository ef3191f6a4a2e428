"""One piece: a network, trained on some of the digits and tested on all test digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.data import load_mnist
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliDropout, ConcreteDropout
from bayesdrop.likelihoods import Categorical
from bayesdrop.metrics import accuracy, mean_log_likelihood
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict

__all__ = ["TRAINING", "load_digits", "make_network", "train_network"]

#: training digits; the last 10,000 of the 60,000 are the paper's validation set
TRAINING = 50_000


@cache
def load_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images as rows of 784 numbers in [0, 1], and their labels."""
    data = load_mnist()
    train, test = (x.reshape(x.shape[0], -1).to(torch.float32) / 255 for x in (data.x_train, data.x_test))
    return train[:TRAINING], data.y_train[:TRAINING], test, data.y_test


def make_network(key: Mapping[str, Any]) -> nn.Sequential:
    """Three hidden layers, with noise before each of the four weight layers."""
    options: dict[str, Any] = {
        "length_scale": key["length_scale"],
        "scale_by_fan_in": True,
        "prior_on_bias": False,
    }
    hidden = [key["width"]] * 3
    if key["posterior"] == "bernoulli":
        return mlp(784, hidden, 10, p=0.5, input_p=0.2, layer=BernoulliDropout, **options)

    def concrete(layer: nn.Linear, p: float, **rest: Any) -> ConcreteDropout:
        return ConcreteDropout(layer, p_init=p, masks="relaxed", temperature=key["temperature"], **rest)

    return mlp(784, hidden, 10, p=key["p_init"], layer=concrete, **options)


def train_network(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: one network, trained and tested.

    Returns: scores on the test digits; the bound; `rates` (4,) at the end; and `trace` (S, 4), rates after
    each of the `steps` (S,). Where rates are fixed, `rates` and `trace` have no columns.
    """
    x, y, x_test, y_test = load_digits()
    size, seed = key["num_data"], key["seed"]
    chosen = torch.randperm(x.shape[0], generator=torch.Generator().manual_seed(seed))[:size]
    batches = math.ceil(size / key["batch_size"])
    epochs = max(1, round(key["steps"] / batches))
    likelihood = Categorical()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network(key)
    history = fit(
        network,
        (x[chosen], y[chosen]),
        # N is the size of the subset: with fewer data the entropy of the masks weighs more.
        NegativeELBO(likelihood, num_data=size),
        epochs=epochs,
        batch_size=key["batch_size"],
        lr=key["lr"],
        rate_lr=key["rate_lr"],
        scheduler="cosine",
        seed=seed,
        progress=False,
    )
    prediction = predict(
        network, x_test, num_draws=key["draws"], seed=seed, likelihood=likelihood, batch_size=2000,
        keep_draws=False,
    )  # fmt: skip
    rates = np.array(list(history.rates.values())).T if history.rates else np.zeros((epochs, 0))
    shown = np.unique(np.linspace(0, epochs - 1, 200).round().astype(int))
    # One epoch's bound is noisy, with few rows above all: the mean over the last twentieth of the epochs.
    last = max(1, epochs // 20)
    return {
        "accuracy": 100 * float(accuracy(prediction, y_test)),
        "log_likelihood": float(mean_log_likelihood(prediction, y_test)),
        "elbo": -float(np.mean(history.loss[-last:])),
        "rates": rates[-1],
        "steps": (shown + 1) * batches,
        "trace": rates[shown],
    }
