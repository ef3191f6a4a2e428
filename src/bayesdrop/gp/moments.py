"""E[s(u) s(v)] of a non-linearity s at two correlated Gaussian variables, for covariances of networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must
from bayesdrop.gp.mixing import tanh_scales

__all__ = ["Named", "Nonlinearity", "activation", "second_moment"]

Named = Literal["relu", "step", "erf", "cosine", "tanh"]
#: one of the names, or any function of a tensor that acts element by element
Nonlinearity = Named | Callable[[Tensor], Tensor]

_NUM_NODES = 64


def second_moment(nonlinearity: Nonlinearity, xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    """E[s(u) s(v)] for (u, v) ~ N(0, [[xx, xy], [xy, yy]]), element by element.

    With r = xy / sqrt(xx yy) = cos t:

        relu     sqrt(xx yy) (sin t + (pi - t) cos t) / (2 pi)
        step     (pi - t) / (2 pi)
        erf      (2 / pi) asin(2 xy / sqrt((1 + 2 xx) (1 + 2 yy)))
        cosine   exp(-(xx + yy - 2 xy) / 2),  for s(u) = sqrt(2) cos(u + b) with b uniform on the circle
        tanh     (2 / pi) E asin(xy / sqrt((k^2 + xx) (j^2 + yy))) over Kolmogorov's k and j, to 1e-9

    Other functions are integrated with 64 x 64 Gauss-Hermite nodes, which is accurate for smooth functions
    that change slowly over one standard deviation of u and v.

    Args:
        nonlinearity: a name, or a function of a tensor; `torch.relu`, `torch.tanh`, `torch.erf`, `nn.ReLU()`
            and `nn.Tanh()` are the same as their names.
        xx: variance of u, at least 0.
        yy: variance of v, at least 0.
        xy: their covariance.

    Returns: the broadcast shape, in double precision. The derivative in r at r = 1 is set to 0: r is at its
    maximum there, where two inputs coincide.
    Reference: Gal & Ghahramani (2015), section 3.1; Cho & Saul (2009) (relu, step); Williams (1997) (erf).

    >>> one = torch.ones((), dtype=torch.float64)
    >>> second_moment("relu", one, one, one)
    tensor(0.5000, dtype=torch.float64)
    """
    shape = (xx + yy + xy).shape
    xx, yy, xy = (value.to(torch.float64).expand(shape) for value in (xx, yy, xy))
    name = _known(nonlinearity)
    if callable(name):
        return _hermite(name, xx, yy, xy)
    return _MOMENTS[name](xx, yy, xy)


def activation(nonlinearity: Nonlinearity) -> Callable[[Tensor], Tensor]:
    """The function itself. "cosine" is sqrt(2) cos(u): its random phase belongs to the bias."""
    name = _known(nonlinearity)
    return name if callable(name) else _FUNCTIONS[name]


def _known(nonlinearity: Nonlinearity) -> Nonlinearity:
    """The name of a function or module that has one; otherwise the function itself."""
    for kind, name in _MODULES.items():
        if isinstance(nonlinearity, kind):
            return name
    for name, functions in _ALIASES.items():
        if any(nonlinearity is function for function in functions):
            return name
    if callable(nonlinearity) or is_one_of(nonlinearity, get_args(Named)):
        return nonlinearity
    want = f"one of {', '.join(get_args(Named))}, or a function"
    raise ValueError(must("second_moment", "nonlinearity", want, nonlinearity))


def _correlation(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    scale = (xx * yy).clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return (xy / scale).clamp(-1, 1)


def _angle(correlation: Tensor) -> Tensor:
    """acos, with the derivative 0 at the ends, where it is infinite."""
    inside = correlation.abs() < 1
    ends = torch.where(correlation > 0, torch.zeros_like(correlation), math.pi)
    return torch.where(inside, torch.where(inside, correlation, 0).acos(), ends)


def _relu(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    r = _correlation(xx, yy, xy)
    inside = r.abs() < 1
    sine = torch.where(inside, (1 - torch.where(inside, r, 0).square()).sqrt(), 0)
    # sqrt has no derivative at 0; if a variable is always 0, so is the product
    product = xx * yy
    scale = torch.where(product > 0, torch.where(product > 0, product, 1).sqrt(), 0)
    return scale * (sine + (math.pi - _angle(r)) * r) / (2 * math.pi)


def _step(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    value = (math.pi - _angle(_correlation(xx, yy, xy))) / (2 * math.pi)
    return torch.where(xx * yy > 0, value, 0)  # step(0) = 0


def _erf(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    return (2 / math.pi) * torch.asin(2 * xy / ((1 + 2 * xx) * (1 + 2 * yy)).sqrt())


def _cosine(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    return torch.exp(-0.5 * (xx + yy - 2 * xy))


def _tanh(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    k, weight = (value.to(xx.device) for value in tanh_scales())
    other = (k.square().reshape(-1, *[1] * yy.dim()) + yy).rsqrt()
    total = torch.zeros_like(xy)
    for node, share in zip(k.tolist(), weight.tolist(), strict=True):
        angles = torch.asin(xy * (node**2 + xx).rsqrt() * other)
        total = total + share * torch.tensordot(weight, angles, 1)
    return (2 / math.pi) * total


@cache
def _nodes() -> tuple[Tensor, Tensor]:
    node, weight = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    return torch.from_numpy(node), torch.from_numpy(weight / weight.sum())


def _hermite(function: Callable[[Tensor], Tensor], xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    node, weight = (value.to(xx.device) for value in _nodes())
    r = _correlation(xx, yy, xy)
    inside = r.abs() < 1
    sine = torch.where(inside, (1 - torch.where(inside, r, 0).square()).sqrt(), 0)
    tiny = torch.finfo(torch.float64).tiny
    x_std, y_std = xx.clamp_min(tiny).sqrt(), yy.clamp_min(tiny).sqrt()
    nodes = node.reshape(-1, *[1] * r.dim())
    total = torch.zeros_like(xy)
    for first, share in zip(node.tolist(), weight.tolist(), strict=True):
        inner = torch.tensordot(weight, function(y_std * (r * first + sine * nodes)), 1)
        total = total + share * function(x_std * first) * inner
    return total


def _step_function(u: Tensor) -> Tensor:
    return (u > 0).to(u.dtype)


def _cosine_function(u: Tensor) -> Tensor:
    return math.sqrt(2) * u.cos()


_MOMENTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "relu": _relu,
    "step": _step,
    "erf": _erf,
    "cosine": _cosine,
    "tanh": _tanh,
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "step": _step_function,
    "erf": torch.erf,
    "cosine": _cosine_function,
    "tanh": torch.tanh,
}
_ALIASES: dict[Named, tuple[object, ...]] = {
    "relu": (torch.relu, F.relu, Tensor.relu),
    "tanh": (torch.tanh, F.tanh, Tensor.tanh),
    "erf": (torch.erf, torch.special.erf, Tensor.erf),
}
_MODULES: dict[type[nn.Module], Named] = {nn.ReLU: "relu", nn.Tanh: "tanh"}
