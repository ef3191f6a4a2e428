"""Expected log-likelihood of a class whose features are dropped."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from bayesdrop.errors import must
from bayesdrop.linear.rows import Array

__all__ = ["MarginMoments", "all_masks", "expected_log_sigmoid", "expected_sigmoid"]

MOST_ENUMERATED = 12
_TAIL = 8.5  # standard deviations
_MOST_NODES = 4000
_CHUNK = 2048  # rows at a time


class MarginMoments(NamedTuple):
    """E g(m) and the expectations of g's derivatives, g(m) = log 1 / (1 + exp(-m)), each (N,)."""

    value: Array
    first: Array
    second: Array
    third: Array
    fourth: Array


def expected_log_sigmoid(mean: Array, variance: Array) -> MarginMoments:
    """E log sigmoid(m) for m ~ N(mean, variance), with derivatives, by quadrature.

    The margin of a row with dropped features is a sum of independent terms; the Gaussian has its mean and
    variance. Derivatives by the mean are expectations of derivatives, d/dmean E g = E g', and so are those
    by the variance, d/dvariance E g = E g'' / 2.

    Args:
        mean: (N,).
        variance: (N,), at least 0.
    """
    nodes, weights = _nodes(variance)
    found = np.empty((5, len(mean)))
    for start in range(0, len(mean), _CHUNK):
        part = slice(start, start + _CHUNK)
        m = mean[part, None] + np.sqrt(variance[part, None]) * nodes
        s, rest = expit(m), expit(-m)
        slope = s * rest
        found[0, part] = log_expit(m) @ weights
        found[1, part] = rest @ weights
        found[2, part] = -slope @ weights
        found[3, part] = (slope * (s - rest)) @ weights
        found[4, part] = -(slope * (1 - 6 * slope)) @ weights
    return MarginMoments(*found)


def expected_sigmoid(mean: Array, variance: Array) -> Array:
    """E sigmoid(m) for m ~ N(mean, variance), (N,)."""
    nodes, weights = _nodes(variance)
    parts = []
    for start in range(0, len(mean), _CHUNK):
        part = slice(start, start + _CHUNK)
        parts.append(expit(mean[part, None] + np.sqrt(variance[part, None]) * nodes) @ weights)
    return np.concatenate(parts)


def _nodes(variance: Array) -> tuple[Array, Array]:
    """Nodes and weights of the trapezium rule for a standard normal.

    The sigmoid has its poles at +-i pi, in units of the normal at a distance of pi / std: with a step h the
    error falls as exp(-2 pi^2 / (h std)), where Gauss-Hermite needs ever more nodes as the std grows.
    """
    spread = float(np.sqrt(np.max(variance, initial=0.0)))
    if spread == 0:
        return np.zeros(1), np.ones(1)
    step = max(min(0.5, 2 * np.pi**2 / (30 * spread)), 2 * _TAIL / _MOST_NODES)
    half = int(np.ceil(_TAIL / step))
    nodes: Array = step * np.arange(-half, half + 1, dtype=float)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def all_masks(f: Array, owner: str) -> tuple[Array, Array]:
    """Every mask of features that are kept (1) or dropped (0), with its chance: (2^P, P) and (2^P,)."""
    if len(f) > MOST_ENUMERATED:
        hint = "Take expectation='gaussian'."
        raise ValueError(
            must(owner, "X", f"of at most {MOST_ENUMERATED} features to enumerate", len(f), hint)
        )
    masks = np.array(list(product((0.0, 1.0), repeat=len(f))))
    chances: Array = np.prod(np.where(masks > 0, 1 - f, f), axis=1)
    return masks[chances > 0], chances[chances > 0]
