"""The sentence that all argument errors use, and the errors with a name of their own."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Diverged", "MissingExtra", "NoRandomness", "must", "must_be_finite", "require", "whole_number"]


class NoRandomness(ValueError):
    """A model was asked for its uncertainty and nothing in it is random."""


class Diverged(RuntimeError):
    """Training met a loss or a parameter that is not finite.

    Attributes:
        step: the optimiser step at which it happened, counted from 1.
        epoch: the epoch it happened in, counted from 1.
    """

    def __init__(self, message: str, *, step: int, epoch: int) -> None:
        super().__init__(message)
        self.step = step
        self.epoch = epoch


class MissingExtra(ImportError):
    """An optional dependency is needed and not installed."""


def must(owner: str, argument: str, requirement: str, got: Any, hint: str = "") -> str:
    """Owner, argument, what it must be, what it was, and what to do.

    >>> must("ConcreteDropout", "p_init", "in (0, 1)", 1.0)
    'ConcreteDropout: `p_init` must be in (0, 1); got 1.0.'
    """
    sentence = f"{owner}: `{argument}` must be {requirement}; got {_described(got)}."
    return f"{sentence} {hint}" if hint else sentence


def _described(value: Any) -> str:
    if isinstance(value, Tensor) and value.numel() > 1:
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Tensor):
        return (
            f"tensor({value.item()})" if value.numel() else f"an empty tensor of shape {tuple(value.shape)}"
        )
    if isinstance(value, torch.nn.Module | type):
        return type(value).__name__ if isinstance(value, torch.nn.Module) else value.__name__
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def whole_number(owner: str, argument: str, value: Any, *, at_least: int | None = None) -> int:
    """`value`, if it is an int; a bool is none."""
    wanted = "an int" if at_least is None else f"an int of at least {at_least}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(must(owner, argument, wanted, value))
    if at_least is not None and value < at_least:
        raise ValueError(must(owner, argument, wanted, value))
    return int(value)


def must_be_finite(owner: str, argument: str, value: Tensor) -> None:
    """Raise when a floating tensor holds NaN or infinity, saying how many and where the first is."""
    if not value.is_floating_point() or bool(torch.isfinite(value).all()):
        return
    bad = ~torch.isfinite(value)
    first = tuple(bad.nonzero()[0].tolist())
    count = int(bad.sum())
    got = f"{count} of {value.numel()} values NaN or infinite, the first at {first}"
    raise ValueError(f"{owner}: `{argument}` must be finite; got {got}.")


def require(module: str, *, extra: str, owner: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"{owner} needs {package}, which is not installed. Run: pip install 'bayesdrop[{extra}]'"
        ) from error
