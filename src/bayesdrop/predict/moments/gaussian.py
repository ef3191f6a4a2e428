"""Functions of Gaussian elements: closed forms for functions made of straight lines, else quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.predict.moments.values import Moments, linear, split, total

__all__ = ["NODES", "Segment", "clark_maximum", "composed", "elementwise", "keeps_its_sign"]

#: nodes of the quadrature, in standard deviations from the mean
NODES = np.arange(-28, 29) / 4
#: (from, to, slope a, offset b): f(x) = a x + b in between
Segment = tuple[float, float, Any, Any]
Function = Callable[[Tensor], Tensor]


def elementwise(x: Moments, f: Function, segments: list[Segment] | None = None) -> Moments:
    """f(x), element by element.

    Where x is y times a mask z, zero with chance p and else 1 / (1 - p), this is exact in z:

        f(x) = f(0) + (f(y / (1 - p)) - f(0)) (1 - p) z

    Args:
        x: the argument.
        f: the function.
        segments: of a function made of straight lines, all of them; quadrature if None.
    """
    u, inner = x.source or (x, _same)
    if not x.straight or (x.product is None and u is not x and _masked(u) is not None):
        # One function of u, whose distribution is known, rather than two steps that take x as Gaussian.
        return elementwise(u, lambda a: f(inner(a)))
    masked = _masked(x)
    out = _of_gaussian(x, f, segments) if masked is None else _of_masked(*masked, f, segments)
    return out.with_source(x, f)


def composed(x: Moments, y: Moments, f: Callable[[Tensor, Tensor], Tensor]) -> Moments | None:
    """f(x, y) where both are functions of one random value, as in x * sigmoid(x); None if they are not."""
    (u, g), (v, h) = x.source or (x, _same), y.source or (y, _same)
    return elementwise(u, lambda a: f(g(a), h(a))) if u is v else None


def keeps_its_sign(x: Moments) -> bool:
    """Whether x has one sign everywhere within seven standard deviations of the mean."""
    u, f = x.source or (x, _same)
    std = u.variance.sqrt()
    values = [f(u.mean + node * std) for node in NODES[::4].tolist()]
    if _masked(u) is not None:
        values.append(f(torch.zeros_like(u.mean)))
    return bool((torch.stack(values).sign().sum(0).abs() == len(values)).all())


def _same(x: Tensor) -> Tensor:
    return x


def _masked(x: Moments) -> tuple[Tensor | Moments, Moments] | None:
    """(y, z) if x is y times a mask z."""
    return (torch.ones_like(x.mean), x) if x.mask else x.product


def _of_masked(y: Tensor | Moments, z: Moments, f: Function, segments: list[Segment] | None) -> Moments:
    keep = 1 / (1 + z.variance)
    if isinstance(y, Tensor):
        value = f(y / keep)
        inner = Moments(value, torch.zeros_like(value))
    else:
        scaled = linear(y, lambda part: part / keep, lambda part: part / keep.square())
        inner = _of_gaussian(scaled, f, segments)
    zero = f(torch.zeros_like(inner.mean))
    rise = inner.mean - zero
    loadings = {leaf: keep * part for leaf, part in inner.loadings.items()}
    for leaf, part in z.loadings.items():
        own = torch.vmap(lambda one: keep * rise * one)(part)
        loadings[leaf] = loadings[leaf] + own if leaf in loadings else own
    variance = keep * inner.variance + keep * (1 - keep) * rise.square()
    out = split(zero + keep * rise, variance, loadings)
    if zero.any():
        return out
    return replace(out, product=(linear(inner, lambda part: keep * part, lambda v: keep.square() * v), z))


def _of_gaussian(x: Moments, f: Function, segments: list[Segment] | None) -> Moments:
    """Mean and variance of f(x); a loading is multiplied by the mean slope E[f'(x)] (Stein's lemma)."""
    dtype = x.mean.dtype
    half = dtype in (torch.float16, torch.bfloat16)
    mean, std = x.mean.float() if half else x.mean, x.variance.float().sqrt() if half else x.variance.sqrt()
    centre = f(mean.clone())
    # Deviations are taken from f(mean), so that small variances do not cancel.
    first, second, slope = (
        _quadrature(mean, std, f, centre) if segments is None else _lines(mean, std, centre, segments)
    )
    variance = (second - first.square()).clamp_min(0)
    loadings = {leaf: slope.to(dtype) * loading for leaf, loading in x.loadings.items()}
    return split((centre + first).to(dtype), variance.to(dtype), loadings)


def _quadrature(mean: Tensor, std: Tensor, f: Function, centre: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E[d], E[d^2] of d = f(x) - centre, and E[f'(x)] = E[d (x - mean)] / std^2.

    By the trapezium rule, which for smooth f converges exponentially and is denser in the middle than
    Gauss-Hermite nodes: the error for tanh is below 1e-6 up to std = 2 and 0.04 % at std = 5. A kink in
    the slope, as of selu at 0, costs up to 0.1 %.
    """
    first, second, slope = (torch.zeros_like(centre) for _ in range(3))
    weights = np.exp(-0.5 * NODES**2)
    for node, weight in zip(NODES.tolist(), (weights / weights.sum()).tolist(), strict=True):
        deviation = f(mean + node * std) - centre
        first += weight * deviation
        second += weight * deviation.square()
        slope += weight * node * deviation
    return first, second, torch.where(std > 0, slope / std, 0)


