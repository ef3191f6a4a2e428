"""Sums, means and maxima over positions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.predict.moments.arithmetic import multiplied
from bayesdrop.predict.moments.gaussian import clark_maximum
from bayesdrop.predict.moments.values import Moments, Rule, is_random, linear, named, unsupported

__all__ = ["RULES"]


def _sum(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, *rest = args
    return linear(x, lambda part: func(part, *rest, **kwargs), lambda part: func(part, *rest, **kwargs))


def _mean(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, *rest = args
    size = x.mean.numel() / max(1, func(x.mean, *rest, **kwargs).numel())
    return linear(
        x, lambda part: func(part, *rest, **kwargs), lambda part: func(part, *rest, **kwargs) / size
    )


def _average_pool(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    names = "input kernel_size stride padding ceil_mode count_include_pad divisor_override"
    x, *rest = named(names, args, kwargs, padding=0, ceil_mode=False, count_include_pad=True)
    positions = int(func.__name__[-2])
    if positions == 1:
        # The sums that the variance needs exist in two dimensions only.
        flat = linear(x, lambda part: part.unsqueeze(-2), lambda part: part.unsqueeze(-2))
        wide = [
            (1, _one(rest[0])),
            None if rest[1] is None else (1, _one(rest[1])),
            (0, _one(rest[2])),
            *rest[3:],
        ]
        pooled = _average_pool(F.avg_pool2d, (flat, *wide), {})
        return linear(pooled, lambda part: part.squeeze(-2), lambda part: part.squeeze(-2))
    ones = torch.ones_like(x.mean)
    sums = [*rest[:5], 1]
    # Every element of a window has the same weight; what it is depends on the padding.
    weight = func(ones, *rest) / func(ones, *sums)
    return linear(x, lambda part: func(part, *rest), lambda part: func(part, *sums) * weight.square())


def _adaptive_average(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, size = named("input output_size", args, kwargs)
    shape = func(x.mean, size).shape
    count = torch.ones((), dtype=x.mean.dtype, device=x.mean.device)
    for axis in range(-int(func.__name__[-2]), 0):
        long, short = x.mean.shape[axis], shape[axis]
        widths = [-(-(at + 1) * long // short) - at * long // short for at in range(short)]
        count = count * count.new_tensor(widths).reshape(-1, *[1] * (-axis - 1))
    return linear(x, lambda part: func(part, size), lambda part: func(part, size) / count)


def _max_pool(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    """Maxima of pairs, then of pairs of those: exact for two Gaussian elements, close for more."""
    names = "input kernel_size stride padding dilation ceil_mode return_indices"
    x, kernel, stride, padding, dilation, ceil, indices = named(
        names, args, kwargs, padding=0, dilation=1, ceil_mode=False
    )
    if indices:
        raise unsupported(func.__name__, "it returns indices")
    positions = int(func.__name__.removesuffix("d")[-1])
    if x.product is not None and all(size == 1 for size in x.product[1].mean.shape[-positions:]):
        # One mask value for a whole window: max(y z) = z max(y).
        y, z = x.product
        rest = (kernel, stride, padding, dilation, ceil)
        return multiplied(_max_pool(func, (y, *rest), {}) if is_random(y) else func(y, *rest), z)
    stride = kernel if stride is None or stride == [] else stride
    geometry = [_all(value, positions) for value in (kernel, stride, padding, dilation)]
    lengths = func(x.mean, kernel, stride, padding, dilation, ceil).shape[-positions:]
    return _maximum(_windows(x, lengths, *geometry))


def _adaptive_max(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, size, indices = named("input output_size return_indices", args, kwargs)
    positions = int(func.__name__[-2])
    long, short = x.mean.shape[-positions:], func(x.mean, size).shape[-positions:]
    if indices or any(l % s for l, s in zip(long, short, strict=True)):
        raise unsupported(
            func.__name__, "its windows differ in size" if not indices else "it returns indices"
        )
    kernel = tuple(l // s for l, s in zip(long, short, strict=True))
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[positions - 1]
    return _max_pool(pool, (x, kernel), {})


def _windows(
    x: Moments,
    lengths: torch.Size,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> list[Moments]:
    """The first elements of all windows, the second, and so on."""
    before_after: list[int] = []
    for axis in reversed(range(len(kernel))):
        span = (lengths[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        size = x.mean.shape[axis - len(kernel)]
        before_after += [padding[axis], max(0, span - size - padding[axis])]
    # Padding that is never the maximum, without infinities.
    low = float(x.mean.min() - 50 * x.variance.max().sqrt() - 1)
    mean, own = F.pad(x.mean, before_after, value=low), F.pad(x.own, before_after)
    loadings = {leaf: F.pad(loading, before_after) for leaf, loading in x.loadings.items()}

    def picked(part: Tensor, at: tuple[int, ...]) -> Tensor:
        steps: list[Any] = [
            slice(a * d, a * d + (n - 1) * s + 1, s)
            for a, d, n, s in zip(at, dilation, lengths, stride, strict=True)
        ]
        return part[(..., *steps)]

    return [
        Moments(
            picked(mean, at), picked(own, at), {leaf: picked(part, at) for leaf, part in loadings.items()}
        )
        for at in itertools.product(*(range(size) for size in kernel))
    ]


def _maximum(values: list[Moments]) -> Moments:
    while len(values) > 1:
        pairs = [clark_maximum(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


def _one(value: Any) -> int:
    return int(value[0]) if isinstance(value, tuple | list) else int(value)


def _all(value: Any, positions: int) -> tuple[int, ...]:
    return (
        tuple(value) * (positions if len(value) == 1 else 1)
        if isinstance(value, tuple | list)
        else (value,) * positions
    )


RULES: dict[str, Rule] = {
    "sum": _sum,
    "mean": _mean,
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _average_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), _adaptive_average),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _max_pool),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"), _adaptive_max),
}
