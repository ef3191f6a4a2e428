"""The pieces: all estimators on a grid of keep chances, and along exact gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import torch

from bayesdrop.experiments.boluki2020_toy_gradients.toy import ESTIMATORS, Toy

__all__ = ["compute_piece", "follow_descent", "survey_grid"]


def survey_grid(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: bias, standard deviation and mean squared error of all estimators on a grid of one network.

    Returns: "bias", "std" and "mse", with the axes (estimator, keep chance of unit 1, of unit 2, unit);
    "limit", the bias of infinitely many estimates, 0 except for relaxations; "exact", the gradient itself,
    without the first axis. "samples" (estimators, count) are the estimates for unit 1 at one point of the
    grid; "sampled_at" has that point's two keep chances and the exact gradient.
    """
    toy = Toy(key["num_data"], key["seed"])
    keeps, count = key["keeps"], key["count"]
    shape = (len(ESTIMATORS), len(keeps), len(keeps), 2)
    mean, std, mse, limit = (np.zeros(shape) for _ in range(4))
    exact = np.zeros(shape[1:])
    samples = np.zeros((len(ESTIMATORS), count))
    # Not where both keep chances are 0.5: ARM's two masks are opposite there, and DisARM is nearly exact.
    shown = (3 * len(keeps) // 4, 3 * len(keeps) // 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key["seed"])
        for (i, first), (j, second) in product(enumerate(keeps), repeat=2):
            a = torch.logit(torch.tensor([first, second], dtype=torch.float64)).float()
            truth = toy.exact_gradient(a)
            exact[i, j] = truth.numpy()
            for place, estimator in enumerate(ESTIMATORS.values()):
                found = toy.estimates(a, estimator, count)
                mean[place, i, j] = found.mean(0).numpy()
                std[place, i, j] = found.std(0).numpy()
                mse[place, i, j] = (found - truth).square().mean(0).numpy()
                relaxed = truth if isinstance(estimator, str) else toy.relaxed_gradient(a, estimator)
                limit[place, i, j] = (relaxed - truth).numpy()
                if (i, j) == shown:
                    samples[place] = found[:, 0].numpy()
    return {
        "bias": mean - exact,
        "std": std,
        "mse": mse,
        "limit": limit,
        "exact": exact,
        "samples": samples,
        "sampled_at": [keeps[shown[0]], keeps[shown[1]], float(exact[shown][0])],
    }


def follow_descent(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: exact gradient descent, and what estimates say of the gradient on the way.

    Returns: "steps" (S,), every so many; "exact" (S, 2), the gradient there; "estimated" (S, estimators, 2),
    means of `count` estimates; "keeps" (S, 2), the keep chances.
    """
    toy = Toy(key["num_data"], key["seed"])
    a = torch.zeros(2, dtype=torch.float64)
    steps, exact, estimated, keeps = [], [], [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key["seed"])
        for step in range(key["steps"]):
            gradient = toy.exact_gradient(a)
            if step % key["every"] == 0:
                found = [toy.estimates(a.float(), name, key["count"]) for name in ESTIMATORS.values()]
                steps.append(step)
                exact.append(gradient.numpy())
                keeps.append(torch.sigmoid(a).numpy())
                estimated.append(torch.stack([values.mean(0) for values in found]).numpy())
            a = a - key["lr"] * gradient
    return {
        "steps": np.array(steps),
        "exact": np.array(exact),
        "estimated": np.array(estimated),
        "keeps": np.array(keeps),
    }


def compute_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """The piece of a key."""
    return follow_descent(key) if key["kind"] == "trace" else survey_grid(key)
