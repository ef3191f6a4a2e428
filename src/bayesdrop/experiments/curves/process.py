"""The Gaussian process that the networks are compared with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from bayesdrop.errors import require
from bayesdrop.experiments.curves.measures import distance
from bayesdrop.experiments.curves.series import CURVES, Curve
from bayesdrop.gp import GaussianProcess, NetworkKernel

__all__ = ["fit_process"]


def fit_process(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: a squared-exponential process whose parameters have the largest evidence found.

        k(x, y) = s^2 exp(-(x - y)^2 / 2 l^2),        noise of variance v

    Needs the extra "sklearn".

    Returns: "grid"; means and standard deviations of the function, without noise, and "train_rmse" and
    "test_rmse", named as those of networks by `ask`; the parameters "length_scale", "prior_std" (s) and
    "noise_std", and "log_evidence".
    """
    owner = "The Gaussian process"
    kernels = require("sklearn.gaussian_process.kernels", extra="sklearn", owner=owner)
    gaussian_process = require("sklearn.gaussian_process", extra="sklearn", owner=owner)
    curve: Curve = CURVES[key["data"]]()
    x, y = curve.x.numpy(), curve.y[:, 0].numpy()
    # Starting from the period keeps the search away from the optimum in which all variation is noise.
    signal = kernels.ConstantKernel(1.0, (1e-2, 1e2)) * kernels.RBF(curve.period / 4, (1e-3, 1e1))
    noise = kernels.WhiteKernel(1e-2, (1e-6, 1e1))
    with warnings.catch_warnings():
        # It warns of parameters that end at a bound; the results show them.
        warnings.simplefilter("ignore")
        fitted = gaussian_process.GaussianProcessRegressor(
            signal + noise, n_restarts_optimizer=key["restarts"], random_state=key["seed"]
        ).fit(x, y)
    variance, length_scale, noise_variance = (float(value) for value in np.exp(fitted.kernel_.theta))
    # The prior of infinitely many cosine units with random phases is the squared exponential process.
    kernel = NetworkKernel("cosine", length_scale=length_scale, variance=variance)
    process = GaussianProcess(kernel, 1 / noise_variance)
    start, stop = key["between"]
    grid = torch.linspace(start, stop, key["num_grid"], dtype=torch.float64)
    found: dict[str, Any] = {
        "grid": grid.numpy(),
        "length_scale": length_scale,
        "prior_std": variance**0.5,
        "noise_std": noise_variance**0.5,
        "log_evidence": float(fitted.log_marginal_likelihood_value_),
    }
    places = {"grid": grid.unsqueeze(1), "train": curve.x, "test": curve.x_test}
    for place, rows in places.items():
        mean, std = process.marginals(curve.x, curve.y, rows)
        found |= {f"{place}_mean": mean[:, 0].numpy(), f"{place}_std": std.numpy()}
    for place, y_there in (("train", y), ("test", curve.y_test[:, 0].numpy())):
        found[f"{place}_rmse"] = distance(found[f"{place}_mean"], y_there)
    return found
