"""One pass of a network without noise, as a prediction of one draw."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict import Prediction

__all__ = ["one_pass"]


@torch.no_grad()
def one_pass(
    net: nn.Module, x: Tensor, likelihood: Likelihood | None = None, *, batch_size: int | None = None
) -> Prediction:
    """Standard dropout's prediction: weights are averaged, and nothing is drawn.

    Args:
        net: put into eval mode.
        x: (N, ...).
        likelihood: of its outputs.
        batch_size: rows of a pass; all if None.

    Returns: a prediction with draws of shape (1, N, ...).
    """
    net.eval()
    outputs = torch.cat([net(part) for part in torch.split(x, batch_size or len(x))])
    return Prediction.from_draws(outputs.unsqueeze(0), likelihood)
