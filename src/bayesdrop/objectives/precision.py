"""Model precision from weight decay, and back."""

from __future__ import annotations

from bayesdrop.errors import real_number, whole_number

__all__ = ["precision_from_weight_decay", "weight_decay_from_precision"]


def precision_from_weight_decay(
    weight_decay: float, *, p: float, length_scale: float, num_data: int, loss_weight: float = 1.0
) -> float:
    """tau = (1 - p) l^2 r / (2 N lambda): the precision that a dropout network was trained at.

    The objective is r (1/N) sum_n |y_n - f(x_n)|^2 / 2 + lambda |M|^2, M being the weights before any
    division by 1 - p. Where the penalty is written (lambda / 2) |M|^2, pass half of that lambda. The ratio
    r / lambda of Gal & Ghahramani (2015), section 3.4, is the case l = 1, p = 0 with a sum over the data
    instead of a mean and half the penalty.

    Args:
        weight_decay: lambda, above 0.
        p: chance of dropping; 0 for a bias, which is not dropped.
        length_scale: prior length scale l.
        num_data: N.
        loss_weight: r.

    Reference: Gal & Ghahramani (2016), Eq. 7.

    >>> round(precision_from_weight_decay(1e-4, p=0.5, length_scale=0.1, num_data=100), 6)
    0.25
    """
    _check(
        "precision_from_weight_decay", "weight_decay", weight_decay, p, length_scale, num_data, loss_weight
    )
    return (1 - p) * length_scale**2 * loss_weight / (2 * num_data * weight_decay)


def weight_decay_from_precision(
    precision: float, *, p: float, length_scale: float, num_data: int, loss_weight: float = 1.0
) -> float:
    """lambda = (1 - p) l^2 r / (2 N tau): the inverse of `precision_from_weight_decay`.

    Args:
        precision: tau = 1 / noise variance, above 0, in the units of the targets that are trained on.
        p: chance of dropping.
        length_scale: prior length scale l.
        num_data: N.
        loss_weight: r.
    """
    _check("weight_decay_from_precision", "precision", precision, p, length_scale, num_data, loss_weight)
    return (1 - p) * length_scale**2 * loss_weight / (2 * num_data * precision)


def _check(
    owner: str, argument: str, value: float, p: float, length_scale: float, num_data: int, loss_weight: float
) -> None:
    real_number(owner, "p", p, "in [0, 1)", at_least=0, below=1)
    whole_number(owner, "num_data", num_data, at_least=1)
    for name, number in ((argument, value), ("length_scale", length_scale), ("loss_weight", loss_weight)):
        # Squares and quotients of such numbers are finite, and not 0.
        real_number(
            owner, name, number, "a positive number, from 1e-50 to 1e50", at_least=1e-50, at_most=1e50
        )
