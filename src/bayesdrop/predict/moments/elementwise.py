"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from bayesdrop.operations import names
from bayesdrop.predict.moments import arithmetic
from bayesdrop.predict.moments.arithmetic import multiplied
from bayesdrop.predict.moments.gaussian import Segment, elementwise
from bayesdrop.predict.moments.shapes import moved
from bayesdrop.predict.moments.values import Moments, Rule, is_random, named, split, unsupported

__all__ = ["RULES"]

_INF = math.inf


def _smooth(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, more, rest = _arguments(func, args, kwargs)
    return elementwise(x, lambda u: func(u, *more, **rest))


def _straight(lines: Callable[..., list[Segment]]) -> Rule:
    """A rule for a function made of straight lines; `lines` computes these from its other arguments."""

    def rule(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
        x, more, rest = _arguments(func, args, kwargs)
        return elementwise(x, lambda u: func(u, *more, **rest), lines(*more, **rest))

    return rule


def _arguments(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Moments, tuple[Any, ...], dict[str, Any]]:
    """The random value, the further arguments, and the keywords; raise if any of these is random."""
    rest = {name: value for name, value in kwargs.items() if name != "inplace"}
    x, more = args[0], args[1:]
    if not is_random(x) or any(is_random(value) for value in (*more, *rest.values())):
        raise unsupported(func.__name__, "its parameter is random")
    return x, more, rest


def _relu(*_: Any, **__: Any) -> list[Segment]:
    return [(-_INF, 0, 0, 0), (0, _INF, 1, 0)]


def _leaky_relu(negative_slope: float = 0.01, *_: Any, **__: Any) -> list[Segment]:
    return [(-_INF, 0, negative_slope, 0), (0, _INF, 1, 0)]


def _between(lower: float | None, upper: float | None) -> list[Segment]:
    low, high = -_INF if lower is None else lower, _INF if upper is None else upper
    ends: list[Segment] = [(-_INF, low, 0, low)] if lower is not None else []
    return [*ends, (low, high, 1, 0), *([(high, _INF, 0, high)] if upper is not None else [])]


def _hardtanh(min_val: float = -1, max_val: float = 1, *_: Any, **__: Any) -> list[Segment]:
    return _between(min_val, max_val)


def _softshrink(lambd: float = 0.5) -> list[Segment]:
    return [(-_INF, -lambd, 1, lambd), (-lambd, lambd, 0, 0), (lambd, _INF, 1, -lambd)]


def _clamp(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, lower, upper = named("input min max", args, kwargs)
    if not is_random(x) or not all(isinstance(edge, int | float | None) for edge in (lower, upper)):
        raise unsupported(func.__name__, "its limits are not numbers")
    return elementwise(x, lambda u: u.clamp(lower, upper), _between(lower, upper))


def _prelu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, weight = named("input weight", args, kwargs)
    if not is_random(x) or is_random(weight):
        raise unsupported(func.__name__, "its parameter is random")
    slope = weight.reshape(-1, *[1] * max(x.mean.dim() - 2, 0))
    return elementwise(x, lambda u: torch.where(u > 0, u, slope * u), [(-_INF, 0, slope, 0), (0, _INF, 1, 0)])


def _glu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, dim = named("input dim", args, kwargs, dim=-1)
    value, gate = moved(torch.chunk, (x, 2, dim), {})
    return multiplied(value, elementwise(gate, torch.sigmoid))


def _exponential(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    """exp(x) is log-normal; its tail is too long for quadrature."""
    x, _, _ = _arguments(func, args, kwargs)
    if not x.straight or x.product is not None:
        return elementwise(x, torch.exp)
    variance = x.variance
    mean = (x.mean + variance / 2).exp()
    loadings = {leaf: mean * loading for leaf, loading in x.loadings.items()}
    return split(mean, mean.square() * torch.expm1(variance), loadings).with_source(x, torch.exp)


RULES: dict[str, Rule] = {
    # Without sums and products; functions made of straight lines follow below.
    **dict.fromkeys(names(smooth=True) - arithmetic.RULES.keys(), _smooth),
    "exp": _exponential,
    "relu": _straight(_relu),
    "leaky_relu": _straight(_leaky_relu),
    "abs": _straight(lambda: [(-_INF, 0, -1, 0), (0, _INF, 1, 0)]),
    "softshrink": _straight(_softshrink),
    "hardtanh": _straight(_hardtanh),
    "relu6": _straight(lambda *_, **__: _between(0, 6)),
    "hardsigmoid": _straight(lambda *_, **__: [(-_INF, -3, 0, 0), (-3, 3, 1 / 6, 0.5), (3, _INF, 0, 1)]),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda func, args, kwargs: _clamp(func, (*args, None), kwargs),
    "clamp_max": lambda func, args, kwargs: _clamp(func, (args[0], None, *args[1:]), kwargs),
    "prelu": _prelu,
    "glu": _glu,
}
