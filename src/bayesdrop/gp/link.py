"""From how a dropout network is trained to the Gaussian process that it approximates."""

from __future__ import annotations

import math

from bayesdrop.errors import must
from bayesdrop.gp.kernel import NetworkKernel
from bayesdrop.gp.moments import Nonlinearity
from bayesdrop.gp.process import GaussianProcess

__all__ = ["length_scale_from_weight_decay", "process_of_network"]


def length_scale_from_weight_decay(
    weight_decay: float, *, p: float, precision: float, num_data: int, loss_weight: float = 1.0
) -> float:
    """l = sqrt(2 N tau lambda / ((1 - p) r)): the length scale of a layer's prior.

    It goes with the objective r (1/N) sum_n |y_n - f(x_n)|^2 / 2 + lambda |M|^2 and is
    `precision_from_weight_decay` solved for l: weight decay alone gives the ratio of the two.

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
    weight_decay: float | tuple[float, float],
    p: float | tuple[float, float],
    num_data: int,
    num_units: int,
    precision: float | None = None,
    length_scale: float | None = None,
    bias_decay: float | None = None,
    loss_weight: float = 1.0,
) -> GaussianProcess:
    """The Gaussian process whose posterior a dropout network with one hidden layer approximates.

        f(x) = s((x * z_1) M_1 + m) * z_2 M_2,     K hidden units
        minimised: r (1/N) sum_n |y_n - f(x_n)|^2 / 2 + lambda_1 |M_1|^2 + lambda_2 |M_2|^2 + lambda_b |m|^2

        l_i^2 = 2 N tau lambda_i / ((1 - p_i) r)
        k(x, y) = (K / l_2^2) E[s(w.x + b) s(w.y + b)],    w ~ N(0, I / l_1^2),  b ~ N(0, 1 / l_b^2)

    Weight decay fixes tau / l^2 alone, so one of `precision` and `length_scale` must be given.

    Args:
        nonlinearity: s, as in `NetworkKernel`.
        weight_decay: lambda of both layers, or (lambda_1, lambda_2).
        p: chance of dropping inputs and hidden units, or one of each.
        num_data: N.
        num_units: K.
        precision: tau; gives the length scales.
        length_scale: l_1, of the first layer; gives the precision.
        bias_decay: lambda_b; as that of the first layer if None; infinite for hidden units without bias.
        loss_weight: r.

    Returns: with `.kernel`, a `NetworkKernel`, and `.precision`.
    Reference: Gal & Ghahramani (2015), sections 3.1 to 3.4.

    >>> process = process_of_network("relu", weight_decay=1e-4, p=0.5, num_data=100, num_units=50,
    ...                              length_scale=0.1)
    >>> round(process.precision, 6)
    0.25
    """
    owner = "process_of_network"
    if (precision is None) == (length_scale is None):
        got = {"precision": precision, "length_scale": length_scale}
        raise ValueError(must(owner, "precision", "given if and only if length_scale is not", got))
    if isinstance(num_units, bool) or not isinstance(num_units, int) or num_units < 1:
        raise ValueError(must(owner, "num_units", "an int of at least 1", num_units))
    decays = weight_decay if isinstance(weight_decay, tuple) else (weight_decay, weight_decay)
    rates = p if isinstance(p, tuple) else (p, p)
    ratios = [
        _precision_per_square_length(owner, decay, rate, num_data, loss_weight)
        for decay, rate in zip(decays, rates, strict=True)
    ]
    if precision is None:
        assert length_scale is not None
        precision = ratios[0] * _positive(owner, "length_scale", length_scale) ** 2
    _positive(owner, "precision", precision)
    first, second = (math.sqrt(precision / ratio) for ratio in ratios)
    bias_std = 0.0
    if bias_decay != math.inf:
        decay = decays[0] if bias_decay is None else bias_decay
        ratio = _precision_per_square_length(owner, decay, 0.0, num_data, loss_weight)
        bias_std = math.sqrt(ratio / precision)
    kernel = NetworkKernel(
        nonlinearity, length_scale=first, bias_std=bias_std, variance=num_units / second**2
    )
    return GaussianProcess(kernel, precision)


def _precision_per_square_length(
    owner: str, weight_decay: float, p: float, num_data: int, loss_weight: float
) -> float:
    """tau / l^2 = (1 - p) r / (2 N lambda)."""
    if not 0 <= p < 1:
        raise ValueError(must(owner, "p", "in [0, 1)", p))
    _positive(owner, "weight_decay", weight_decay)
    _positive(owner, "num_data", num_data)
    _positive(owner, "loss_weight", loss_weight)
    return (1 - p) * loss_weight / (2 * num_data * weight_decay)


def _positive(owner: str, argument: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise ValueError(must(owner, argument, "a positive number", value))
    return value
