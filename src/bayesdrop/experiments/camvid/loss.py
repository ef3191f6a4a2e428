"""The loss of a pixel: the papers' regularisers in the terms of `NegativeELBO`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.data.camvid import CAMVID_VOID
from bayesdrop.layers import StochasticLayer
from bayesdrop.likelihoods import Categorical
from bayesdrop.objectives import ElboTerms, NegativeELBO

__all__ = ["LIKELIHOOD", "PixelLoss", "length_scale"]

LIKELIHOOD = Categorical(ignore_index=CAMVID_VOID)


@dataclass(frozen=True)
class PixelLoss:
    """The loss of a pixel, in nats, and the papers' two regularisers.

        loss = (1 / M H W) sum over the pixels of a minibatch of -log p(y)
               + w sum |W|^2 - d sum over layers of K H(p)

    Rows of `NegativeELBO` are frames, whose pixels it sums. Divided by H W its bound is

        (1 / M H W) sum of -log p(y) + (1 / N H W) [ (l^2 / 2) sum |W|^2 - sum K H(p) ]

    so that the bound itself has d = 1 / (N H W), which is what the code of Boluki et al. uses, and
    w = l^2 / (2 N H W). Gal et al. print d = "0.01 x N x H x W": read as 0.01 / (N H W), it is the bound with
    its divergence multiplied by 0.01. Void pixels have a loss of 0 and are counted in H W.

    Noise comes after convolutions here, where dropout would be, and a channel goes to all layers that follow,
    so that no single |W|^2 has its factor 1 / (1 - p): it is left out. At w = 1e-8 that makes no difference.

    Args:
        num_data: N, frames for training.
        temper: what the divergence of the bound is multiplied by: d N H W.
        weight: w, of all weights of convolutions.
    """

    num_data: int
    temper: float
    weight: float = 1e-8

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a minibatch of frames (M, 3, H, W) and labels (M, H, W). Shape ()."""
        pixels = y.shape[-2] * y.shape[-1]
        maps = [value for value in model.parameters() if value.dim() == 4]
        penalty: Tensor = self.weight * torch.stack([value.square().sum() for value in maps]).sum()
        if any(isinstance(part, StochasticLayer) for part in model.modules()):
            terms: ElboTerms = NegativeELBO(LIKELIHOOD, num_data=self.num_data)(model, x, y)
            return (terms.nll + self.temper * terms.kl) / pixels + penalty
        return -LIKELIHOOD.log_prob(model(x), y).mean() + penalty


def length_scale(weight: float, temper: float, num_data: int, pixels: int) -> float:
    """The prior length scale l that a weight regulariser w stands for: l^2 = 2 w N H W / temper.

    Args:
        weight: w.
        temper: what the divergence is multiplied by.
        num_data: N.
        pixels: H W.

    >>> round(length_scale(1e-8, 0.01, 367, 360 * 480), 1)
    11.3
    """
    return float((2 * weight * num_data * pixels / temper) ** 0.5)
