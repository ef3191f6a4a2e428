"""The noise of a network in closed form, its weights as they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.scores import draw_outputs

__all__ = ["m_step", "noise_mode"]

#: Gamma prior of a "map" noise precision
PRIOR_SHAPE, PRIOR_RATE = 0.1, 0.01


def noise_mode(squared_error: float, errors: int) -> float:
    """The log standard deviation of the noise at the mode of its precision's posterior.

        tau = (n / 2 + a - 1) / (S / 2 + b),        tau ~ Gamma(a = 0.1, b = 0.01)

    Args:
        squared_error: S, the expected sum of squared errors.
        errors: n, how many they are: rows times targets.

    Reference: Gal, Hron & Kendall (2017), appendix D.
    """
    count = max(errors / 2 + PRIOR_SHAPE - 1, PRIOR_SHAPE)
    # A network that diverges has errors without end, which a quotient of counts and errors would not survive.
    return 0.5 * (math.log(0.5 * squared_error + PRIOR_RATE) - math.log(count))


@torch.no_grad()
def m_step(
    network: Trained,
    x: Tensor,
    y: Tensor,
    *,
    weight: Tensor | None = None,
    num_draws: int = 20,
    seed: int = 0,
) -> Trained:
    """The network with its noise at the mode of its posterior: `noise_mode` of S = sum of E_q (y - f)^2.

    Args:
        network: with a Gaussian noise level.
        x: (N, K) inputs, prepared as those it was trained on.
        y: (N, D) targets, in the units it was trained in.
        weight: (N,) weights of rows, 1 on average.
        num_draws: functions drawn for the expectation.
        seed: of those draws.

    Reference: Gal, Hron & Kendall (2017), appendix D: the last M-step of "CDropoutM".
    """
    if network.log_noise_std is None:
        raise ValueError(must("m_step", "network", "one with a Gaussian noise level", network.settings.noise))
    total = 0.0
    for outputs in draw_outputs(network, x, num_draws=num_draws, seed=seed):
        square = (outputs - y).square()
        total += float((square if weight is None else square * weight.view(-1, 1)).sum(dtype=torch.float64))
    level = noise_mode(total / num_draws, y.numel())
    return network.with_noise(torch.full_like(network.log_noise_std, level))
