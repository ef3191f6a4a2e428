"""Multilayer perceptrons of stochastic layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from bayesdrop.errors import LARGEST_WIDTH, layer_widths, must, must_be_module, real_number, whole_number
from bayesdrop.layers import BernoulliDropout

__all__ = ["mlp"]


def mlp(
    in_features: int,
    hidden: int | Sequence[int],
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
        hidden: width of every hidden layer; an int for one hidden layer.
        out_features: outputs.
        p: chance of dropping hidden units.
        input_p: chance of dropping inputs; `p` if None. At 0 the first layer is a plain `nn.Linear`.
        activation: makes the non-linearity between layers.
        layer: makes a stochastic layer from (nn.Linear, p, **options); learned rates start at p.
        options: passed on to `layer`, as `length_scale=1e-2`.

    >>> net = mlp(13, (50, 50), 1, p=0.05)
    >>> len(net)
    5
    """
    widths = [
        whole_number("mlp", "in_features", in_features, at_least=1, at_most=LARGEST_WIDTH),
        *layer_widths("mlp", hidden),
        whole_number("mlp", "out_features", out_features, at_least=1, at_most=LARGEST_WIDTH),
    ]
    for name, made in (("activation", activation), ("layer", layer)):
        if not callable(made) or isinstance(made, nn.Module):
            raise TypeError(must("mlp", name, "a function or a class that makes modules", made))
    if input_p is not None:
        want = "in [0, 1), and below 1 in single precision, or None"
        input_p = real_number("mlp", "input_p", input_p, want, at_least=0, at_most=1 - 1e-7)
    parts: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        rate = p if index or input_p is None else input_p
        linear = nn.Linear(inputs, outputs)
        if index:
            parts.append(_made("activation", activation))
        plain = index == 0 and input_p == 0
        parts.append(linear if plain else _made("layer", layer, linear, rate, **options))
    return nn.Sequential(*parts)


def _made(argument: str, maker: Callable[..., nn.Module], *given: Any, **options: Any) -> nn.Module:
    """The module that `maker` makes; raise if it is not a module."""
    made = maker(*given, **options)
    must_be_module("mlp", argument, made, hint="It must make modules when it is called.")
    return made
