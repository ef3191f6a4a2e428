"""LeNet for images of digits, as in Caffe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from torch import nn

from bayesdrop.errors import LARGEST_WIDTH, is_one_of, must, real_number, whole_number

__all__ = ["lenet"]


def lenet(
    num_classes: int = 10,
    *,
    p: float = 0.5,
    where: Literal["last", "all"] = "last",
    layer: Callable[..., nn.Module] | None = None,
    **options: Any,
) -> nn.Sequential:
    """Two convolutions and two linear layers, with dropout before the last layer or after every layer.

        20 maps 5 x 5 - max-pool 2 - 50 maps 5 x 5 - max-pool 2 - 500 units - ReLU - dropout - classes

    After the convolutions there is no non-linearity except pooling. Weights start uniform in
    +-sqrt(3 / fan_in), biases at 0.

    Args:
        num_classes: outputs, logits.
        p: chance of dropping.
        where: "last": before the last layer. "all": after both convolutions too, before their pooling.
        layer: makes a stochastic layer from (nn.Module, p=..., **options). None: `nn.Dropout` in the places
            above. Otherwise the layers after these places are wrapped: the last layer, and with "all" the
            second convolution and the first linear layer, whose input channels and units are dropped.
        options: passed on to `layer`, as `length_scale=1e-2`.

    Shape: (N, 1, 28, 28) -> (N, num_classes).
    Reference: LeCun et al. (1998); Gal & Ghahramani (2016), section 5.2.

    >>> import torch
    >>> lenet()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    if not is_one_of(where, ("last", "all")):
        raise ValueError(must("lenet", "where", "'last' or 'all'", where))
    p = real_number("lenet", "p", p, "in [0, 1)", at_least=0, below=1)
    num_classes = whole_number("lenet", "num_classes", num_classes, at_least=1, at_most=LARGEST_WIDTH)
    if layer is not None and (not callable(layer) or isinstance(layer, nn.Module)):
        raise TypeError(must("lenet", "layer", "a function or a class that makes layers, or None", layer))
    if layer is None and options:
        raise ValueError(must("lenet", "options", "none without `layer`", sorted(options)))
    weights: list[nn.Conv2d | nn.Linear] = [
        nn.Conv2d(1, 20, 5),
        nn.Conv2d(20, 50, 5),
        nn.Linear(800, 500),
        nn.Linear(500, num_classes),
    ]
    for part in weights:
        bound = math.sqrt(3 / part.weight[0].numel())
        nn.init.uniform_(part.weight, -bound, bound)
        assert part.bias is not None
        nn.init.zeros_(part.bias)
    first, second, hidden, last = weights
    everywhere = where == "all"

    def drop(on: bool) -> list[nn.Module]:
        return [nn.Dropout(p)] if on and layer is None else []

    def wrapped(part: nn.Module, on: bool) -> nn.Module:
        return layer(part, p=p, **options) if on and layer is not None else part

    return nn.Sequential(
        first,
        *drop(everywhere),
        nn.MaxPool2d(2),
        wrapped(second, everywhere),
        *drop(everywhere),
        nn.MaxPool2d(2),
        nn.Flatten(),
        wrapped(hidden, everywhere),
        nn.ReLU(),
        *drop(True),
        wrapped(last, True),
    )
