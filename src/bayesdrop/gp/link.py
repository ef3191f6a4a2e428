"""From the training settings of a dropout network to the Gaussian process that it approximates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bayesdrop.errors import layer_widths, must, real_number, told_by, whole_number, whole_seed
from bayesdrop.gp.kernel import NetworkKernel
from bayesdrop.gp.moments import Nonlinearity, activation
from bayesdrop.gp.process import GaussianProcess

__all__ = ["length_scale_from_weight_decay", "process_of_network"]


def length_scale_from_weight_decay(
    weight_decay: float, *, p: float, precision: float, num_data: int, loss_weight: float = 1.0
) -> float:
    """l = sqrt(2 N tau lambda / ((1 - p) r)): the length scale of a layer's prior.

    The objective is r (1/N) sum_n |y_n - f(x_n)|^2 / 2 + lambda |M|^2. This is
    `precision_from_weight_decay` solved for l: weight decay alone determines tau / l^2.

    Args:
        weight_decay: lambda, above 0, on the weights M before any division by 1 - p. Where the penalty is
            written (lambda / 2) |M|^2, pass half of that lambda.
        p: chance of dropping the layer's inputs; 0 for a bias, which is not dropped.
        precision: tau = 1 / noise variance.
        num_data: N.
        loss_weight: r.

    Reference: Gal & Ghahramani (2015), Eqs 3 and 14; (2016), Eq. 7.

    >>> round(length_scale_from_weight_decay(1e-4, p=0.5, precision=0.25, num_data=100), 6)
    0.1
    """
    owner = "length_scale_from_weight_decay"
    ratio = _precision_per_square_length(owner, weight_decay, p, num_data, loss_weight)
    return math.sqrt(_positive(owner, "precision", precision) / ratio)


def process_of_network(
    nonlinearity: Nonlinearity,
    *,
    weight_decay: float | Sequence[float],
    p: float | Sequence[float],
    num_data: int,
    num_units: int | Sequence[int],
    precision: float | None = None,
    length_scale: float | None = None,
    bias_decay: float | None = None,
    loss_weight: float = 1.0,
    draw: int | None = None,
) -> GaussianProcess:
    """The Gaussian process whose posterior a dropout network approximates.

        f(x) = s((x * z_1) M_1 + m_1) * z_2 M_2,     K hidden units, or layers of K_1, ..., K_L units
        minimised: r (1/N) sum_n |y_n - f(x_n)|^2 / 2 + sum_i lambda_i |M_i|^2 + lambda_b |m|^2

        l_i^2 = 2 N tau lambda_i / ((1 - p_i) r)
        k(x, y) = (K / l_2^2) E[s(w.x + b) s(w.y + b)],    w ~ N(0, I / l_1^2),  b ~ N(0, 1 / l_b^2)

    Weight decay determines only tau / l^2, so one of `precision` and `length_scale` must be given.

    With several hidden layers the prior is a deep Gaussian process: Gaussian only given its hidden layers, or
    in the limit of wide layers. `draw=None` gives that limit, a `NetworkKernel` of that depth with the
    variances K_i / l_{i+1}^2; a number gives the process for the network's widths given that draw of all
    hidden layers, a `FiniteKernel`. `process.kernel.sample` draws functions of the deep process itself.

    Args:
        nonlinearity: s, as in `NetworkKernel`.
        weight_decay: lambda of all L + 1 layers, or one of each.
        p: chance of dropping inputs and hidden units, or one of each layer.
        num_data: N.
        num_units: K, or (K_1, ..., K_L) of L hidden layers.
        precision: tau; gives the length scales.
        length_scale: l_1, of the first layer; gives the precision.
        bias_decay: lambda_b of all hidden layers; None: that of the layer's weights; infinite for hidden
            units without bias.
        loss_weight: r.
        draw: None for wide layers; the seed of a draw of the hidden layers for those of K units.

    Returns: with `.kernel`, and `.precision`.
    Reference: Gal & Ghahramani (2015), sections 3.1 to 3.4; (2016), Eq. 2 (several layers).

    >>> process = process_of_network("relu", weight_decay=1e-4, p=0.5, num_data=100, num_units=50,
    ...                              length_scale=0.1)
    >>> round(process.precision, 6)
    0.25
    """
    owner = "process_of_network"
    activation(nonlinearity)  # raises if it is not one, before scales are checked
    if (precision is None) == (length_scale is None):
        got = {"precision": precision, "length_scale": length_scale}
        raise ValueError(must(owner, "precision", "given if and only if length_scale is not", got))
    widths = layer_widths(owner, num_units, "num_units")
    if not widths:
        raise ValueError(must(owner, "num_units", "the width of at least one hidden layer", num_units))
    decays = _each(owner, "weight_decay", weight_decay, len(widths) + 1)
    rates = _each(owner, "p", p, len(widths) + 1)
    ratios = [
        _precision_per_square_length(owner, decay, rate, num_data, loss_weight)
        for decay, rate in zip(decays, rates, strict=True)
    ]
    if precision is None:
        assert length_scale is not None
        precision = ratios[0] * _positive(owner, "length_scale", length_scale) ** 2
    precision = _positive(owner, "precision", precision)
    lengths = [math.sqrt(precision / ratio) for ratio in ratios]
    biases = [0.0] * len(widths)
    if bias_decay != math.inf:
        own = decays[:-1] if bias_decay is None else [bias_decay] * len(widths)
        of_biases = [_precision_per_square_length(owner, d, 0.0, num_data, loss_weight) for d in own]
        biases = [math.sqrt(ratio / precision) for ratio in of_biases]
    variances = [units / length**2 for units, length in zip(widths, lengths[1:], strict=True)]
    deep = len(widths) > 1
    with told_by(owner, "weight_decay", "precision", "num_data", "num_units", "p"):
        kernel = NetworkKernel(
            nonlinearity,
            length_scale=lengths[0],
            bias_std=tuple(biases) if deep else biases[0],
            variance=tuple(variances) if deep else variances[0],
            depth=len(widths),
        )
    if draw is None:
        return GaussianProcess(kernel, precision)
    return GaussianProcess(
        kernel.given(num_units=tuple(widths), seed=whole_seed(owner, draw, "draw")), precision
    )


def _each(owner: str, argument: str, value: Any, layers: int) -> list[float]:
    """One number for every layer."""
    if not isinstance(value, Sequence):
        return [value] * layers
    given: list[Any] = list(value)
    if isinstance(value, str) or len(given) != layers:
        raise ValueError(must(owner, argument, f"one number, or one per layer ({layers})", value))
    return given


def _precision_per_square_length(
    owner: str, weight_decay: float, p: float, num_data: int, loss_weight: float
) -> float:
    """tau / l^2 = (1 - p) r / (2 N lambda)."""
    p = real_number(owner, "p", p, "in [0, 1), and below 1 in single precision", at_least=0, at_most=1 - 1e-7)
    weight_decay = _positive(owner, "weight_decay", weight_decay)
    num_data = whole_number(owner, "num_data", num_data, at_least=1)
    loss_weight = _positive(owner, "loss_weight", loss_weight)
    return (1 - p) * loss_weight / (2 * num_data * weight_decay)


def _positive(owner: str, argument: str, value: float) -> float:
    want = "a positive number, from 1e-30 to 1e30"
    return real_number(owner, argument, value, want, at_least=1e-30, at_most=1e30)
