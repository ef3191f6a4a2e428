"""Divergence of Gaussian dropout from the log-uniform prior of its weights."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["log_uniform_kl"]

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695


def log_uniform_kl(log_alpha: Tensor) -> Tensor:
    """KL( N(w, a w^2) || log-uniform ) up to a constant, element by element; 0 as a grows without bound.

        0.5 log(1 + 1/a) + k1 (1 - sigmoid(k2 + k3 log a)),      k = (0.63576, 1.87320, 1.48695)

    An approximation of an integral that has no closed form, within 0.01 nats. The prior is improper: the
    divergence is defined up to a constant only, and Bayes' rule gives no proper posterior (Hron, Matthews &
    Ghahramani, 2018).

    Args:
        log_alpha: log of the noise's variance, any shape.

    Reference: Molchanov, Ashukha & Vetrov (2017), Eq. 14; Kingma, Salimans & Welling (2015).
    """
    value: Tensor = 0.5 * torch.nn.functional.softplus(-log_alpha) + _K1 * torch.sigmoid(
        -_K2 - _K3 * log_alpha
    )
    return value
