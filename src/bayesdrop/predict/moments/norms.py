"""Normalisation: exact for stored statistics, to first order for statistics of the row itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesdrop.predict.moments.arithmetic import multiplied, summed
from bayesdrop.predict.moments.values import Moments, Rule, is_random, linear, named, unsupported

__all__ = ["RULES"]


def _batch_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    names = "input running_mean running_var weight bias training momentum eps"
    x, mean, variance, weight, bias, training, _, eps = named(names, args, kwargs, training=False, eps=1e-5)
    if training or mean is None or any(is_random(value) for value in (mean, variance, weight, bias)):
        raise unsupported(func.__name__, "its statistics are those of the batch")
    scale = (variance + eps).rsqrt() * (1 if weight is None else weight)
    shift = -mean * scale + (0 if bias is None else bias)
    shape = (-1, *[1] * (x.mean.dim() - 2))
    return summed(multiplied(x, scale.reshape(shape)), shift.reshape(shape))


def _layer_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, shape, weight, bias, eps = named("input normalized_shape weight bias eps", args, kwargs, eps=1e-5)
    first = x.mean.dim() - len(shape)
    return _scaled(func, _normalised(x, lambda part: part.flatten(first), eps), weight, bias)


def _rms_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, shape, weight, eps = named("input normalized_shape weight eps", args, kwargs)
    first = x.mean.dim() - len(shape)
    eps = torch.finfo(x.mean.dtype).eps if eps is None else eps
    return _scaled(func, _normalised(x, lambda part: part.flatten(first), eps, centred=False), weight, None)


def _group_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, groups, weight, bias, eps = named("input num_groups weight bias eps", args, kwargs, eps=1e-5)
    out = _normalised(x, lambda part: part.reshape(part.shape[0], groups, -1), eps)
    shape = (-1, *[1] * (x.mean.dim() - 2))
    laid_out = [value.reshape(shape) if isinstance(value, Tensor) else value for value in (weight, bias)]
    return _scaled(func, out, *laid_out)


def _normalised(x: Moments, rows: Callable[[Tensor], Tensor], eps: float, *, centred: bool = True) -> Moments:
    """(x - average) / root of the mean square, over the last axis of `rows(x)`.

    First order around the mean: with u the normalised mean and s^2 the *expected* mean square,

        dy = (dx - average(dx) - u average(u dx)) / s.
    """
    shape = x.mean.shape
    flat = linear(x, rows, rows)
    size = flat.mean.shape[-1]

    def centre(part: Tensor) -> Tensor:
        return part - part.mean(-1, keepdim=True) if centred else part

    middle = centre(flat.mean)
    square = middle.square().mean(-1, keepdim=True)
    square = square + flat.own.mean(-1, keepdim=True) * (1 - 1 / size if centred else 1)
    for loading in flat.loadings.values():
        square = square + centre(loading).square().mean(-1, keepdim=True).sum(0)
    root = (square + eps).rsqrt()
    u = middle * root

    def change(part: Tensor) -> Tensor:
        moved = centre(part)
        return ((moved - u * (u * moved).mean(-1, keepdim=True)) * root).reshape(shape)

    def changed_variance(own: Tensor) -> Tensor:
        one = 1.0 if centred else 0.0
        kept = own * (1 - (2 * one + 2 * u * u) / size)
        spread = one * own.mean(-1, keepdim=True) + 2 * one * u * (u * own).mean(-1, keepdim=True)
        spread = spread + u * u * (u * u * own).mean(-1, keepdim=True)
        return ((kept + spread / size).clamp_min(0) * root.square()).reshape(shape)

    moved = linear(flat, change, changed_variance)
    return Moments(u.reshape(shape), moved.own, moved.loadings)


def _scaled(func: Callable[..., Any], x: Moments, weight: Any, bias: Any) -> Moments:
    if is_random(weight) or is_random(bias):
        raise unsupported(func.__name__, "its parameter is random")
    if weight is not None:
        x = multiplied(x, weight)
    return x if bias is None else summed(x, bias)


RULES: dict[str, Rule] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
}