def _lines(
    mean: Tensor, std: Tensor, centre: Tensor, segments: list[Segment]
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in closed form. For max(x, 0): E = m Phi(m/s) + s phi(m/s), E' = Phi(m/s).

    Reference: Frey & Hinton (1999), "Variational learning in nonlinear Gaussian belief networks".
    """
    first, second, slope = (torch.zeros_like(centre) for _ in range(3))
    for lower, upper, a, b in segments:
        below, above = _edge(lower, mean, std), _edge(upper, mean, std)
        # Moments of a standard normal t between the edges, where f(x) - centre = rise t + step.
        t0, t1 = above[0] - below[0], below[1] - above[1]
        t2 = t0 + below[2] - above[2]
        rise, step = a * std, a * mean + b - centre
        first += rise * t1 + step * t0
        second += rise * rise * t2 + 2 * rise * step * t1 + step * step * t0
        slope += a * t0
    return first, second, slope


def _edge(at: float, mean: Tensor, std: Tensor) -> tuple[Any, Any, Any]:
    """Phi(u), phi(u), u phi(u) at u = (at - mean) / std."""
    if math.isinf(at):
        return (1.0 if at > 0 else 0.0), 0.0, 0.0
    u = _ratio(at - mean, std)
    density = _density(u)
    return torch.special.ndtr(u), density, u * density


def _ratio(x: Tensor, std: Tensor) -> Tensor:
    # Beyond 40 standard deviations Phi and phi are at their limits, in double precision too.
    return (x / std.clamp_min(torch.finfo(std.dtype).tiny)).clamp(-40, 40)


def _density(u: Tensor) -> Tensor:
    return torch.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)


def clark_maximum(x: Moments, y: Moments) -> Moments:
    """max(x, y) of jointly Gaussian x and y of one shape, element by element.

    With t^2 = Var[x - y], a = (E x - E y) / t, P = Phi(a), Q = Phi(-a) and m = E[max]:

        m = P E x + Q E y + t phi(a),        Cov[max, e] = P Cov[x, e] + Q Cov[y, e]
        Var = P (Var x + (E x - m)^2) + Q (Var y + (E y - m)^2) + (E x + E y - 2 m) t phi(a)

    Reference: Clark (1961), "The greatest of a finite set of random variables".
    """
    difference = _combined(x.loadings, 1, y.loadings, -1)
    t = total(x.own, y.own, *(part.square().sum(0) for part in difference.values())).sqrt()
    a = _ratio(x.mean - y.mean, t)
    p, q, bump = torch.special.ndtr(a), torch.special.ndtr(-a), t * _density(a)
    mean = p * x.mean + q * y.mean + bump
    dx, dy = x.mean - mean, y.mean - mean
    variance = p * (x.variance + dx * dx) + q * (y.variance + dy * dy) + (dx + dy) * bump
    return split(mean, variance.clamp_min(0), _combined(x.loadings, p, y.loadings, q))


def _combined(x: Mapping[int, Tensor], a: Any, y: Mapping[int, Tensor], b: Any) -> dict[int, Tensor]:
    """a x + b y, leaf by leaf."""
    out = {leaf: a * part for leaf, part in x.items()}
    for leaf, part in y.items():
        out[leaf] = out[leaf] + b * part if leaf in out else b * part
    return out
