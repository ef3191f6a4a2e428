"""The steps of a perceptron: linear maps, with noise on their inputs, and functions of every element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesdrop.predict.tape import Leaf

__all__ = ["Map", "Step", "elementwise"]

_ELEMENTWISE = frozenset(
    {
        "relu", "relu_", "tanh", "tanh_", "sigmoid", "sigmoid_", "gelu", "elu", "elu_", "leaky_relu", "silu",
        "selu", "softplus", "softsign", "hardtanh", "relu6", "celu", "mish", "hardswish", "logsigmoid", "sin",
        "cos", "exp", "square", "erf",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Map:
    """A linear map, its input multiplied by `leaf` if there is one."""

    leaf: Leaf | None
    weight: Tensor
    bias: Tensor | None


Step = Map | Callable[[Tensor], Tensor]


def elementwise(func: Callable[..., Any], rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
    """A step that works on every element by itself: func(h, *rest, **kwargs); None if it is not known to."""
    name = getattr(func, "__name__", "")
    if name not in _ELEMENTWISE:
        return None
    return torch.relu_ if name in ("relu", "relu_") else lambda h: func(h, *rest, **kwargs)
