"""Checks of arguments, the sentence that their errors share, and the library's own error classes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "LARGEST_WIDTH",
    "Diverged",
    "MissingExtra",
    "NoRandomness",
    "is_one_of",
    "layer_widths",
    "must",
    "must_be_finite",
    "must_be_flag",
    "must_be_module",
    "must_be_tensor",
    "real_number",
    "real_numbers",
    "require",
    "told_by",
    "whole_number",
    "whole_seed",
]

#: the largest number of units of a layer: more is a mistake, and no memory holds its weights
LARGEST_WIDTH = 10**8
#: the largest int that torch and NumPy hold
_LARGEST_INT = 2**63 - 1
#: the largest seed: functions may add a few bits to a seed and stay within 64
_LARGEST_SEED = _LARGEST_INT


class NoRandomness(ValueError):
    """A model whose uncertainty is wanted, and nothing in it is random."""


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

    @classmethod
    def of(cls, owner: str, module: str, extra: str) -> MissingExtra:
        """The error that says who needs which module, and which extra installs it."""
        package = module.partition(".")[0]
        return cls(
            f"{owner} needs {package}, which is not installed and comes with the extra {extra!r}. "
            f"Run, in a clone of bayesdrop: pip install '.[{extra}]'"
        )


def must(owner: str, argument: str, requirement: str, got: Any, hint: str = "") -> str:
    """The sentence of an argument error: owner, argument, what it must be, what it was, and what to do.

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


def must_be_finite(owner: str, argument: str, value: Tensor) -> None:
    """Raise when a floating tensor holds NaN or infinity, saying how many and where the first is."""
    if not value.is_floating_point() or bool(torch.isfinite(value).all()):
        return
    bad = ~torch.isfinite(value)
    first = tuple(bad.nonzero()[0].tolist())
    count = int(bad.sum())
    got = f"{count} of {value.numel()} values NaN or infinite, the first at {first}"
    raise ValueError(f"{owner}: `{argument}` must be finite; got {got}.")


def whole_number(
    owner: str,
    argument: str,
    value: Any,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    want: str = "",
    hint: str = "",
) -> int:
    """The value as an int; raise unless it is a whole number within its bounds.

    NumPy's integers count; True and False do not. The error describes the bounds, unless `want` says what
    the value must be.

    >>> whole_number("predict", "num_draws", 100, at_least=1)
    100
    """
    low = -_LARGEST_INT if at_least is None else at_least
    high = _LARGEST_INT if at_most is None else at_most
    if _is_whole(value) and low <= value <= high:
        return int(value)
    if want:
        pass
    elif at_least is not None and at_most is not None:
        want = f"an int from {at_least} to {at_most}"
    elif at_least is not None:
        want = "a positive int" if at_least == 1 else f"an int of at least {at_least}"
    else:
        want = "an int" if at_most is None else f"an int of at most {at_most}"
    raise ValueError(must(owner, argument, want, value, hint))


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def whole_seed(owner: str, value: Any, argument: str = "seed") -> int:
    """The seed as an int; raise unless it is one, from 0 to 2^63 - 1."""
    if _is_whole(value) and 0 <= value <= _LARGEST_SEED:
        return int(value)
    raise ValueError(must(owner, argument, "an int from 0 to 2^63 - 1", value))


def real_number(
    owner: str,
    argument: str,
    value: Any,
    requirement: str,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    hint: str = "",
) -> float:
    """The value as a float; raise unless it is one finite number within its bounds.

    NumPy's numbers and tensors of one value count; True does not.

    Args:
        owner: the function or class that the error names.
        argument: the argument's name.
        value: what was given.
        requirement: what it must be, in words.
        above: the value must be larger than this.
        below: the value must be smaller than this.
        at_least: the value must not be smaller than this.
        at_most: the value must not be larger than this.
        hint: what to do about it, added to the error.

    >>> real_number("ConcreteDropout", "temperature", 0.1, "a positive number", above=0)
    0.1
    """
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if not isinstance(number, bool) and isinstance(number, Real):
        try:
            found = float(number)
        except OverflowError:  # an int above 1e308
            found = math.inf
        if math.isfinite(found) and above < found < below and at_least <= found <= at_most:
            return found
    raise ValueError(must(owner, argument, requirement, value, hint))


def real_numbers(owner: str, argument: str, value: Any, requirement: str) -> Tensor:
    """The value, one number or several, as a tensor of doubles; raise unless it holds real numbers."""
    if isinstance(value, Tensor) and not value.is_complex() and value.dtype != torch.bool:
        return value.detach().to(torch.float64)
    if isinstance(value, Real | Sequence | np.ndarray) and not isinstance(value, bool | str | bytes):
        try:
            found = np.asarray(value)
        except (TypeError, ValueError, RuntimeError):  # rows of unequal length, tensors among lists
            found = np.asarray(None)
        if found.dtype.kind in "iuf":
            return torch.from_numpy(found.astype(np.float64))
    raise TypeError(must(owner, argument, requirement, value))


def layer_widths(owner: str, hidden: Any, argument: str = "hidden") -> tuple[int, ...]:
    """The widths of hidden layers as a tuple; one int is one layer.

    >>> layer_widths("mlp", 64)
    (64,)
    """
    if _is_whole(hidden):
        hidden = (hidden,)
    good = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str | bytes)
    if not good or not all(_is_whole(width) and 1 <= width <= LARGEST_WIDTH for width in hidden):
        want = "the widths of hidden layers, positive ints, as (64, 64)"
        raise ValueError(must(owner, argument, want, hidden))
    return tuple(int(width) for width in hidden)


def is_one_of(value: Any, options: Iterable[Any]) -> bool:
    """Whether `value` is one of the options, words or None; an array is not compared with them."""
    return any(value is option or (isinstance(value, str) and value == option) for option in options)


@contextmanager
def told_by(owner: str, *arguments: str) -> Iterator[None]:
    """Errors that another library raises inside are raised again, and name our owner and arguments."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if str(error).startswith(owner):
            raise
        kind = ValueError if isinstance(error, ValueError) else TypeError
        names = " and ".join(f"`{name}`" for name in arguments)
        raise kind(f"{owner}: {names} cannot be used. {error}") from error


def must_be_flag(owner: str, **flags: Any) -> None:
    """Raise unless every flag is True or False; a string such as "no" would count as true."""
    for argument, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(must(owner, argument, "True or False", value))


def must_be_module(owner: str, argument: str, value: Any, hint: str = "") -> None:
    """Raise unless the value is an `nn.Module`."""
    if not isinstance(value, torch.nn.Module):
        raise TypeError(must(owner, argument, "an nn.Module", value, hint))


def must_be_tensor(owner: str, argument: str, value: Any, *, floating: bool = False) -> None:
    """Raise unless the value is a tensor of real numbers; with `floating`, of floating-point ones."""
    if not isinstance(value, Tensor):
        hint = "torch.as_tensor(...) makes one."
        raise TypeError(must(owner, argument, "a tensor", type(value), hint))
    if value.is_complex() or (floating and not value.is_floating_point()):
        want = "a tensor of floating numbers" if floating else "a tensor of real numbers"
        raise TypeError(must(owner, argument, want, value.dtype))


def require(module: str, *, extra: str, owner: str) -> ModuleType:
    """Import an optional dependency; if it is missing, raise an error that names its extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra.of(owner, module, extra) from error
