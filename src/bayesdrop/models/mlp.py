"""Multilayer perceptrons of stochastic layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from bayesdrop.errors import must
from bayesdrop.layers import BernoulliDropout

__all__ = ["mlp"]


def mlp(
    in_features: int,
    hidden: Sequence[int],
    out_features: int,
    *,
    p: float = 0.1,
    input_p: float | None = None,
    activation: Callable[[], nn.Module] = nn.ReLU,
    layer: Callable[..., nn.Module] = BernoulliDropout,
    **options: Any,
) -> nn.Sequential:
    """Fully connected network with dropout before every weight layer.

    Args:
        in_features: inputs.
        hidden: width of every hidden layer.
        out_features: outputs.
        p: chance of dropping hidden units.
        input_p: chance of dropping inputs; as `p` if None. At 0 the first layer is a plain `nn.Linear`.
        activation: makes the non-linearity between layers.
        layer: makes a stochastic layer from (nn.Linear, p, **options); learned rates start at p.
        options: passed on to `layer`, as `length_scale=1e-2`.

    >>> net = mlp(13, (50, 50), 1, p=0.05)
    >>> len(net)
    5
    """
    widths = [in_features, *hidden, out_features]
    if any(isinstance(width, bool) or not isinstance(width, int) or width < 1 for width in widths):
        raise ValueError(must("mlp", "widths", "positive ints", widths))
    parts: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        rate = p if index or input_p is None else input_p
        linear = nn.Linear(inputs, outputs)
        if index:
            parts.append(activation())
        parts.append(linear if index == 0 and input_p == 0 else layer(linear, rate, **options))
    return nn.Sequential(*parts)
