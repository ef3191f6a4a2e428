"""Entropies in nats: of a Bernoulli variable, and of the classes of T draws."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "bernoulli_entropy",
    "entropy",
    "expected_entropy",
    "mutual_information",
    "predictive_entropy",
    "variation_ratio",
]


def bernoulli_entropy(p: Tensor) -> Tensor:
    """H(p) = -p log p - (1 - p) log(1 - p), element by element; 0 at p = 0 and p = 1.

    Reference: Gal, Hron & Kendall (2017), Eq. 4.
    """
    return -torch.xlogy(p, p) - torch.xlogy(1 - p, 1 - p)


def entropy(probs: Tensor, dim: int = -1) -> Tensor:
    """-sum_k p_k log p_k over `dim`, with 0 log 0 = 0."""
    return -torch.xlogy(probs, probs).sum(dim)


def predictive_entropy(probs: Tensor, dim: int = -1) -> Tensor:
    """Entropy of the mean over draws: total uncertainty about the class.

    Args:
        probs: class probabilities of each draw, draws on axis 0.
        dim: the class axis, counted in `probs`.
    """
    class_axis = dim % probs.dim()
    return entropy(probs.mean(0), class_axis - 1)


def expected_entropy(probs: Tensor, dim: int = -1) -> Tensor:
    """Mean over draws of the entropy of each: the part that more data cannot remove."""
    return entropy(probs, dim).mean(0)


def mutual_information(probs: Tensor, dim: int = -1) -> Tensor:
    """Predictive entropy minus expected entropy: the disagreement of the draws (BALD); at least 0."""
    return (predictive_entropy(probs, dim) - expected_entropy(probs, dim)).clamp_min(0)


def variation_ratio(probs: Tensor, dim: int = -1) -> Tensor:
    """1 - f / T, with f the number of draws that vote for the commonest class.

    Reference: Gal & Ghahramani (2016), section 5.2.
    """
    class_axis = dim % probs.dim()
    votes = torch.nn.functional.one_hot(probs.argmax(class_axis), probs.shape[class_axis])
    return 1 - votes.sum(0).amax(-1).to(probs.dtype) / probs.shape[0]
