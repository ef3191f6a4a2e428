"""Section 3.1: the covariance function, its Monte Carlo estimate with K units, and the weights behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from bayesdrop.experiments.gal2015_insights.checks import CheckResult, mean_and_error, z_score
from bayesdrop.experiments.row import Claim, Row
from bayesdrop.gp import GaussianProcess, NetworkKernel
from bayesdrop.gp.moments import Named

__all__ = ["check_error_rate", "check_validity", "check_weight_space"]

NAMES: tuple[Named, ...] = get_args(Named)


def _inputs(rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator, dtype=torch.float64)


def check_validity(seed: int) -> CheckResult:
    """K(x, y) = E s(w.x + b) s(w.y + b) is positive definite."""
    x = _inputs(60, seed)
    smallest = {name: float(torch.linalg.eigvalsh(NetworkKernel(name)(x)).min()) for name in NAMES}
    least = min(smallest.values())
    text = ", ".join(f"{name} {value:.1e}" for name, value in smallest.items())
    claim = Claim(
        "3.1: K(x, y) = E[s(w.x + b) s(w.y + b)] is a valid covariance function.",
        f"smallest eigenvalue of 60 x 60 covariances: {text}.",
        least > -1e-9,
    )
    line = torch.linspace(-4, 4, 81, dtype=torch.float64).unsqueeze(-1)
    centre = torch.full((1, 1), 1.0, dtype=torch.float64)
    shapes = {f"shape {name}": NetworkKernel(name)(line, centre)[:, 0] for name in NAMES}
    row = Row("covariance functions", "smallest eigenvalue, at least", 0.0, least)
    return CheckResult((row,), (claim,), {"line": line[:, 0], **shapes})


def check_error_rate(num_units: Sequence[int], repeats: int, seed: int) -> CheckResult:
    """The error of the covariance's estimate with K units falls as K^-1/2."""
    x = _inputs(8, seed)
    rows, slopes, arrays = [], [], {"units": np.array(num_units)}
    log_units = torch.tensor([math.log(k) for k in num_units], dtype=torch.float64)
    centred = log_units - log_units.mean()
    for name in NAMES:
        kernel = NetworkKernel(name)
        exact = kernel(x)
        errors = (
            torch.stack(
                [
                    torch.stack(
                        [
                            (kernel.approximate(x, num_units=k, seed=seed * repeats + repeat) - exact)
                            .square()
                            .sum()
                            for k in num_units
                        ]
                    )
                    for repeat in range(repeats)
                ]
            )
            / exact.square().sum()
        )
        arrays[f"error {name}"] = errors.mean(0).sqrt().numpy()
        # Groups of repeats, each with a slope of its own, give the slope a standard error.
        groups = torch.stack([part.mean(0).sqrt().log() for part in errors.chunk(min(10, repeats // 2))])
        slope, error = mean_and_error((groups @ centred) / centred.square().sum())
        slopes.append((slope, error))
        rows.append(Row(f"{name}, K units", "slope of log error on log K", -0.5, slope, error))
    worst = max(abs(slope + 0.5) / error for slope, error in slopes)
    claim = Claim(
        "3.1: Monte Carlo integration with K terms approximates the covariance (its error falls as K^-1/2).",
        f"slopes {', '.join(f'{name} {slope:.3f}' for name, (slope, _) in zip(NAMES, slopes, strict=True))}; "
        f"the farthest from -0.5 is {worst:.1f} standard errors off.",
        worst < 5,
    )
    return CheckResult(tuple(rows), (claim,), arrays)


def check_weight_space(num_samples: int, seed: int) -> CheckResult:
    """The estimate K^ of the covariance is Phi Phi^T, and that of the process that random weights make.

    Integrating the weights gives the process's evidence; outputs with random W_2 have the covariance K^.
    """
    kernel, precision, units = NetworkKernel("tanh"), 1.0, 3
    x = _inputs(5, seed)
    phi = kernel.features(x, num_units=units, seed=seed)
    gap = float((kernel.approximate(x, num_units=units, seed=seed) - phi @ phi.T).abs().max())
    y = _inputs(5, seed + 1)[:, :1]
    process = GaussianProcess(lambda a, b: kernel.approximate(a, b, num_units=units, seed=seed), precision)
    node, weight = np.polynomial.hermite_e.hermegauss(48)
    grid = torch.cartesian_prod(*[torch.from_numpy(node)] * units)
    shares = torch.cartesian_prod(*[torch.from_numpy(weight / weight.sum())] * units).prod(1)
    residual = y - phi @ grid.T
    log_density = 0.5 * (len(y) * math.log(precision / (2 * math.pi)) - precision * residual.square().sum(0))
    integral = float(torch.logsumexp(log_density + shares.log(), 0))
    evidence = float(process.log_evidence(x, y))
    generator = torch.Generator().manual_seed(seed)
    outputs = phi @ torch.randn(units, num_samples, generator=generator, dtype=torch.float64)
    products = (outputs.unsqueeze(0) * outputs.unsqueeze(1)).permute(2, 0, 1)
    score = z_score(products, phi @ phi.T)
    claims = (
        Claim(
            "3.1: K^(X, X) = Phi Phi^T with Phi = sqrt(1/K) s(X W_1 + b).",
            f"largest difference {gap:.1e}.",
            gap < 1e-12,
        ),
        Claim(
            "3.1: N(y; 0, Phi Phi^T + I / tau) is the integral of N(y; Phi w, I / tau) over w ~ N(0, I).",
            f"log evidence {evidence:.8f}, log of the integral by quadrature {integral:.8f}.",
            abs(evidence - integral) < 1e-8,
        ),
        Claim(
            "3.1: outputs sqrt(1/K) s(x W_1 + b) W_2 with W_2 ~ N(0, I) are the process with covariance K^.",
            f"{num_samples} networks: covariances at most {score:.1f} standard errors off.",
            score < 5,
        ),
    )
    row = Row(
        "weights integrated out", "log evidence (nats)", integral, evidence, None, "paper: the integral"
    )
    return CheckResult((row,), claims)
