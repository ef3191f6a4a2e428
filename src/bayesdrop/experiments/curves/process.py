"""The Gaussian process that the networks are compared with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.errors import require
from bayesdrop.experiments.curves.measures import distance
from bayesdrop.experiments.curves.series import CURVES, Curve

__all__ = ["fit_process"]


def fit_process(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: a squared-exponential process whose parameters have the largest evidence found.

        k(x, y) = s^2 exp(-(x - y)^2 / 2 l^2),        noise of variance v

    Means and standard deviations are those of the function, without noise; names as a network's.
    Needs the extra "sklearn".
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
        # A parameter that ends at its bound is seen in the results.
        warnings.simplefilter("ignore")
        fitted = gaussian_process.GaussianProcessRegressor(
            signal + noise, n_restarts_optimizer=key["restarts"], random_state=key["seed"]
        ).fit(x, y)
    variance, length_scale, noise_variance = np.exp(fitted.kernel_.theta)
    process = gaussian_process.GaussianProcessRegressor(
        fitted.kernel_.k1, alpha=noise_variance, optimizer=None
    ).fit(x, y)
    start, stop = key["between"]
    grid = np.linspace(start, stop, key["num_grid"])
    found: dict[str, Any] = {
        "grid": grid,
        "length_scale": float(length_scale),
        "prior_std": float(variance**0.5),
        "noise_std": float(noise_variance**0.5),
        "log_evidence": float(fitted.log_marginal_likelihood_value_),
    }
    places = {"grid": grid[:, None], "train": x, "test": curve.x_test.numpy()}
    for place, rows in places.items():
        found[f"{place}_mean"], found[f"{place}_std"] = process.predict(rows, return_std=True)
    for place, y_there in (("train", y), ("test", curve.y_test[:, 0].numpy())):
        found[f"{place}_rmse"] = distance(found[f"{place}_mean"], y_there)
    return found
