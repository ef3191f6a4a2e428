"""The noise of networks that are done with training, in closed form."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.loop import PRIOR_RATE, PRIOR_SHAPE
from bayesdrop.stacked.mixture import Mixture
from bayesdrop.stacked.scores import draw_outputs
from bayesdrop.stacked.table import Table

__all__ = ["m_step", "with_final_m_step"]


@torch.no_grad()
def m_step(network: Trained, x: Tensor, y: Tensor, *, num_draws: int = 20, seed: int = 0) -> Trained:
    """The network with its noise at the mode of its posterior, the weights as they are.

        tau = (N D / 2 + a - 1) / (S / 2 + b),        S = sum of E_q (y - f)^2

    Args:
        network: with a Gaussian noise level.
        x: (N, K) inputs, prepared as those it was trained on.
        y: (N, D) targets, in the units it was trained in.
        num_draws: functions drawn for the expectation.
        seed: of those draws.

    Reference: Gal, Hron & Kendall (2017), appendix D: the last M-step of "CDropoutM".
    """
    if network.log_noise_std is None:
        raise ValueError(must("m_step", "network", "one with a Gaussian noise level", network.settings.noise))
    total = 0.0
    for outputs in draw_outputs(network, x, num_draws=num_draws, seed=seed):
        total += float((outputs - y).square().sum(dtype=torch.float64))
    count = max(y.numel() / 2 + PRIOR_SHAPE - 1, PRIOR_SHAPE)
    precision = torch.tensor(count / (0.5 * total / num_draws + PRIOR_RATE), dtype=torch.float64)
    level = (-0.5 * precision.log()).to(network.log_noise_std.dtype)
    return network.with_noise(level.expand_as(network.log_noise_std).clone())


def with_final_m_step(mixture: Mixture, table: Table, *, num_draws: int = 20) -> Mixture:
    """`m_step` of every network of a mixture, on the rows of its table.

    Args:
        mixture: fitted to the table.
        table: the same.
        num_draws: functions drawn for the expectation.
    """
    if mixture.target is None:
        raise ValueError(must("with_final_m_step", "mixture", "one of targets", "one of classes"))
    y = mixture.target.standardised(table.y)
    inputs = {bins: encoder(table.x) for bins, encoder in mixture.encoders.items()}
    components = [
        replace(one, network=m_step(one.network, inputs[one.bins], y, num_draws=num_draws))
        for one in mixture.components
    ]
    return replace(mixture, components=tuple(components))
