"""Functions that move, select or join elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesdrop.operations import names
from bayesdrop.predict.moments.arithmetic import multiplied, summed
from bayesdrop.predict.moments.values import (
    Moments,
    Rule,
    is_random,
    linear,
    loadings_of,
    mean_of,
    named,
    unsupported,
)

__all__ = ["RULES", "moved"]


def moved(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function applied to mean, variance and loadings alike."""
    x, *rest = args
    if not is_random(x):
        raise unsupported(func.__name__, "only its parameter is random")
    more = [mean_of(value) for value in rest]  # as in x.view_as(y): only its shape counts

    def move(part: Tensor) -> Any:
        return func(part, *more, **kwargs)

    mean = move(x.mean)
    if isinstance(mean, Tensor):
        return linear(x, move, move)
    own = move(x.own)
    loadings = {leaf: torch.vmap(lambda part: tuple(move(part)))(part) for leaf, part in x.loadings.items()}
    return tuple(
        Moments(mean[at], own[at], {leaf: parts[at] for leaf, parts in loadings.items()})
        for at in range(len(mean))
    )


def _joined(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    values: Sequence[Any] = args[0] if args else kwargs["tensors"]
    rest = {name: value for name, value in kwargs.items() if name != "tensors"}

    def joined(*parts: Tensor) -> Tensor:
        out: Tensor = func(list(parts), *args[1:], **rest)
        return out

    means = [mean_of(value) for value in values]
    own = [value.own if is_random(value) else torch.zeros_like(value) for value in values]
    sizes = {leaf: part.shape[0] for value in values for leaf, part in loadings_of(value).items()}
    loadings = {}
    for leaf, size in sizes.items():
        parts = [
            loadings_of(value).get(leaf, torch.zeros_like(mean).expand(size, *mean.shape))
            for value, mean in zip(values, means, strict=True)
        ]
        loadings[leaf] = torch.vmap(joined)(*parts)
    return Moments(joined(*means), joined(*own), loadings)


def _padded(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, pad, mode, value = named("input pad mode value", args, kwargs, mode="constant")
    if mode != "constant":
        return linear(x, lambda part: func(part, pad, mode), lambda part: func(part, pad, mode))
    out = linear(x, lambda part: func(part, pad), lambda part: func(part, pad))
    return Moments(func(x.mean, pad, mode, value), out.own, out.loadings)


def _filled(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, mask, value = named("input mask value", args, kwargs)
    if not is_random(x) or is_random(mask) or is_random(value):
        raise unsupported(func.__name__, "its mask or its value is random")
    out = linear(x, lambda part: part.masked_fill(mask, 0), lambda part: part.masked_fill(mask, 0))
    return Moments(x.mean.masked_fill(mask, value), out.own, out.loadings)


def _unequal(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    """x != 0 for a masked constant x, as 0 or 1: alpha dropout finds the kept units so."""
    x, other = named("input other", args, kwargs)
    if not is_random(x) or x.product is None or is_random(x.product[0]) or not _is_zero(other):
        raise unsupported(func.__name__)
    y, z = x.product
    return multiplied((y != 0) / (1 + z.variance), z)


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def _chosen(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    condition, x, y = named("condition input other", args, kwargs)
    if is_random(condition):
        if is_random(y):
            raise unsupported(func.__name__, "its condition and its last argument are random")
        # The condition is 0 or 1, and independent of x.
        return summed(multiplied(condition, summed(x, y, -1)), y)
    mean: Tensor = torch.where(condition, mean_of(x), mean_of(y))
    out = summed(_where(condition, x, mean), _where(~condition, y, mean))
    return Moments(mean, out.own, out.loadings)


def _where(condition: Tensor, x: Any, like: Tensor) -> Any:
    """x where the condition holds, else 0; in the shape of `like`."""
    nothing = torch.zeros_like(like)

    def chosen(part: Tensor) -> Tensor:
        return torch.where(condition, part, nothing)

    return linear(x, chosen, chosen) if is_random(x) else nothing


def _enlarged(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mode = named("input size scale_factor mode", args, kwargs, mode="nearest")[3]
    if mode not in ("nearest", "nearest-exact"):
        raise unsupported(func.__name__, f"mode {mode!r}")
    return moved(func, args, kwargs)


def _like(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Only the shape of the random value counts: the result is a constant."""
    return func(*(mean_of(value) for value in args), **kwargs)


RULES: dict[str, Rule] = {
    **dict.fromkeys(names(moves=True), moved),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack", "vstack"), _joined),
    **dict.fromkeys(names(like=True), _like),
    "pad": _padded,
    "masked_fill": _filled,
    "where": _chosen,
    "ne": _unequal,
    "interpolate": _enlarged,
}
