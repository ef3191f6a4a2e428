"""Sums, products, and maps that are linear in each of two arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bayesdrop.operations import names
from bayesdrop.predict.moments.gaussian import composed, elementwise, keeps_its_sign
from bayesdrop.predict.moments.values import (
    Moments,
    Rule,
    is_random,
    loadings_of,
    mean_of,
    named,
    unsupported,
)

__all__ = ["RULES", "bilinear", "multiplied", "summed"]


def summed(x: Any, y: Any, scale: float = 1) -> Moments:
    """x + scale y. The own variances of x and y are taken as independent."""
    if is_random(x) and is_random(y):
        joint = composed(x, y, lambda a, b: a + scale * b)
        if joint is not None:
            return joint
    mean = mean_of(x) + scale * mean_of(y)
    own = torch.zeros_like(mean)
    loadings: dict[int, Tensor] = {}
    for value, factor in ((x, 1), (y, scale)):
        if is_random(value):
            own = own + factor * factor * value.own
        for leaf, loading in loadings_of(value).items():
            wide = torch.vmap(lambda part: part.expand_as(mean))(loading)
            wide = wide if factor == 1 else factor * wide
            loadings[leaf] = loadings[leaf] + wide if leaf in loadings else wide
    return _noted(Moments(mean, own, loadings), x, y, lambda a, b: a + scale * b)


def multiplied(x: Any, y: Any) -> Moments:
    """x y, element by element."""
    if is_random(x) and is_random(y):
        joint = composed(x, y, torch.mul)
        if joint is not None:
            return joint
    out = bilinear(torch.mul, x, y)
    for value, noise in ((x, y), (y, x)):
        apart = loadings_of(value).keys().isdisjoint(loadings_of(noise))
        if isinstance(value, Moments | Tensor) and is_random(noise) and noise.mask and apart:
            out = replace(out, product=(value, noise))
    return _noted(out, x, y, torch.mul)


def bilinear(f: Callable[[Any, Any], Tensor], x: Any, y: Any) -> Moments:
    """f that is linear in x and linear in y, as a product of matrices.

        E = f(m_x, m_y),     Var = f(v_x, m_y^2) + f(m_x^2, v_y) + f(v_x, v_y)

    for independent x and y whose elements are independent; followed noise keeps its covariances.
    """
    mx, my = mean_of(x), mean_of(y)
    mean = f(mx, my)
    loadings = {leaf: torch.vmap(lambda part: f(part, my))(part) for leaf, part in loadings_of(x).items()}
    for leaf, loading in loadings_of(y).items():
        mapped = torch.vmap(lambda part: f(mx, part))(loading)
        if leaf in loadings:
            # x and y depend on the same noise: E[x y] = E[x] E[y] + Cov[x, y].
            mean = mean + torch.vmap(f)(loadings_of(x)[leaf], loading).sum(0)
            mapped = mapped + loadings[leaf]
        loadings[leaf] = mapped
    own = torch.zeros_like(mean)
    if is_random(x):
        own = own + f(x.own, my * my)
    if is_random(y):
        own = own + f(mx * mx, y.own)
    if is_random(x) and is_random(y):
        own = own + f(x.variance, y.variance)
    # A fast convolution rounds sums of squares to below zero.
    return Moments(mean, own.clamp_min(0), loadings)


def _noted(out: Moments, x: Any, y: Any, f: Callable[[Any, Any], Tensor]) -> Moments:
    """`out` with a note that it is a function of the one random argument."""
    if is_random(x) == is_random(y):
        return out
    value: Moments = x if is_random(x) else y
    if out.mean.shape != value.mean.shape:
        return out
    return out.with_source(value, (lambda u: f(u, y)) if is_random(x) else (lambda u: f(x, u)), straight=True)


# the table


def _add(sign: int) -> Rule:
    def rule(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
        x, y, alpha = named("input other alpha", args, kwargs, alpha=1)
        return summed(x, y, sign * alpha)

    return rule


def _subtract_from(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, y, alpha = named("input other alpha", args, kwargs, alpha=1)
    return summed(y, x, -alpha)


def _multiply(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, y = named("input other", args, kwargs)
    return multiplied(x, y)


def _negate(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    return multiplied(args[0], -1)


def _divide(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, y, rounding = named("input other rounding_mode", args, kwargs)
    if rounding is not None:
        raise unsupported(func.__name__, "it rounds")
    if not is_random(y):
        return multiplied(x, 1 / y)
    if not keeps_its_sign(y):
        raise unsupported(func.__name__, "its denominator may be zero")
    joint = composed(x, y, torch.div) if is_random(x) else None
    return multiplied(x, elementwise(y, torch.reciprocal)) if joint is None else joint


def _divide_into(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    return _divide(func, (args[1], args[0]), kwargs)


def _power(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    x, exponent = named("input exponent", args, kwargs)
    if not is_random(x) or not isinstance(exponent, int | float) or exponent < 0 or exponent != int(exponent):
        raise unsupported(func.__name__, "its exponent is not a whole number")
    return elementwise(x, lambda u: u**exponent)


def _square(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    return elementwise(args[0], torch.square)


def _map(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    """F.linear and convolutions, transposed ones too; weights and bias may be random."""
    given = dict(zip(("input", "weight", "bias"), args, strict=False))
    given |= {name: kwargs[name] for name in ("input", "weight", "bias") if name in kwargs}
    rest = {name: value for name, value in kwargs.items() if name not in given}
    out = bilinear(lambda x, w: func(x, w, None, *args[3:], **rest), given["input"], given["weight"])
    bias = given.get("bias")
    if bias is None:
        return out
    positions = 0 if func.__name__ == "linear" else mean_of(given["weight"]).dim() - 2
    shape = (-1, *[1] * positions)
    if not is_random(bias):
        return summed(out, bias.reshape(shape))
    return summed(out, Moments(bias.mean.reshape(shape), bias.own.reshape(shape), {
        leaf: part.reshape(part.shape[0], *shape) for leaf, part in bias.loadings.items()
    }))  # fmt: skip


def _matmul(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    return bilinear(lambda x, y: func(x, y, **kwargs), *args)


def _add_matmul(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    if kwargs or len(args) != 3:
        raise unsupported(func.__name__, "it scales its terms")
    return summed(args[0], bilinear(torch.matmul, *args[1:]))


def _einsum(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Moments:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        raise unsupported(func.__name__, "it does not have two operands")
    return bilinear(lambda x, y: func(equation, x, y), *operands)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "radd"), _add(1)),
    **dict.fromkeys(("sub", "subtract"), _add(-1)),
    "rsub": _subtract_from,
    **dict.fromkeys(("mul", "multiply", "rmul"), _multiply),
    **dict.fromkeys(("neg", "negative"), _negate),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv"), _divide),
    **dict.fromkeys(("rdiv", "rtruediv"), _divide_into),
    "reciprocal": lambda func, args, kwargs: _divide(func, (1.0, args[0]), kwargs),
    "pow": _power,
    "square": _square,
    **dict.fromkeys(names(product="layer"), _map),
    **dict.fromkeys(("matmul", "mm", "bmm", "mv"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _add_matmul),
    "einsum": _einsum,
}
