"""Non-linearities with their derivatives, into memory that is there already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "Function", "apply_activation", "make_function"]

#: the module that each name stands for
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}


def apply_activation(name: str, h: Tensor) -> Tensor:
    """The function itself; `h` is overwritten."""
    if name == "relu":
        return h.clamp_min_(0)
    if name == "tanh":
        return h.tanh_()
    if name == "silu":
        return torch.nn.functional.silu(h, inplace=True)
    return torch.nn.functional.gelu(h)


class Function(ABC):
    """One use of a non-linearity in a network."""

    @abstractmethod
    def forward(self, h: Tensor) -> Tensor:
        """a = f(h); may overwrite `h`."""

    @abstractmethod
    def backward(self, grad: Tensor, masked: Tensor | None = None) -> Tensor:
        """dL/dh from dL/da, which is overwritten.

        Args:
            grad: dL/da, or dL/d(a z) with `masked`.
            masked: a z, the value under a 0-1 mask z; for a ReLU, whose derivative is that of both at once.
        """


class _Overwriting(Function):
    """The derivative is known from the value alone, so that the value takes the place of h."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._value = torch.empty(0)

    def forward(self, h: Tensor) -> Tensor:
        """a = f(h), in the memory of h."""
        self._value = apply_activation(self._name, h)
        return self._value

    def backward(self, grad: Tensor, masked: Tensor | None = None) -> Tensor:
        """dL/dh, in the memory of dL/da."""
        ops: Any = torch.ops.aten
        if self._name == "relu":
            value = self._value if masked is None else masked
            ops.threshold_backward.grad_input(grad, value, 0, grad_input=grad)
        else:
            ops.tanh_backward.grad_input(grad, self._value, grad_input=grad)
        return grad


class _Keeping(Function):
    """h is kept for the derivative."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._h = torch.empty(0)
        self._value = torch.empty(0)

    def forward(self, h: Tensor) -> Tensor:
        """a = f(h), in memory of its own."""
        ops: Any = torch.ops.aten
        if self._value.shape != h.shape:
            self._value = torch.empty_like(h)
        self._h = h
        (ops.silu if self._name == "silu" else ops.gelu).out(h, out=self._value)
        return self._value

    def backward(self, grad: Tensor, masked: Tensor | None = None) -> Tensor:
        """dL/dh, in the memory of dL/da."""
        ops: Any = torch.ops.aten
        function = ops.silu_backward if self._name == "silu" else ops.gelu_backward
        function.grad_input(grad, self._h, grad_input=grad)
        return grad


def make_function(name: str) -> Function:
    """A use of the non-linearity of that name."""
    return _Overwriting(name) if name in ("relu", "tanh") else _Keeping(name)
